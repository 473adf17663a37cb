// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestRefusalsAreFinal: an RPC that is dropped (T-DROP-3) or refused by the circuit
// breaker (A32) fails UNAVAILABLE at once, waits for ready or not, and is not
// retried, neither by gRPC nor by interceptors; nor is one without a route (A28).
func TestRefusalsAreFinal(t *testing.T) {
	bothWays(t, func(t *testing.T, _ bool, open func([]byte) *grpc.ClientConn) {
		backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
		for _, tt := range []struct {
			name     string
			byHeader bool
			change   func(r *xdstest.Resources)
		}{
			{"drop", false, func(r *xdstest.Resources) { xdstest.Drop(r.Endpoints[0], "all", 1e6) }},
			{"drop by header", true, func(r *xdstest.Resources) { xdstest.Drop(r.Endpoints[0], "all", 1e6) }},
			{"breaker", false, func(r *xdstest.Resources) {
				r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, xdstest.MaxRequests(0))}
			}},
			{"breaker by header", true, func(r *xdstest.Resources) {
				r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, xdstest.MaxRequests(0))}
			}},
			{"no route", true, func(r *xdstest.Resources) { header(r.Routes[0].VirtualHosts[0].Routes[0], "x", "z") }},
		} {
			route := retrying(xdstest.Route("", target))
			route.GetRoute().RetryPolicy.RetryBackOff.BaseInterval = durationpb.New(time.Hour)
			if tt.byHeader {
				route = header(route, "x", "y")
			}
			control := xdstest.New(t, xdstest.Options{})
			r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
			r.Routes[0] = xdstest.RouteConfig(target, route)
			tt.change(&r)
			set(t, control, r)
			client := testgrpc.NewTestServiceClient(open(control.Bootstrap(t.Name() + tt.name)))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			ctx = metadata.AppendToOutgoingContext(ctx, "x", "y")
			for _, wait := range []bool{true, false} {
				if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(wait)); status.Code(err) != codes.Unavailable {
					t.Errorf("%s, wait for ready %v: %v, want UNAVAILABLE", tt.name, wait, err)
				}
			}
		}
		if n := backends[0].Calls(); n != 0 {
			t.Errorf("%d RPCs reached the backend", n)
		}
	})
}
