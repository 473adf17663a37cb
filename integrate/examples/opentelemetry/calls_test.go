// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package opentelemetry

import (
	"context"
	"fmt"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// zone returns the value of the label grpc.lb.locality for a zone.
func zone(name string) string { return fmt.Sprintf(`{region="", zone=%q, sub_zone=""}`, name) }

// methods are the routes of TestCalls: by the method of the test service, to a cluster.
var methods = map[string]string{"UnaryCall": "open", "EmptyCall": "dropped", "FullDuplexCall": "limited"}

// TestCalls: RPCs are counted by locality, dropped by category, refused by the circuit
// breaker, and without a route.
func TestCalls(t *testing.T) {
	w := newWorld(t, 2)
	r := xdstest.Resources{}
	var routes []*routev3.Route
	for method, cluster := range methods {
		routes = append(routes, xdstest.Route("/grpc.testing.TestService/"+method, cluster))
	}
	r.Add(xdstest.Service(service))
	r.Routes[0] = xdstest.RouteConfig(service, routes...)
	r.Clusters, r.Endpoints = nil, nil
	for _, cluster := range methods {
		r.Clusters = append(r.Clusters, xdstest.Cluster(cluster, cluster+"-eds", testplane.MaxRequests(1)))
		r.Endpoints = append(r.Endpoints, xdstest.Endpoints(cluster+"-eds", w.locality("a", 0, w.backends[0]), w.locality("b", 0, w.backends[1])))
		if cluster == "dropped" {
			testplane.Drop(r.Endpoints[len(r.Endpoints)-1], "throttle", 1_000_000)
		}
	}
	w.serve(r)
	c := w.dial()
	for range 10 {
		if err := w.call(c); err != nil {
			t.Fatal(err)
		}
	}
	w.await("xdslb.lb.picks", is(10), "grpc.lb.backend_service", "open")
	a, _ := w.read("xdslb.lb.picks", "grpc.lb.backend_service", "open", "grpc.lb.locality", zone("a"))
	b, _ := w.read("xdslb.lb.picks", "grpc.lb.backend_service", "open", "grpc.lb.locality", zone("b"))
	if a+b != 10 || a != float64(w.backends[0].Calls()) {
		t.Errorf("%v picks of zone a and %v of zone b, want %d and %d", a, b, w.backends[0].Calls(), w.backends[1].Calls())
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.EmptyCall(ctx, &testgrpc.Empty{}); status.Code(err) != codes.Unavailable {
		t.Fatalf("an RPC that is to be dropped: %v", err)
	}
	w.await("xdslb.lb.drops", is(1), "grpc.lb.backend_service", "dropped", "xdslb.drop_category", "throttle")

	if _, err := c.FullDuplexCall(ctx); err != nil {
		t.Fatal(err)
	}
	w.await("xdslb.lb.breaker_in_flight", is(1), "grpc.lb.backend_service", "limited", "xdslb.eds_service", "limited-eds")
	second, err := c.FullDuplexCall(ctx)
	if err == nil {
		_, err = second.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Fatalf("an RPC beyond the circuit breaker's limit: %v", err)
	}
	w.await("xdslb.lb.breaker_rejections", is(1), "grpc.lb.backend_service", "limited")

	if _, err := c.UnimplementedCall(ctx, &testgrpc.Empty{}); status.Code(err) != codes.Unavailable {
		t.Fatalf("an RPC without a route: %v", err)
	}
	w.await("xdslb.lb.no_route", is(1), "grpc.target", target)
}

// TestPicks checks that picks are counted by sequence, and also under policies without one if
// load is reported; removed localities keep their counts.
func TestPicks(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options []testplane.ClusterOption
	}{
		{"sequence", nil},
		{"load reports", []testplane.ClusterOption{testplane.LoadReports()}},
		{"load reports and hashes", []testplane.ClusterOption{testplane.LoadReports(), testplane.RingHash(8, 8)}},
		{"load reports and least request", []testplane.ClusterOption{testplane.LoadReports(), testplane.LeastRequest(2)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1)
			serve := func(zone string) {
				r := xdstest.Service(service, w.locality(zone, 0, w.backends...))
				r.Clusters[0] = xdstest.Cluster(service, service, tt.options...)
				w.serve(r)
			}
			serve("a")
			c := w.dial()
			if err := w.call(c); err != nil {
				t.Fatal(err)
			}
			w.backends[0].Fail(codes.Internal)
			if err := w.call(c); status.Code(err) != codes.Internal {
				t.Fatal(err)
			}
			labels := []string{"grpc.lb.backend_service", service, "grpc.lb.locality", zone("a")}
			w.await("xdslb.lb.picks", is(2), labels...)
			serve("b")
			w.await("xdslb.xds_client.configuration_latency", is(2))
			w.await("xdslb.lb.picks", is(2), labels...)
		})
	}
}

// TestRetries: attempts that the interceptor makes are counted.
func TestRetries(t *testing.T) {
	w := newWorld(t, 1)
	w.serve(w.retrying())
	w.backends[0].Fail(codes.Unavailable)
	if err := w.call(w.dial()); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	w.await("xdslb.client.retries", is(2), "grpc.target", target)
	w.await("xdslb.client.channels_without_interceptors", is(0), "grpc.target", target)
}

// TestMissingInterceptors checks the metric of a channel without the interceptors that its
// configuration needs.
func TestMissingInterceptors(t *testing.T) {
	w := newWorld(t, 1)
	w.serve(w.retrying())
	builder, err := integrate.NewBuilder(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := w.dialWith(grpc.WithResolvers(builder))
	if err := w.call(c); err != nil {
		t.Fatal(err)
	}
	w.await("xdslb.client.channels_without_interceptors", is(1), "grpc.target", target)
}

// retrying are resources with a route whose retries gRPC's service config cannot say.
func (w *world) retrying() xdstest.Resources {
	r := xdstest.Service(service, w.locality("a", 0, w.backends...))
	first := xdstest.Route("", service)
	first.Match.Headers = []*routev3.HeaderMatcher{{Name: "x-none", HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}}
	retried := xdstest.Route("", service)
	retried.GetRoute().RetryPolicy = &routev3.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(2)}
	r.Routes[0] = xdstest.RouteConfig(service, first, retried)
	return r
}
