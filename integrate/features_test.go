// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestFeatures changes policies, health checks, outlier detection, retries, time limits, hedging, header
// mutations and endpoints at random under RPCs of all kinds. Once the RPCs have ended, circuit breakers
// and retry budgets count nothing, load reports have each attempt that succeeded, and no goroutine is
// left after the channel is closed, which the bubble checks.
func TestFeatures(t *testing.T) {
	seeds, lasts := 6, 10*time.Second
	if testing.Short() {
		seeds, lasts = 1, 4*time.Second
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) { runFeatures(t, b, uint64(seed), lasts) })
		})
	}
}

// featureServices are the EDS services of the cluster, one at a time.
var featureServices = []string{"one", "two"}

func runFeatures(t *testing.T, b *bubble, seed uint64, lasts time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 1))
	checks := health.NewServer()
	checks.SetServingStatus("s", healthpb.HealthCheckResponse_SERVING)
	control := b.control()
	backends := xdstest.NewBackends(t, 5, xdstest.BackendOptions{Listen: b.net.Listen, Register: func(s *grpc.Server) { healthpb.RegisterHealthServer(s, checks) }})
	resources, _ := randomFeatures(rng, backends)
	set(t, control, resources)
	cfg := b.config(control)
	cfg.Idempotent, cfg.RetireAfter = func(string) bool { return true }, 100*time.Millisecond
	attempts := new(attemptCounter)
	cc := b.dial(cfg, grpc.WithStatsHandler(attempts))

	var calling sync.WaitGroup
	var over atomic.Bool
	var ended [17]atomic.Int64 // RPCs, by status
	for caller := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, caller+10))
		calling.Go(func() {
			for !over.Load() {
				time.Sleep(time.Duration(1 + rng.Int64N(int64(20*time.Millisecond))))
				ended[status.Code(randomRPC(rng, cc))].Add(1)
			}
		})
	}
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		resources, features := randomFeatures(rng, backends)
		t.Logf("%v: %s", time.Until(end), features)
		set(t, control, resources)
		disturb(t, rng, backends[rng.IntN(len(backends))])
		time.Sleep(time.Duration(20+rng.IntN(80)) * time.Millisecond)
	}
	over.Store(true)
	calling.Wait()
	time.Sleep(time.Second)
	for code := range ended {
		if n := ended[code].Load(); n > 0 {
			t.Logf("%v: %d RPCs", codes.Code(code), n)
		}
	}
	if n := ended[codes.OK].Load(); n < 100 {
		t.Errorf("%d RPCs succeed, want at least 100", n)
	}
	counters.Breakers(func(cluster, service string, b *counters.Breaker) {
		if cluster == target && (b.InFlight() != 0 || b.Retries.Load() != 0) {
			t.Errorf("the breaker of service %q counts %d attempts in flight and %d retries after all have ended", service, b.InFlight(), b.Retries.Load())
		}
	})
	if err := cc.Close(); err != nil {
		t.Error(err)
	}
	var reported uint64
	kit.WaitFor(t, "load reports of all attempts that succeeded", func() bool {
		reported = 0
		for _, service := range featureServices {
			counts := control.Loads(target, service)
			reported += counts.Total.OK
		}
		return reported >= attempts.ok.Load()
	})
	if n := attempts.ok.Load(); reported != n {
		t.Errorf("load reports have %d attempts that succeeded, gRPC %d", reported, n)
	}
}

