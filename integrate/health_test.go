// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health" // also the client's side
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// healthBackend starts a backend whose health service always reports the same status, and counts
// the watches.
func healthBackend(t *testing.T, status healthpb.HealthCheckResponse_ServingStatus) (b *xdstest.Backend, watches *atomic.Int64) {
	watches = new(atomic.Int64)
	b = xdstest.NewBackends(t, 1, xdstest.BackendOptions{Server: []grpc.ServerOption{
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var req healthpb.HealthCheckRequest
			if err := stream.RecvMsg(&req); err != nil {
				return err
			}
			watches.Add(1)
			if err := stream.SendMsg(&healthpb.HealthCheckResponse{Status: status}); err != nil {
				return err
			}
			<-stream.Context().Done()
			return nil
		}),
	}})[0]
	return b, watches
}

// TestHealthCheck: with a health-checked service, endpoints get RPCs if their backends
// say that it is serving, endpoints with several addresses too (A17, A61). Each
// connection is asked once.
func TestHealthCheck(t *testing.T) {
	good, goodWatches := healthBackend(t, healthpb.HealthCheckResponse_SERVING)
	bad, badWatches := healthBackend(t, healthpb.HealthCheckResponse_NOT_SERVING)
	both, bothWatches := healthBackend(t, healthpb.HealthCheckResponse_NOT_SERVING)
	spare, _ := healthBackend(t, healthpb.HealthCheckResponse_SERVING)
	spare.Stop()
	control := xdstest.New(t, xdstest.Options{})
	r := service(good, bad, both)
	r.Endpoints[0].Endpoints[0].LbEndpoints[2].GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{
		Address: xdstest.Endpoints("", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(spare)}).Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress(),
	}}
	set(t, control, r)
	cc := dialConfig(t, integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1, HealthCheckService: "s"})
	for goodWatches.Load() == 0 || badWatches.Load() == 0 || bothWatches.Load() == 0 {
		succeed(t, cc, grpc.WaitForReady(true))
		if both.Calls() > 0 {
			t.Fatal("an endpoint with several addresses got an RPC before it was found healthy")
		}
	}
	for range 50 {
		if got, err := call(t, cc, grpc.WaitForReady(true)); err != nil || got != good.Addr().String() {
			t.Fatalf("an RPC went to %q: %v", got, err)
		}
	}
	for _, n := range []*atomic.Int64{goodWatches, badWatches, bothWatches} {
		if n.Load() != 1 {
			t.Errorf("a backend was asked for its health by %d streams, want 1", n.Load())
		}
	}
}

// serveHealth answers watches of a backend by a health server. Without one, watches are
// UNIMPLEMENTED.
func serveHealth(h *health.Server) grpc.ServerOption {
	return grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if h == nil {
			return status.Error(codes.Unimplemented, "no health service")
		}
		req := new(healthpb.HealthCheckRequest)
		if err := stream.RecvMsg(req); err != nil {
			return err
		}
		return h.Watch(req, &grpc.GenericServerStream[healthpb.HealthCheckRequest, healthpb.HealthCheckResponse]{ServerStream: stream})
	})
}

// checked sets the health check of a cluster, by the health service.
func checked(c *clusterv3.Cluster, service string) {
	c.HealthChecks = []*corev3.HealthCheck{{HealthChecker: &corev3.HealthCheck_GrpcHealthCheck_{
		GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{ServiceName: service},
	}}}
}

// TestClusterHealthCheck: a cluster's grpc_health_check has endpoints receive RPCs while their health
// service reports SERVING for its service, also if the channel checks another one. Changes of health
// and of the check apply to existing connections.
func TestClusterHealthCheck(t *testing.T) {
	for _, channelService := range []string{"", "other"} {
		inBubble(t, func(t *testing.T, b *bubble) {
			good, flaky := health.NewServer(), health.NewServer()
			good.SetServingStatus("s", healthpb.HealthCheckResponse_SERVING)
			flaky.SetServingStatus("s", healthpb.HealthCheckResponse_NOT_SERVING)
			for _, h := range []*health.Server{good, flaky} {
				h.SetServingStatus("other", healthpb.HealthCheckResponse_NOT_SERVING)
				h.SetServingStatus("all", healthpb.HealthCheckResponse_SERVING)
			}
			var backends []*xdstest.Backend
			for _, h := range []*health.Server{good, flaky, nil} {
				backends = append(backends, xdstest.NewBackends(t, 1, xdstest.BackendOptions{Listen: b.net.Listen, Server: []grpc.ServerOption{serveHealth(h)}})...)
			}
			control := b.control()
			r := service(backends...)
			checked(r.Clusters[0], "s")
			set(t, control, r)
			cfg := b.config(control)
			cfg.HealthCheckService = channelService
			cc := b.dial(cfg)
			want := func(when string, want ...int) {
				t.Helper()
				time.Sleep(time.Second)
				synctest.Wait()
				var got []int
				for range 20 {
					host, err := call(t, cc, grpc.WaitForReady(true))
					kit.Must(t, err)
					i := slices.IndexFunc(backends, func(b *xdstest.Backend) bool { return b.Addr().String() == host })
					if !slices.Contains(got, i) {
						got = append(got, i)
					}
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("channel %q, %s: RPCs reach the backends %v, want %v", channelService, when, got, want)
				}
			}
			succeed(t, cc, grpc.WaitForReady(true)) // the first one connects the channel
			want("first", 0, 2)                     // the last one has no health service
			s, err := integrate.StatusOf(cc)
			if err != nil || s.Clusters[0].Leaves[0].HealthCheck == nil || *s.Clusters[0].Leaves[0].HealthCheck != "s" {
				t.Errorf("the status has the health check %v (%v), want that of s", s.Clusters[0].Leaves[0].HealthCheck, err)
			}
			if x, err := integrate.Explain(t.Context(), cc, "/s/m"); err != nil || !strings.Contains(x.String(), `health check: service "s"`) || !strings.Contains(x.String(), "connected, but its health service") {
				t.Errorf("the explanation does not show the health check (%v):\n%s", err, x)
			}
			flaky.SetServingStatus("s", healthpb.HealthCheckResponse_SERVING)
			want("after a backend has recovered", 0, 1, 2)
			good.SetServingStatus("s", healthpb.HealthCheckResponse_NOT_SERVING)
			want("after a backend has failed", 1, 2)
			checked(r.Clusters[0], "all")
			set(t, control, r)
			want("with another service", 0, 1, 2)
			checked(r.Clusters[0], "other")
			set(t, control, r)
			want("with a service that no backend serves", 2)
			r.Clusters[0].HealthChecks = nil
			set(t, control, r)
			if channelService == "" {
				want("without health check", 0, 1, 2)
			} else {
				want("without health check of the cluster", 2)
			}
			backends[2].Stop() // its watch ends with the connection
			if channelService != "" {
				return
			}
			want("after a backend has stopped", 0, 1)
			checked(r.Clusters[0], "s")
			set(t, control, r)
			want("with the first service again", 1)
		})
	}
}

