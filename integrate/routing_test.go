// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// The tests of this file run with DialOptions, which NewClient installs, and with a resolver alone.
// Channels with a resolver alone lack the features that the comment of DialOptions lists.

// ways are the two ways to make a channel.
var ways = []struct {
	name         string
	interceptors bool
	open         func(t testing.TB, bootstrap []byte) *grpc.ClientConn
}{
	{"DialOptions", true, func(t testing.TB, bootstrap []byte) *grpc.ClientConn { return dial(t, bootstrap) }},
	{"WithResolvers", false, func(t testing.TB, bootstrap []byte) *grpc.ClientConn { return dialBare(t, bootstrap, target) }},
}

// bothWays runs a test for each way to make a channel.
func bothWays(t *testing.T, test func(t *testing.T, interceptors bool, open func(bootstrap []byte) *grpc.ClientConn)) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			test(t, way.interceptors, func(bootstrap []byte) *grpc.ClientConn { return way.open(t, bootstrap) })
		})
	}
}

// clusters serves each backend as a cluster of its own, named by letter.
func clusters(backends []*xdstest.Backend, filters []*hcmv3.HttpFilter, routes ...*routev3.Route) xdstest.Resources {
	r := xdstest.Resources{
		Routes: []*routev3.RouteConfiguration{xdstest.RouteConfig(target, routes...)},
	}
	r.Listeners = append(r.Listeners, xdstest.Listener(target, target, filters...))
	for i, b := range backends {
		name := string(rune('a' + i))
		r.Clusters = append(r.Clusters, xdstest.Cluster(name, name))
		r.Endpoints = append(r.Endpoints, xdstest.Endpoints(name, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(b)}))
	}
	return r
}

// header adds a condition to a route.
func header(r *routev3.Route, name, value string) *routev3.Route {
	r.Match.Headers = append(r.Match.Headers, &routev3.HeaderMatcher{
		Name:                 name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_ExactMatch{ExactMatch: value},
	})
	return r
}

// limited gives a route a timeout.
func limited(r *routev3.Route, d time.Duration) *routev3.Route {
	r.GetRoute().MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(d)}
	return r
}

// TestRouteTimeout: a route's timeout ends unary RPCs and streams, and RPCs of other routes go on
// (A31). Without interceptors it does only if the route is one that a service config can express.
func TestRouteTimeout(t *testing.T) {
	const limit = 50 * time.Millisecond
	const calls = "/grpc.testing.TestService/"
	tests := []struct {
		name string
		expressible
		routes []*routev3.Route
	}{
		{"all", true, []*routev3.Route{limited(xdstest.Route("", "a"), limit)}},
		{"a service", true, []*routev3.Route{limited(xdstest.Route(calls, "a"), limit), xdstest.Route("", "a")}},
		{"another service", false, []*routev3.Route{limited(xdstest.Route("/other/", "a"), limit), xdstest.Route("", "a")}},
		{"part of a name", false, []*routev3.Route{limited(xdstest.Route("/grpc.testing.", "a"), limit), xdstest.Route("", "a")}},
		{"a header", false, []*routev3.Route{header(limited(xdstest.Route("", "a"), limit), "slow", "yes"), xdstest.Route("", "a")}},
	}
	for _, way := range ways {
		for _, tt := range tests {
			t.Run(way.name+", "+tt.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bubble) {
					backends, control := b.backends(1), b.control()
					set(t, control, clusters(backends, nil, tt.routes...))
					var cc *grpc.ClientConn
					if way.interceptors {
						cc = b.dial(b.config(control))
					} else {
						cc = b.dialBare(b.config(control))
					}
					ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "slow", "yes"), time.Minute)
					defer cancel()
					if !way.interceptors && bool(tt.expressible) {
						cc.Connect()
						kit.WaitFor(t, "a timeout in the service config", func() bool { return cc.GetMethodConfig(calls+"EmptyCall").Timeout != nil })
					}
					want, delay, ends := codes.OK, 4*limit, 4*limit
					if tt.name != "another service" && (way.interceptors || bool(tt.expressible)) {
						want, delay, ends = codes.DeadlineExceeded, time.Hour, limit
					}
					backends[0].SetDelay(delay)
					client, begin := testgrpc.NewTestServiceClient(cc), time.Now()
					if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}); status.Code(err) != want || time.Since(begin) != ends {
						t.Errorf("the RPC ends with %v after %v, want %v after %v", err, time.Since(begin), want, ends)
					}
					begin = time.Now()
					if err := streamEnds(t, client, ctx); status.Code(err) != want || time.Since(begin) != ends {
						t.Errorf("the stream ends with %v after %v, want %v after %v", err, time.Since(begin), want, ends)
					}
				})
			})
		}
	}
}

// streamEnds returns the error of a stream whose server sends no message.
func streamEnds(t *testing.T, client testgrpc.TestServiceClient, ctx context.Context) error {
	t.Helper()
	stream, err := client.FullDuplexCall(ctx)
	kit.Must(t, err)
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err = stream.Recv(); errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

type expressible bool

// retrying gives a route a retry policy.
func retrying(r *routev3.Route) *routev3.Route {
	r.GetRoute().RetryPolicy = &routev3.RetryPolicy{
		RetryOn:      "unavailable",
		RetryBackOff: &routev3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(time.Millisecond)},
	}
	return r
}
