// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
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
			backends, control := start(t, 1)
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
				succeed(t, cc, grpc.WaitForReady(true))
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

// TestRetryThrottling: retries of interceptors are throttled as gRPC throttles its own (A6):
// the same RPCs take the same attempts, unary or not, through an outage and after it.
func TestRetryThrottling(t *testing.T) {
	attempts := map[bool][]uint64{}
	metrics := &kit.Recorder{}
	for _, byHeader := range []bool{false, true} {
		route := retried(xdstest.Route("", "a"), 2)
		if byHeader {
			route = absent(route, "nobody")
		}
		backends, control := start(t, 1)
		set(t, control, clusters(backends, nil, route))
		cfg := integrate.Config{Bootstrap: control.Bootstrap(t.Name()), Linger: -1, RetryThrottling: integrate.RetryThrottling{MaxTokens: 10, TokenRatio: 0.5}}
		cc, err := cfg.NewClient("xds:///"+target, grpc.WithStatsHandler(metrics), grpc.WithTransportCredentials(insecure.NewCredentials()))
		kit.Must(t, err)
		t.Cleanup(func() { _ = cc.Close() })
		for i, code := range []codes.Code{codes.OK, codes.Unavailable, codes.Unavailable, codes.Unavailable, codes.OK, codes.Unavailable, codes.OK, codes.Unavailable} {
			backends[0].Fail(code)
			for range 6 {
				before := backends[0].Calls()
				if i%2 == 0 || code == codes.OK {
					_, _ = call(t, cc, grpc.WaitForReady(true))
				} else {
					stream(t, cc)
				}
				attempts[byHeader] = append(attempts[byHeader], backends[0].Calls()-before)
			}
		}
	}
	if n := metrics.Sum("xdslb.client.retry_rejections", "throttle"); n != float64(unmade(attempts[true])) {
		t.Errorf("%v retries are counted as refused, want %d, of %v", n, unmade(attempts[true]), attempts[true])
	}
	if !slices.Equal(attempts[true], attempts[false]) || slices.Max(attempts[true]) != 3 || !slices.Contains(attempts[true][6:24], 1) {
		t.Errorf("attempts at RPCs:\nby gRPC        %v\nby interceptor %v", attempts[false], attempts[true])
	}
}

// unmade returns how many RPCs of the phases that fail, of six RPCs each, had fewer attempts than
// their route allows: they were throttled.
func unmade(attempts []uint64) (n int64) {
	for i, made := range attempts {
		if phase := i / 6; phase != 0 && phase != 4 && phase != 6 && made < 3 {
			n++
		}
	}
	return n
}

// TestRetryThrottlingRefused: a setting that gRPC would not accept is an error.
func TestRetryThrottlingRefused(t *testing.T) {
	for _, bad := range []integrate.RetryThrottling{{MaxTokens: 10}, {TokenRatio: 1}, {MaxTokens: 1001, TokenRatio: 1}, {MaxTokens: -1, TokenRatio: 1}, {MaxTokens: 1, TokenRatio: 1e-4}} {
		if _, err := integrate.NewBuilder(integrate.Config{Bootstrap: []byte("{}"), RetryThrottling: bad}); err == nil {
			t.Errorf("%+v is accepted", bad)
		} else {
			t.Log(err)
		}
	}
}

// A queue is a server that does one RPC after the other, including RPCs whose client does not wait
// any more.
type queue struct {
	mu   sync.Mutex
	free time.Time
}

// serve takes a fixed time of the server for each RPC.
func (q *queue) serve(need time.Duration) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		q.mu.Lock()
		now := time.Now()
		if q.free.Before(now) {
			q.free = now
		}
		q.free = q.free.Add(need)
		wait := q.free.Sub(now)
		q.mu.Unlock()
		time.Sleep(wait) // of the bubble
		return handler(ctx, req)
	}
}

// An overload is the result of one.
type overload struct {
	goodput  float64       // RPCs that succeed while it lasts, as a share of the servers' capacity
	recovery time.Duration // from its end to that of the last RPC which fails
}

const (
	overloadCapacity = 60 // RPCs in a second
	overloadDeadline = 500 * time.Millisecond
)

// runOverload sends half of the capacity of two servers, then twice their capacity for 10 s, and
// half again.
func runOverload(t *testing.T, change func(*xdstest.Resources)) (out overload) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var backends []*xdstest.Backend
		for range 2 {
			backends = append(backends, xdstest.NewBackends(t, 1, xdstest.BackendOptions{Listen: b.net.Listen, Server: []grpc.ServerOption{
				grpc.UnaryInterceptor(new(queue).serve(2 * time.Second / overloadCapacity)),
			}})...)
		}
		control := b.control()
		r := service(backends...)
		change(&r)
		set(t, control, r)
		cc := b.dial(b.config(control))
		client := testgrpc.NewTestServiceClient(cc)
		if _, err := client.EmptyCall(t.Context(), &testgrpc.Empty{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		var calling sync.WaitGroup
		var good, lastFailure atomic.Int64
		begin := time.Now()
		const overloaded, over, end = 5 * time.Second, 15 * time.Second, 22 * time.Second
		for at := time.Duration(0); at < end; at = time.Since(begin) {
			rate := .5 * overloadCapacity
			if at >= overloaded && at < over {
				rate = 2 * overloadCapacity
			}
			calling.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), overloadDeadline)
				defer cancel()
				_, err := client.EmptyCall(ctx, &testgrpc.Empty{})
				switch ended := time.Since(begin); {
				case err != nil && ended >= over:
					lastFailure.Store(int64(ended - over))
				case err == nil && ended >= overloaded && ended < over:
					good.Add(1)
				}
			})
			time.Sleep(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		}
		calling.Wait()
		out = overload{float64(good.Load()) / (overloadCapacity * (over - overloaded).Seconds()), time.Duration(lastFailure.Load())}
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // for RPCs that servers still have
	})
	return out
}

// TestOverload: if servers get twice the load they can handle and continue with RPCs whose deadline has
// passed, max_requests keeps at least 90 % of the RPCs succeeding that the servers can handle, and no RPC
// fails later than 5 s after the overload.
func TestOverload(t *testing.T) {
	limit := func(r *xdstest.Resources) {
		inFlight := overloadCapacity * overloadDeadline.Seconds() * .7
		testplane.MaxRequests(uint32(inFlight))(r.Clusters[0])
	}
	for _, tt := range []struct {
		name   string
		change func(*xdstest.Resources)
		keeps  bool
	}{
		{"no limit", func(*xdstest.Resources) {}, false},
		{"limit", limit, true},
	} {
		if testing.Short() && !tt.keeps {
			continue
		}
		got := runOverload(t, tt.change)
		t.Logf("%s: goodput %.2f of the capacity, recovery after %v", tt.name, got.goodput, got.recovery)
		if keeps := got.goodput >= .9 && got.recovery <= 5*time.Second; keeps != tt.keeps {
			t.Errorf("%s: goodput is %.2f of the capacity, and recovery takes %v; at least 0.9 and at most 5 s: want %v", tt.name, got.goodput, got.recovery, tt.keeps)
		}
	}
}
