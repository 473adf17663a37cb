// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// hedged has a route's RPCs hedged once, after a while.
func hedged(r *routev3.Route, after time.Duration) *routev3.Route {
	r = retried(r, 1)
	r.GetRoute().RetryPolicy.PerTryTimeout = durationpb.New(after)
	r.GetRoute().HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true}
	return r
}

// TestHedgedRPC: a route's hedge_policy has an RPC that a backend keeps answered by the
// other one, if the application declares its method safe and the cluster's budget lets it;
// and the attempt that is canceled leaves nothing in flight.
func TestHedgedRPC(t *testing.T) {
	for _, tt := range []struct {
		name         string
		safe, budget bool
	}{{"hedged", true, true}, {"not declared safe", false, true}, {"no budget", true, false}} {
		inBubble(t, func(t *testing.T, b *bubble) {
			backends, control := b.backends(2), b.control()
			route := hedged(xdstest.Route("", target), 20*time.Millisecond)
			r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
			r.Routes[0] = xdstest.RouteConfig(target, route)
			if !tt.budget {
				r.Clusters[0].CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRetries: wrapperspb.UInt32(0)}}}
			}
			set(t, control, r)
			cfg := b.config(control)
			if tt.safe {
				cfg.Idempotent = func(method string) bool { return method == testgrpc.TestService_UnaryCall_FullMethodName }
			}
			metrics := &kit.Recorder{}
			cc := b.dial(cfg, grpc.WithStatsHandler(metrics))
			for _, b := range backends {
				kit.WaitFor(t, "an RPC at each backend", func() bool { _, _ = call(t, cc, grpc.WaitForReady(true)); return b.Calls() > 0 })
			}
			hedged, stall := tt.safe && tt.budget, 200*time.Millisecond
			if hedged {
				stall = time.Hour // the test does not wait for it
			}
			backends[0].SetDelay(stall)
			slow := 0
			for range 6 {
				var from peer.Peer
				begin := time.Now()
				host, err := call(t, cc, grpc.Peer(&from))
				if err != nil {
					t.Fatalf("%s: %v", tt.name, err)
				}
				if from.Addr.String() != host {
					t.Errorf("the answer is of %s, and the peer %v", host, from.Addr)
				}
				if host == backends[0].Addr().String() {
					if slow++; time.Since(begin) < stall {
						t.Errorf("%s: a backend that keeps RPCs has answered at once", tt.name)
					}
				}
			}
			if n := metrics.Sum("xdslb.client.retry_rejections", "budget"); !tt.budget && n != float64(slow) {
				t.Errorf("%s: %v hedges of %d RPCs count as not made, want one of each", tt.name, n, slow)
			}
			if hedged != (slow == 0) {
				t.Errorf("%s: %d of 6 RPCs were answered by the backend that keeps them, hedged: %t", tt.name, slow, hedged)
			}
			kit.WaitFor(t, "the end of all attempts", func() bool {
				s, err := integrate.StatusOf(cc)
				return err == nil && s.Clusters[0].Leaves[0].InFlight == 0
			})
		})
	}
}

// TestHedgedFailure: an RPC whose attempts fail is retried as without hedging.
func TestHedgedFailure(t *testing.T) {
	route := retried(xdstest.Route("", "a"), 2)
	route.GetRoute().RetryPolicy.PerTryTimeout = durationpb.New(time.Hour)
	route.GetRoute().HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true}
	cc, seen := failingService(t, route)
	if _, err := call(t, cc); status.Code(err) != codes.Unavailable {
		t.Errorf("an RPC to a backend that fails: %v", err)
	}
	if n := len(seen.take()); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
}

