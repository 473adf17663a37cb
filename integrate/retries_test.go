// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
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
				backends, control := start(t, 3)
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
			r := service(backends...)
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

// TestHedgedLosers: attempts that are canceled because another one was faster are reported as
// issued, and neither as successes nor as failures; no endpoint is ejected for them, and least
// latency avoids the slow endpoint all the same. That holds for every picker.
func TestHedgedLosers(t *testing.T) {
	for name, policy := range map[string][]testplane.ClusterOption{
		"ROUND_ROBIN":   nil,
		"least latency": {testplane.Policies(testplane.TypedStruct("xdslb_least_latency", nil))},
		"custom":        {testplane.Policies(testplane.WrrLocality(testplane.TypedStruct(customPolicy, nil)))},
	} {
		inBubble(t, func(t *testing.T, b *bubble) {
			backends, control := b.backends(2), b.control()
			r := service(backends...)
			r.Routes[0] = xdstest.RouteConfig(target, hedged(xdstest.Route("", target), 100*time.Millisecond))
			r.Clusters[0] = xdstest.Cluster(target, target, append(policy, testplane.LoadReports())...)
			r.Clusters[0].OutlierDetection = &clusterv3.OutlierDetection{
				Interval: durationpb.New(time.Second), MaxEjectionPercent: wrapperspb.UInt32(100),
				EnforcingFailurePercentage: wrapperspb.UInt32(100), FailurePercentageThreshold: wrapperspb.UInt32(1),
				FailurePercentageMinimumHosts: wrapperspb.UInt32(1), FailurePercentageRequestVolume: wrapperspb.UInt32(1),
			}
			set(t, control, r)
			metrics := &kit.Recorder{}
			cfg := b.config(control)
			cfg.Idempotent = func(string) bool { return true }
			t.Cleanup(func() { time.Sleep(time.Minute) }) // for RPCs that the backend still has when the channel is closed
			cc := b.dial(cfg, grpc.WithStatsHandler(metrics))
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
				succeed(t, cc)
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

// The tests of this file are about RPCs that are in an interceptor when the channel becomes
// idle: gRPC does not count them then. The channel has another resolver and LB policy for
// the rest of the RPC.

const shortIdle = 60 * time.Millisecond

func (b *bubble) dialIdle(cfg integrate.Config) *grpc.ClientConn {
	b.t.Helper()
	cc, err := cfg.NewClient("xds:///"+target, append(b.dialer(), grpc.WithIdleTimeout(shortIdle))...)
	return b.closing(cc, err)
}

// slowlyRetried is a route whose retries are the interceptors', with a backoff of more than
// shortIdle.
func slowlyRetried() *routev3.Route {
	r := retried(absent(xdstest.Route("", target), "nobody"), 2)
	r.GetRoute().RetryPolicy.RetryBackOff.BaseInterval = durationpb.New(4 * shortIdle)
	return r
}

// failingOnce returns backends whose next unary RPC fails, whichever gets it, if fail is set.
func (b *bubble) failingOnce(n int) (backends []*xdstest.Backend, fail *atomic.Bool) {
	fail = new(atomic.Bool)
	intercept := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		res, err := h(ctx, req)
		if fail.Swap(false) {
			return nil, status.Error(codes.Unavailable, "once")
		}
		return res, err
	}
	return xdstest.NewBackends(b.t, n, xdstest.BackendOptions{Listen: b.net.Listen, Server: []grpc.ServerOption{grpc.UnaryInterceptor(intercept)}}), fail
}

// TestSessionRetryAfterIdle: a retry of an RPC of a session goes to the session's endpoint
// (A55, A31).
func TestSessionRetryAfterIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, fail := b.failingOnce(8)
		control := b.control()
		r := service(backends...)
		r.Routes[0] = xdstest.RouteConfig(target, slowlyRetried())
		r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "session", sticky(t, "")))
		set(t, control, r)
		cc := b.dialIdle(b.config(control))
		host, cookie := inSession(t, cc, "")
		for range 6 {
			fail.Store(true)
			if got, next := inSession(t, cc, cookie); got != host || next != "" || fail.Load() {
				t.Errorf("an RPC of the session is answered by %s with cookie %q, want %s and no new cookie", got, next, host)
			}
		}
	})
}

// TestFaultDelayBeforeRetries: an RPC that a fault delays is retried by the policy of its route.
func TestFaultDelayBeforeRetries(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, control := b.backends(1), b.control()
		r := service(backends...)
		r.Routes[0] = xdstest.RouteConfig(target, retried(absent(xdstest.Route("", target), "nobody"), 2))
		r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "fault", &faultv3.HTTPFault{Delay: &faultcommonv3.FaultDelay{
			FaultDelaySecifier: &faultcommonv3.FaultDelay_FixedDelay{FixedDelay: durationpb.New(4 * shortIdle)},
			Percentage:         &typev3.FractionalPercent{Numerator: 100},
		}}))
		set(t, control, r)
		cc := b.dialIdle(b.config(control))
		succeed(t, cc, grpc.WaitForReady(true))
		backends[0].Fail(codes.Unavailable)
		before := backends[0].Calls()
		_, err := call(t, cc)
		if n := backends[0].Calls() - before; n != 3 || status.Code(err) != codes.Unavailable {
			t.Errorf("%d attempts and %v, want 3 and UNAVAILABLE", n, err)
		}
	})
}

// TestFirstRPCAcrossIdle: an RPC that waits for the first configuration gets it, though the
// channel becomes idle every few milliseconds and the client lingers for nothing.
func TestFirstRPCAcrossIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, control := b.backends(1), b.control()
		set(t, control, service(backends...))
		cfg, dialer := b.config(control), b.net.Dialer("control")
		cfg.ControlPlaneDialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			select {
			case <-time.After(5 * shortIdle):
				return dialer(ctx, addr)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})}
		begin := time.Now()
		_, err := call(t, b.dialIdle(cfg))
		if took := time.Since(begin); err != nil || took > 7*shortIdle {
			t.Errorf("the RPC ends after %v with %v, want success after %v", took, err, 5*shortIdle)
		}
	})
}