// randomFeatures returns resources with some features, and the names of these.
func randomFeatures(rng *rand.Rand, backends []*xdstest.Backend) (r xdstest.Resources, features string) {
	var names []string
	with := func(p float64, name string) bool {
		if rng.Float64() >= p {
			return false
		}
		names = append(names, name)
		return true
	}
	route := testplane.HashHeader(xdstest.Route("", target), "user")
	if with(.6, "retries") {
		policy := retried(route, 2).GetRoute().RetryPolicy
		policy.RetryOn = "unavailable,deadline-exceeded"
		if with(.5, "per_try_timeout") {
			policy.PerTryTimeout = durationpb.New(10 * time.Millisecond)
			if with(.5, "hedging") {
				route.GetRoute().HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true}
			}
		}
	}
	if with(.5, "header match") {
		absent(route, "nobody")
	}
	if with(.5, "header mutation") {
		route.RequestHeadersToAdd = []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-client", Value: "a"}}}
	}
	var places []xdstest.Locality
	for i, n := range rng.Perm(len(backends))[:1+rng.IntN(len(backends))] {
		e := xdstest.BackendEndpoints(backends[n])
		if rng.IntN(10) == 0 {
			e[0].Health = corev3.HealthStatus_DRAINING
		}
		places = append(places, xdstest.Locality{Place: xdstest.Place{Zone: fmt.Sprint("z", i)}, Priority: uint32(i / 3), Endpoints: e})
	}
	opts := []func(*clusterv3.Cluster){testplane.LoadReports(), testplane.MaxRequests(1000)}
	policies := []struct {
		name   string
		option func(*clusterv3.Cluster)
	}{
		{"round robin", nil},
		{"ring hash", testplane.RingHash(64, 256)},
		{"least request", testplane.LeastRequest(2)},
		{"least latency", testplane.Policies(testplane.TypedStruct("xdslb_least_latency", nil))},
		{"pick_first", testplane.Policies(testplane.TypedStruct("pick_first", nil))},
		{"custom policy", testplane.Policies(testplane.TypedStruct(customPolicy, nil))},
		{"custom policy by locality", testplane.Policies(testplane.WrrLocality(testplane.TypedStruct(customPolicy, nil)))},
	}
	policy := policies[rng.IntN(len(policies))]
	names = append(names, policy.name)
	if policy.option != nil {
		opts = append(opts, policy.option)
	}
	service := featureServices[rng.IntN(len(featureServices))]
	c := xdstest.Cluster(target, service, opts...)
	if with(.4, "health checks") {
		c.HealthChecks = []*corev3.HealthCheck{{HealthChecker: &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{ServiceName: "s"}}}}
	}
	if with(.4, "outlier detection") {
		c.OutlierDetection = &clusterv3.OutlierDetection{
			Consecutive_5Xx: wrapperspb.UInt32(3), Interval: durationpb.New(100 * time.Millisecond), BaseEjectionTime: durationpb.New(100 * time.Millisecond),
		}
	}
	if with(.4, "max_retries") {
		c.CircuitBreakers.Thresholds[0].MaxRetries = wrapperspb.UInt32(5)
	}
	r = xdstest.Service(target)
	r.Routes[0], r.Clusters[0], r.Endpoints = xdstest.RouteConfig(target, route), c, nil
	for _, s := range featureServices {
		r.Endpoints = append(r.Endpoints, xdstest.Endpoints(s, places...))
	}
	return r, strings.Join(append(names, "service "+service), ", ")
}

// disturb restarts a backend, slows it down, has it fail RPCs, or ends such a disturbance.
func disturb(t *testing.T, rng *rand.Rand, b *xdstest.Backend) {
	switch rng.IntN(8) {
	case 0:
		b.Fail(codes.Unavailable)
	case 1:
		b.SetDelay(time.Duration(rng.IntN(30)) * time.Millisecond)
	case 2:
		b.Stop()
		if err := b.Start(); err != nil {
			t.Error(err)
		}
	default:
		b.Fail(codes.OK)
		b.SetDelay(0)
	}
}

// randomRPC makes an RPC: a unary one, a stream that is read to its end, or one that is abandoned.
func randomRPC(rng *rand.Rand, cc *grpc.ClientConn) error {
	limit := time.Duration(1+rng.IntN(60)) * time.Millisecond
	if rng.IntN(4) == 0 {
		limit = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	wait, client := grpc.WaitForReady(rng.IntN(2) == 0), testgrpc.NewTestServiceClient(cc)
	kind := rng.IntN(4)
	if kind < 2 {
		_, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{}, wait)
		return err
	}
	s, err := client.FullDuplexCall(ctx, wait)
	if err != nil || kind == 2 && rng.IntN(2) == 0 {
		return err // abandoned at once
	}
	for range 1 + rng.IntN(3) {
		_ = s.Send(&testgrpc.StreamingOutputCallRequest{})
	}
	if kind == 2 {
		_, _ = s.Header()
		_, _ = s.Recv()
		return nil // abandoned after the headers
	}
	_ = s.CloseSend()
	for err == nil {
		_, err = s.Recv()
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// attemptCounter counts the attempts that succeed, as gRPC sees them.
type attemptCounter struct{ ok atomic.Uint64 }

// attemptSeen is set in the context of an attempt that has got headers or trailers.
type attemptSeen struct{ response atomic.Bool }

type attemptSeenKey struct{}

func (*attemptCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, attemptSeenKey{}, new(attemptSeen))
}

func (c *attemptCounter) HandleRPC(ctx context.Context, s stats.RPCStats) {
	seen := ctx.Value(attemptSeenKey{}).(*attemptSeen)
	switch s := s.(type) {
	case *stats.InHeader, *stats.InTrailer:
		seen.response.Store(true)
	case *stats.End:
		if s.Error == nil && seen.response.Load() {
			c.ok.Add(1)
		}
	}
}

func (*attemptCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*attemptCounter) HandleConn(context.Context, stats.ConnStats)                       {}
