// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestRandomHashWithChangedHeaders checks that RPCs without a value to hash are spread over a hash ring
// (A42, T-RING-6), also if their route changes headers and the application makes all of them with one
// context that can be canceled.
func TestRandomHashWithChangedHeaders(t *testing.T) {
	for name, headers := range map[string][]*corev3.HeaderValueOption{
		"no changes":     nil,
		"a header added": {{Header: &corev3.HeaderValue{Key: "x-client", Value: "a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			const n, rpcs = 5, 300
			backends := xdstest.NewBackends(t, n, xdstest.BackendOptions{})
			control := xdstest.New(t, xdstest.Options{})
			route := testplane.HashHeader(xdstest.Route("", target), "user") // which no RPC has
			route.RequestHeadersToAdd = headers
			r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
			r.Routes[0] = xdstest.RouteConfig(target, route)
			r.Clusters[0] = xdstest.Cluster(target, target, testplane.RingHash(1024, 4096))
			set(t, control, r)
			cc := dial(t, control.Bootstrap(t.Name()))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			counts := map[string]int{}
			for range rpcs {
				res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{})
				kit.Must(t, err)
				counts[res.GetHostname()]++
			}
			// An endpoint has a fifth of the ring, give or take a third of that: a chance of 1e-18 to get no RPC.
			if len(counts) < n {
				t.Errorf("%d RPCs went to %d of %d endpoints: %v", rpcs, len(counts), n, counts)
			}
		})
	}
}
