// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
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
	{"WithResolvers", false, func(t testing.TB, bootstrap []byte) *grpc.ClientConn {
		b, err := integrate.NewBuilder(integrate.Config{Bootstrap: bootstrap, Linger: -1})
		kit.Must(t, err)
		cc, err := grpc.NewClient("xds:///"+target, grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
		kit.Must(t, err)
		t.Cleanup(func() { _ = cc.Close() })
		return cc
	}},
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

// rpcs makes n RPCs, some at a time, and calls back with each one's outcome and
// how long it took. The first waits until the channel is ready. Each has a minute of
// its own: how long all take is up to the machine.
func rpcs(t testing.TB, cc *grpc.ClientConn, n int, outcome func(err error, took time.Duration)) {
	t.Helper()
	client := testgrpc.NewTestServiceClient(cc)
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				begin := time.Now()
				_, err := client.EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true))
				outcome(err, time.Since(begin))
				cancel()
			}
		})
	}
	wg.Wait()
}

// near reports whether k of n is likely for a probability of p: within seven standard deviations or
// so, also where these are not a normal distribution's. By Chernoff's bound it is not in one of
// 10¹¹ cases.
func near(k, n uint64, p float64) bool {
	apart := func(a, b float64) float64 {
		if a == 0 {
			return 0
		}
		return a * math.Log(a/b)
	}
	share := float64(k) / float64(n)
	return float64(n)*(apart(share, p)+apart(1-share, 1-p)) < 26
}

// TestSplit: of 10⁵ RPCs each cluster gets its weight's share (A28, T-RC-6).
func TestSplit(t *testing.T) {
	n := 100_000
	if raceEnabled {
		n = 20_000
	}
	if testing.Short() {
		n = 2000
	}
	bothWays(t, func(t *testing.T, _ bool, open func([]byte) *grpc.ClientConn) {
		backends, control := start(t, 3)
		set(t, control, clusters(backends, nil, testplane.WeightedRoute("",
			testplane.Weighted{Cluster: "a", Weight: 90}, testplane.Weighted{Cluster: "b", Weight: 9},
			testplane.Weighted{Cluster: "never", Weight: 0}, testplane.Weighted{Cluster: "c", Weight: 1})))
		cc := open(control.Bootstrap(t.Name()))
		rpcs(t, cc, n, func(err error, _ time.Duration) {
			if err != nil {
				t.Error(err)
			}
		})
		for i, p := range []float64{0.9, 0.09, 0.01} {
			if got := backends[i].Calls(); !near(got, uint64(n), p) {
				t.Errorf("cluster %d got %d of %d RPCs, want %v %%", i, got, n, 100*p)
			}
		}
	})
}

// header adds a condition to a route.
func header(r *routev3.Route, name, value string) *routev3.Route {
	r.Match.Headers = append(r.Match.Headers, &routev3.HeaderMatcher{
		Name:                 name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_ExactMatch{ExactMatch: value},
	})
	return r
}

// TestCanary: RPCs with a header, however its name is written in the route, go
// to the canary; others do not (A28, T-RC-3).
func TestCanary(t *testing.T) {
	bothWays(t, func(t *testing.T, _ bool, open func([]byte) *grpc.ClientConn) {
		backends, control := start(t, 2)
		set(t, control, clusters(backends, nil, header(xdstest.Route("", "b"), "X-Canary", "yes"), xdstest.Route("", "a")))
		cc := open(control.Bootstrap(t.Name()))
		ctx := minute(t)
		for _, tt := range []struct {
			value string
			want  int
		}{{"yes", 1}, {"no", 0}, {"", 0}, {"yes", 1}} {
			ctx := ctx
			if tt.value != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "x-canary", tt.value)
			}
			res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{})
			if want := backends[tt.want].Addr().String(); err != nil || res.GetHostname() != want {
				t.Errorf("x-canary %q: %q, %v; want %q", tt.value, res.GetHostname(), err, want)
			}
		}
	})
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

