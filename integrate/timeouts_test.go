// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

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
		succeed(t, cc)
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
		succeed(t, cc)
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

// perTry returns a route whose attempts are limited to 100 ms, with at most two retries.
func perTry(on string) *routev3.Route {
	r := retried(xdstest.Route("", target), 2)
	r.GetRoute().RetryPolicy.RetryOn = on
	r.GetRoute().RetryPolicy.PerTryTimeout = durationpb.New(100 * time.Millisecond)
	return r
}

// halfClosed makes a stream that sends one message, and receives until its end.
func halfClosed(ctx context.Context, cc *grpc.ClientConn) error {
	s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	if err := s.Send(new(testgrpc.StreamingOutputCallRequest)); err != nil && err != io.EOF {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for {
		if _, err := s.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// TestPerTryTimeout: an attempt that exceeds per_try_timeout is canceled, and retried if retry_on
// has deadline-exceeded or one of Envoy's conditions for resets, within the RPC's deadline.
func TestPerTryTimeout(t *testing.T) {
	const try = 100 * time.Millisecond
	for _, tt := range []struct {
		name     string
		on       string
		stalls   int // attempts
		deadline time.Duration
		attempts int
		took     time.Duration // besides backoffs
		code     codes.Code
	}{
		{name: "no timeout", on: "unavailable", attempts: 1},
		{name: "deadline-exceeded", on: "unavailable,deadline-exceeded", stalls: 1, attempts: 2, took: try},
		{name: "5xx", on: "5xx", stalls: 1, attempts: 2, took: try},
		{name: "gateway-error", on: "gateway-error,unavailable", stalls: 2, attempts: 3, took: 2 * try},
		{name: "reset", on: "connect-failure,reset", stalls: 1, attempts: 2, took: try},
		{name: "not a condition", on: "unavailable", stalls: 1, attempts: 1, took: try, code: codes.DeadlineExceeded},
		{name: "all attempts", on: "5xx", stalls: 9, attempts: 3, took: 3 * try, code: codes.DeadlineExceeded},
		{name: "deadline", on: "5xx", stalls: 9, deadline: try / 2, attempts: 1, took: try / 2, code: codes.DeadlineExceeded},
		{name: "deadline of the second attempt", on: "5xx", stalls: 9, deadline: try * 3 / 2, attempts: 2, took: try * 3 / 2, code: codes.DeadlineExceeded},
	} {
		for kind, rpc := range map[string]func(context.Context, *grpc.ClientConn) error{
			"unary": func(ctx context.Context, cc *grpc.ClientConn) error {
				_, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, new(testgrpc.SimpleRequest))
				return err
			},
			"stream": halfClosed,
		} {
			t.Run(tt.name+"/"+kind, func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bubble) {
					log := &headerLog{stall: tt.stalls}
					backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{Listen: b.net.Listen, Server: log.options()})
					control := b.control()
					r := service(backends...)
					r.Routes[0] = xdstest.RouteConfig(target, perTry(tt.on))
					set(t, control, r)
					cc := b.dial(b.config(control))
					kit.Must(t, integrate.WaitReady(t.Context(), cc, testgrpc.TestService_UnaryCall_FullMethodName))
					ctx := t.Context()
					if tt.deadline > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tt.deadline)
						defer cancel()
					}
					begin := time.Now()
					err := rpc(ctx, cc)
					if took := time.Since(begin); status.Code(err) != tt.code || took < tt.took || took > tt.took+10*time.Millisecond {
						t.Errorf("the RPC ends after %v with %v, want %v and %v", took, err, tt.took, tt.code)
					}
					if n := len(log.take()); n != tt.attempts {
						t.Errorf("%d attempts, want %d", n, tt.attempts)
					}
					time.Sleep(time.Second)
					if s, err := integrate.StatusOf(cc); err != nil || s.Clusters[0].Leaves[0].InFlight != 0 {
						t.Errorf("%v RPCs in flight after the end, error %v", s.Clusters[0].Leaves[0].InFlight, err)
					}
				})
			})
		}
	}
}

// TestPerTryTimeoutEjects: an attempt that exceeds its time is a failure of its endpoint, with the
// status DEADLINE_EXCEEDED.
func TestPerTryTimeoutEjects(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, control := b.backends(2), b.control()
		r := service(backends...)
		r.Routes[0] = xdstest.RouteConfig(target, perTry("5xx"))
		r.Clusters[0].OutlierDetection = &clusterv3.OutlierDetection{
			ConsecutiveGatewayFailure: wrapperspb.UInt32(3), EnforcingConsecutiveGatewayFailure: wrapperspb.UInt32(100), MaxEjectionPercent: wrapperspb.UInt32(50),
		}
		set(t, control, r)
		cc := b.dial(b.config(control))
		for backends[0].Calls() == 0 || backends[1].Calls() == 0 {
			_, _ = call(t, cc, grpc.WaitForReady(true))
		}
		backends[0].SetDelay(time.Hour)
		for range 10 {
			if _, err := call(t, cc); err != nil {
				t.Error(err)
			}
		}
		before := backends[0].Calls()
		for range 10 {
			_, _ = call(t, cc)
		}
		if n := backends[0].Calls() - before; n != 0 {
			t.Errorf("%d of 10 RPCs go to an endpoint whose attempts exceeded their time, want none", n)
		}
	})
}

// TestPerTryTimeoutAfterUpdate: further attempts at an RPC keep its per_try_timeout after an update to
// routes without interceptors.
func TestPerTryTimeoutAfterUpdate(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		log := &headerLog{stall: 2}
		backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{Listen: b.net.Listen, Server: log.options()})
		control := b.control()
		r := service(backends...)
		plain := r.Routes
		r.Routes = []*routev3.RouteConfiguration{xdstest.RouteConfig(target, perTry("5xx"))}
		set(t, control, r)
		cc := b.dial(b.config(control))
		kit.Must(t, integrate.WaitReady(t.Context(), cc, testgrpc.TestService_UnaryCall_FullMethodName))
		time.AfterFunc(50*time.Millisecond, func() {
			r.Routes = plain
			set(t, control, r)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, new(testgrpc.SimpleRequest))
		if n := len(log.take()); err != nil || n != 3 {
			t.Errorf("the RPC ends after %d attempts with %v, want success of the third", n, err)
		}
	})
}