// TestHedgedLosers: attempts that are canceled because another one was faster are reported as
// issued, and neither as successes nor as failures; no endpoint is ejected for them, and least
// latency avoids the slow endpoint all the same. That holds for every picker.
func TestHedgedLosers(t *testing.T) {
	for name, policy := range map[string][]testplane.ClusterOption{
		"ROUND_ROBIN":   nil,
		"least latency": {testplane.Policies(testplane.TypedStruct("xdslb_least_latency", nil))},
		"custom":        {testplane.Policies(testplane.WrrLocality(testplane.TypedStruct(customPolicy, nil)))},
	} {
		synctest.Test(t, func(t *testing.T) {
			net := xdstest.NewNetwork()
			backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{Listen: net.Listen})
			control := xdstest.New(t, xdstest.Options{Listen: net.Listen})
			route := retried(xdstest.Route("", target), 1)
			route.GetRoute().RetryPolicy.PerTryTimeout = durationpb.New(100 * time.Millisecond)
			route.GetRoute().HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true}
			r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
			r.Routes[0] = xdstest.RouteConfig(target, route)
			r.Clusters[0] = xdstest.Cluster(target, target, append(policy, testplane.LoadReports())...)
			r.Clusters[0].OutlierDetection = &clusterv3.OutlierDetection{
				Interval: durationpb.New(time.Second), MaxEjectionPercent: wrapperspb.UInt32(100),
				EnforcingFailurePercentage: wrapperspb.UInt32(100), FailurePercentageThreshold: wrapperspb.UInt32(1),
				FailurePercentageMinimumHosts: wrapperspb.UInt32(1), FailurePercentageRequestVolume: wrapperspb.UInt32(1),
			}
			set(t, control, r)
			metrics := &kit.Recorder{}
			cc, err := integrate.Config{
				Bootstrap: control.Bootstrap(t.Name()), Linger: -1, Idempotent: func(string) bool { return true },
				ControlPlaneDialOptions: []grpc.DialOption{grpc.WithContextDialer(net.Dialer("control"))},
			}.NewClient("xds:///"+target, grpc.WithStatsHandler(metrics), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(net.Dialer("client")))
			kit.Must(t, err)
			t.Cleanup(func() {
				_ = cc.Close()
				time.Sleep(time.Minute) // for RPCs that the backend still has
			})
			for _, b := range backends {
				b.SetDelay(time.Millisecond) // latencies of 0 differ by any factor
			}
			for _, b := range backends {
				for b.Calls() == 0 {
					_, _ = call(t, cc, grpc.WaitForReady(true))
					time.Sleep(10 * time.Millisecond)
				}
			}
			before := backends[0].Calls() + backends[1].Calls()
			backends[0].SetDelay(2 * time.Second)
			const n = 200
			hedges := metrics.Sum("xdslb.client.hedges")
			for range n {
				if _, err := call(t, cc); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond)
				if s := statusOf(t, cc).Clusters[0].Leaves[0].Priorities[0].Endpoints; s.Ejected > 0 {
					t.Fatalf("%s: an endpoint is ejected: %+v", name, s)
				}
			}
			time.Sleep(10 * time.Second) // until all is reported
			lost := backends[0].Calls() + backends[1].Calls() - before - n
			if got := metrics.Sum("xdslb.client.hedges") - hedges; got != float64(lost) {
				t.Errorf("%s: %v hedges are counted, want %d", name, got, lost)
			}
			if lost == 0 {
				t.Errorf("%s: no attempt was discarded", name)
			}
			counts := control.Loads(target, target)
			want := xdstest.LocalityCounts{Issued: before + n + lost, OK: before + n}
			if got := counts.Total; got != want {
				t.Errorf("%s: %+v is reported, want %+v", name, got, want)
			}
			if name == "least latency" && lost > n*2/5 {
				t.Errorf("%s: %d of %d RPCs went to the slow endpoint first", name, lost, n)
			}
			if s := statusOf(t, cc).Clusters[0].Leaves[0]; s.InFlight != 0 {
				t.Errorf("%s: %d RPCs are in flight in the end", name, s.InFlight)
			}
		})
	}
}
