// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// previousHosts has a route's retries avoid the endpoints that were tried.
func previousHosts(r *routev3.Route) *routev3.Route {
	r.GetRoute().RetryPolicy.RetryHostPredicate = []*routev3.RetryPolicy_RetryHostPredicate{{
		Name: "envoy.retry_host_predicates.previous_hosts",
		ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: &anypb.Any{
			TypeUrl: "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
		}},
	}}
	return r
}

// TestRetryElsewhere: with previous_hosts, and without it if the policy compares latencies, an
// attempt goes to an endpoint that was not tried, under every policy, by gRPC or by an interceptor,
// and whatever the endpoints weigh; to a tried one if there are no others.
func TestRetryElsewhere(t *testing.T) {
	for name, opts := range map[string][]testplane.ClusterOption{
		"ROUND_ROBIN":   nil,
		"LEAST_REQUEST": {testplane.LeastRequest(2)},
		"RING_HASH":     {testplane.RingHash(1024, 4096)},
		"MAGLEV":        {testplane.Policies(&maglevv3.Maglev{})},
		// Without previous_hosts.
		"LEAST_LATENCY": {testplane.Policies(testplane.TypedStruct("xdslb_least_latency", nil))},
		"custom":        {testplane.Policies(testplane.WrrLocality(testplane.TypedStruct(customPolicy, nil)))},
	} {
		for _, byHeader := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by header %t", name, byHeader), func(t *testing.T) {
				backends := xdstest.NewBackends(t, 3, xdstest.BackendOptions{})
				control := xdstest.New(t, xdstest.Options{})
				endpoints := xdstest.BackendEndpoints(backends...)
				if name != "custom" {
					endpoints[0].Weight, endpoints[1].Weight, endpoints[2].Weight = 100, 2, 1
				}
				route := testplane.HashHeader(xdstest.Route("", target), "key")
				if byHeader {
					route = absent(route, "nobody")
				}
				r := xdstest.Service(target,
					xdstest.Locality{Place: xdstest.Place{Zone: "near"}, Weight: 9, Endpoints: endpoints[:1]}, xdstest.Locality{Place: xdstest.Place{Zone: "far"}, Weight: 1, Endpoints: endpoints[1:]})
				r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, opts...)}
				if route = retried(route, 3); name != "LEAST_LATENCY" {
					route = previousHosts(route)
				}
				r.Routes[0] = xdstest.RouteConfig(target, route)
				set(t, control, r)
				client := testgrpc.NewTestServiceClient(dial(t, control.Bootstrap(t.Name())))
				do := func(key int) {
					ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "key", fmt.Sprint(key)), time.Minute)
					defer cancel()
					_, _ = client.EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true))
				}
				key := 0
				for _, b := range backends { // until all are connected
					kit.WaitFor(t, "an RPC at each backend", func() bool { key++; do(key); return b.Calls() > 0 })
				}
				for _, b := range backends {
					b.Fail(codes.Unavailable)
				}
				for range 20 {
					var before, calls [3]uint64
					for i, b := range backends {
						before[i] = b.Calls()
					}
					key++
					do(key)
					sum := uint64(0)
					for i, b := range backends {
						calls[i] = b.Calls() - before[i]
						sum += calls[i]
					}
					if sum != 4 || min(calls[0], calls[1], calls[2]) < 1 {
						t.Fatalf("the backends got %v of 4 attempts, want each at least one", calls)
					}
				}
			})
		}
	}
}