// keepCalling makes RPCs on several goroutines of a bubble, a millisecond apart, whatever comes
// of them, until the test ends.
func keepCalling(t *testing.T, cc *grpc.ClientConn, workers int) {
	var wg sync.WaitGroup
	var over atomic.Bool
	for range workers {
		wg.Go(func() {
			for !over.Load() {
				_, _ = call(t, cc)
				time.Sleep(time.Millisecond)
			}
		})
	}
	t.Cleanup(func() {
		over.Store(true)
		wg.Wait()
	})
}

// TestOutlierDetection: of five backends, one of which fails all its RPCs and has
// two addresses (A61), that one is ejected within an interval and returns after the
// base time, and no connection is made or closed on the way (A50, T-OD-2).
func TestOutlierDetection(t *testing.T) { inBubble(t, checkOutlierDetection) }

func checkOutlierDetection(t *testing.T, b *bubble) {
	const interval, baseTime = 400 * time.Millisecond, 1200 * time.Millisecond
	var accepted, ended atomic.Int64
	b.net.OnOpen = func(string, string, int) { accepted.Add(1) }
	b.net.OnEnd = func(string, string, time.Time, bool) { ended.Add(1) }
	backends := b.backends(6)
	bad, gone, good := backends[0], backends[1], backends[2:]
	gone.Stop()
	control := b.control()
	r := service(append(good, bad)...)
	r.Endpoints[0].Endpoints[0].LbEndpoints[4].GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{
		Address: xdstest.Endpoints("", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(gone)}).Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress(),
	}}
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, func(c *clusterv3.Cluster) {
		c.OutlierDetection = &clusterv3.OutlierDetection{
			Interval:                       durationpb.New(interval),
			BaseEjectionTime:               durationpb.New(baseTime),
			EnforcingSuccessRate:           wrapperspb.UInt32(0),
			EnforcingFailurePercentage:     wrapperspb.UInt32(100),
			FailurePercentageThreshold:     wrapperspb.UInt32(50),
			FailurePercentageMinimumHosts:  wrapperspb.UInt32(5),
			FailurePercentageRequestVolume: wrapperspb.UInt32(5),
		}
	})}
	set(t, control, r)
	cc := b.dial(b.config(control))
	keepCalling(t, cc, 4)
	kit.WaitFor(t, "RPCs at all backends", func() bool {
		for _, b := range append(good, bad) {
			if b.Calls() == 0 {
				return false
			}
		}
		return true
	})
	was, lost := accepted.Load(), ended.Load()

	bad.Fail(codes.Internal)
	failing := time.Now()
	last, calls := failing, bad.Calls()
	kit.WaitFor(t, "the ejection", func() bool {
		if now := bad.Calls(); now != calls {
			last, calls = time.Now(), now
		}
		return time.Since(last) > baseTime/2
	})
	bad.Fail(codes.OK)
	kit.WaitFor(t, "the return", func() bool { return bad.Calls() > calls })
	took, away := last.Sub(failing), time.Since(last)
	t.Logf("ejected after %v, away for %v", took, away)
	// The interval that was under way need not have enough failures. RPCs and looks at them are a few milliseconds apart.
	const slack = 20 * time.Millisecond
	if took > 2*interval+slack {
		t.Errorf("ejected after %v, want %v at most", took, 2*interval)
	}
	// An ejected endpoint returns with the first interval that ends after its time.
	if away < baseTime-slack || away > baseTime+interval+slack {
		t.Errorf("away for %v, want %v to %v", away, baseTime, baseTime+interval)
	}
	if made, closed := accepted.Load()-was, ended.Load()-lost; made != 0 || closed != 0 {
		t.Errorf("%d connections were made and %d closed since before the ejection", made, closed)
	}
}
