// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestRetryLimits: retry_budget and max_retries of a cluster limit the retries of its RPCs
// and streams, whatever their routes match by, and follow updates.
func TestRetryLimits(t *testing.T) {
	budget := func(percent float64, least uint32) *clusterv3.CircuitBreakers_Thresholds {
		return &clusterv3.CircuitBreakers_Thresholds{RetryBudget: &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
			BudgetPercent: &typev3.Percent{Value: percent}, MinRetryConcurrency: wrapperspb.UInt32(least),
		}}
	}
	for name, route := range map[string]*routev3.Route{
		"by path":   retried(xdstest.Route("", "a"), 2),
		"by header": retried(absent(xdstest.Route("", "a"), "nobody"), 2),
	} {
		t.Run(name, func(t *testing.T) {
			backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
			control := xdstest.New(t, xdstest.Options{})
			metrics := &kit.Recorder{}
			cc := (*grpc.ClientConn)(nil)
			for _, tt := range []struct {
				name     string
				limits   *clusterv3.CircuitBreakers_Thresholds
				attempts uint64
			}{
				{"no limit", nil, 3},
				{"a budget of nothing", budget(0, 0), 1},
				{"a budget of one", budget(0, 1), 3},
				{"a share of nothing in flight", budget(100, 0), 1},
				{"max_retries 0", &clusterv3.CircuitBreakers_Thresholds{MaxRetries: wrapperspb.UInt32(0)}, 1},
				{"max_retries 1", &clusterv3.CircuitBreakers_Thresholds{MaxRetries: wrapperspb.UInt32(1)}, 3},
			} {
				backends[0].Fail(codes.OK)
				r := clusters(backends, nil, route)
				if tt.limits != nil {
					r.Clusters[0].CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{tt.limits}}
				}
				set(t, control, r)
				if cc == nil {
					cc = dial(t, control.Bootstrap(t.Name()), grpc.WithStatsHandler(metrics))
				}
				if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
					t.Fatal(err)
				}
				backends[0].Fail(codes.Unavailable)
				attemptsOf := func(do func()) uint64 {
					before := backends[0].Calls()
					do()
					return backends[0].Calls() - before
				}
				refusals := func() float64 { return metrics.Sum("xdslb.client.retry_rejections", "budget") }
				var refused float64 // of an RPC
				if tt.attempts == 1 {
					refused = 1
				}
				kit.WaitFor(t, "the update of the budget: gRPC no longer retries by itself", func() bool { // until the update is here: gRPC makes no retries any more before interceptors do
					before := refusals()
					return attemptsOf(func() { _, _ = call(t, cc) }) == tt.attempts && refusals()-before == refused
				})
				for range 3 {
					before := refusals()
					if n := attemptsOf(func() { _, _ = call(t, cc) }); n != tt.attempts {
						t.Errorf("%s: %d attempts at an RPC, want %d", tt.name, n, tt.attempts)
					}
					if n := attemptsOf(func() { stream(t, cc) }); n != tt.attempts {
						t.Errorf("%s: %d attempts at a stream, want %d", tt.name, n, tt.attempts)
					}
					if n := refusals() - before; n != 2*refused {
						t.Errorf("%s: %v retries are counted as refused, want %v", tt.name, n, 2*refused)
					}
				}
			}
		})
	}
}

// stream opens a stream and waits for its end.
func stream(t *testing.T, cc *grpc.ClientConn) {
	s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(t.Context())
	if err == nil {
		_, err = s.Recv()
	}
	if err == nil {
		t.Error("a stream to a backend that fails has a message")
	}
}
