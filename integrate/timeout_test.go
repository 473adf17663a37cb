// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestTimeoutTable is A31's table of ten rows: the remaining time of the caller's deadline, for a
// route whose timeout gRPC's service config has, and for one whose timeout interceptors apply.
// Where the table has max_stream_duration it is the route's or else the listener's.
func TestTimeoutTable(t *testing.T) { inBubble(t, checkTimeoutTable) }

func checkTimeoutTable(t *testing.T, b *bubble) {
	const unset, infinite, ignored = time.Duration(-1), time.Duration(-1), time.Second
	rows := []struct{ deadline, headerMax, maxStream, want time.Duration }{
		{unset, unset, unset, infinite},
		{unset, unset, 0, infinite},
		{unset, unset, 10 * time.Second, 10 * time.Second},
		{unset, 0, ignored, infinite},
		{unset, 10 * time.Second, ignored, 10 * time.Second},
		{20 * time.Second, unset, unset, 20 * time.Second},
		{20 * time.Second, unset, 0, 20 * time.Second},
		{20 * time.Second, unset, 10 * time.Second, 10 * time.Second},
		{20 * time.Second, 0, ignored, 20 * time.Second},
		{20 * time.Second, 10 * time.Second, ignored, 10 * time.Second},
	}
	for _, inherited := range []time.Duration{unset, 0, 10 * time.Second} {
		var routes []*routev3.Route
		for i, row := range rows {
			d := &routev3.RouteAction_MaxStreamDuration{}
			if row.headerMax != unset {
				d.GrpcTimeoutHeaderMax = durationpb.New(row.headerMax)
			}
			if row.maxStream != unset {
				d.MaxStreamDuration = durationpb.New(row.maxStream)
			}
			byService, byHeader := xdstest.Route(fmt.Sprintf("/service%d/", i), "a"), header(xdstest.Route(fmt.Sprintf("/header%d/", i), "a"), "x", "y")
			byService.GetRoute().MaxStreamDuration, byHeader.GetRoute().MaxStreamDuration = d, d
			routes = append(routes, byService, byHeader)
		}
		control := b.control()
		r := clusters(b.backends(1), nil, append(routes, xdstest.Route("", "a"))...)
		if inherited != unset {
			r.Listeners[0].ApiListener.ApiListener = withMaxStream(t, r.Listeners[0].ApiListener.ApiListener, inherited)
		}
		set(t, control, r)
		cc := b.dialBare(b.config(control), byHand...)
		if _, err := call(t, cc); err != nil {
			t.Fatal(err)
		}
		for i, row := range rows {
			want := row.want
			if row.headerMax == unset && row.maxStream == unset && inherited > 0 {
				want = inherited // the effective max_stream_duration is the listener's
			}
			for _, path := range []string{"service", "header"} {
				if got := effective(t, cc, fmt.Sprintf("/%s%d/m", path, i), row.deadline); got != want {
					t.Errorf("row %d of a %s, listener %v: %v is left, want %v", i+1, path, inherited, got, want)
				}
			}
		}
	}
}

// effective returns an RPC's effective deadline: the deadline of its context after the
// interceptors, or the method config's timeout if that is less.
func effective(t *testing.T, cc *grpc.ClientConn, method string, deadline time.Duration) time.Duration {
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", "y")
	if deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deadline)
		defer cancel()
	}
	left := time.Duration(-1)
	err := integrate.UnaryInterceptor(ctx, method, nil, nil, cc, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		if d, ok := ctx.Deadline(); ok {
			left = time.Until(d)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if d := cc.GetMethodConfig(method).Timeout; d != nil && (left < 0 || *d < left) {
		left = *d
	}
	return left
}

// withMaxStream is the listener's connection manager with a default timeout.
func withMaxStream(t *testing.T, a *anypb.Any, d time.Duration) *anypb.Any {
	hcm := new(hcmv3.HttpConnectionManager)
	kit.Must(t, a.UnmarshalTo(hcm))
	hcm.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{MaxStreamDuration: durationpb.New(d)}
	return anyOf(t, hcm)
}

// TestTimeoutOfLongPath: a path of more than two parts has the timeout of its route, and not
// that of another one (A31).
func TestTimeoutOfLongPath(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		control := b.control()
		limited := func(path string, d time.Duration) *routev3.Route {
			r := xdstest.Route(path, "a")
			if d > 0 {
				r.GetRoute().MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(d)}
			}
			return r
		}
		set(t, control, clusters(b.backends(1), nil, limited("/api/", 3*time.Second), limited("/free/", 0), limited("", time.Second)))
		cc := b.dial(b.config(control))
		if _, err := call(t, cc); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]time.Duration{
			"/api/Method": 3 * time.Second, "/api/pkg.Service/Method": 3 * time.Second,
			"/free/Method": -1, "/free/pkg.Service/Method": -1,
			"/pkg.Service/Method": time.Second, "/x/pkg.Service/Method": time.Second,
		} {
			if got := effective(t, cc, path, 0); got != want {
				t.Errorf("%s: %v is left, want %v", path, got, want)
			}
		}
	})
}