// TestRouteRetry: an RPC that fails UNAVAILABLE is made again, and succeeds
// (A44); with interceptors also where a service config cannot say so.
func TestRouteRetry(t *testing.T) {
	bothWays(t, func(t *testing.T, interceptors bool, open func([]byte) *grpc.ClientConn) {
		for _, byHeader := range []bool{false, true} {
			backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
			backends[1].Fail(codes.Unavailable)
			control := xdstest.New(t, xdstest.Options{})
			route := retrying(xdstest.Route("", target))
			if byHeader {
				route = header(route, "retry", "yes")
			}
			r := service(backends...)
			r.Routes[0] = xdstest.RouteConfig(target, route)
			set(t, control, r)
			client := testgrpc.NewTestServiceClient(open(control.Bootstrap(t.Name())))
			ctx := minute(t)
			ctx = metadata.AppendToOutgoingContext(ctx, "retry", "yes")
			kit.WaitFor(t, "RPCs at both backends", func() bool { // until both are connected
				_, _ = client.EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true))
				return backends[0].Calls() > 0 && backends[1].Calls() > 0
			})
			failed := 0
			for range 40 {
				if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
					failed++
				}
			}
			if want := interceptors || !byHeader; (failed == 0) != want {
				t.Errorf("by header %v: %d of 40 RPCs failed, want retries: %v", byHeader, failed, want)
			}
		}
	})
}

// TestFaultPercentages: the configured percentage of the RPCs is aborted, or delayed, according to
// the listener's filter, and none without interceptors (A33).
func TestFaultPercentages(t *testing.T) {
	const delay = time.Second
	delaying := &faultv3.HTTPFault{Delay: &faultcommonv3.FaultDelay{
		FaultDelaySecifier: &faultcommonv3.FaultDelay_FixedDelay{FixedDelay: durationpb.New(delay)},
		Percentage:         &typev3.FractionalPercent{Numerator: 10},
	}}
	tests := []struct {
		name    string
		filter  *faultv3.HTTPFault
		n       int
		p       float64
		suffers func(err error, took time.Duration) bool
	}{
		{"abort", abort(codes.ResourceExhausted, 300_000), 4000, 0.3, func(err error, _ time.Duration) bool {
			return status.Code(err) == codes.ResourceExhausted
		}},
		{"delay", delaying, 400, 0.1, func(_ error, took time.Duration) bool { return took >= delay }},
	}
	inBubble(t, func(t *testing.T, b *bubble) {
		for _, tt := range tests {
			control := b.control()
			set(t, control, clusters(b.backends(1), []*hcmv3.HttpFilter{httpFilter(t, "fault", tt.filter)}, xdstest.Route("", "a")))
			for name, cc := range map[string]*grpc.ClientConn{"DialOptions": b.dial(b.config(control)), "WithResolvers": b.dialBare(b.config(control))} {
				var suffered atomic.Uint64
				rpcs(t, cc, tt.n, func(err error, took time.Duration) {
					if tt.suffers(err, took) {
						suffered.Add(1)
					}
				})
				p := tt.p
				if name == "WithResolvers" {
					p = 0
				}
				if got := suffered.Load(); !near(got, uint64(tt.n), p) {
					t.Errorf("%s, %s: %d of %d RPCs suffer, want %v %%", tt.name, name, got, tt.n, 100*p)
				}
			}
		}
	})
}

// TestTrafficShift shifts all traffic back and forth between two subsets, 16
// times, under load: no RPC fails, also none that an interceptor had sent to the
// subset that is left (A31, T-WATCH-1, T-WATCH-6).
func TestTrafficShift(t *testing.T) {
	bothWays(t, func(t *testing.T, _ bool, open func([]byte) *grpc.ClientConn) {
		backends, control := start(t, 2)
		route := func(to string) []*routev3.Route {
			return []*routev3.Route{header(retrying(xdstest.Route("", to)), "never", "sent"), limited(xdstest.Route("", to), 30*time.Second)}
		}
		shift := func(i int) {
			set(t, control, clusters(backends, nil, route([]string{"a", "b"}[i%2])...))
		}
		shift(0)
		client := testgrpc.NewTestServiceClient(open(control.Bootstrap(t.Name())))
		var calls, stop atomic.Int64
		failures := make(chan error, 100)
		done := make(chan struct{})
		const workers, shifts, atLeast = 8, 16, 2000
		for range workers {
			go func() {
				defer func() { done <- struct{}{} }()
				for stop.Load() == 0 {
					if _, err := client.EmptyCall(t.Context(), &testgrpc.Empty{}); err != nil {
						select {
						case failures <- err:
						default:
						}
					}
					calls.Add(1)
				}
			}()
		}
		for i := 1; i <= shifts; i++ {
			there, before := backends[i%2], backends[i%2].Calls()
			shift(i)
			kit.WaitFor(t, "RPCs at the other backend", func() bool { return there.Calls() > before && calls.Load() >= int64(i*atLeast/shifts) })
		}
		stop.Store(1)
		for range workers {
			<-done
		}
		close(failures)
		for err := range failures {
			t.Errorf("an RPC failed: %v", err)
		}
		t.Logf("%d RPCs over %d shifts", calls.Load(), shifts)
	})
}
