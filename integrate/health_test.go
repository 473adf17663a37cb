// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health" // also the client's side
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

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

// TestHealthCheck: with Config.HealthCheckService, endpoints get RPCs if their backends report SERVING, endpoints with
// several addresses too (A17, A61).
func TestHealthCheck(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var backends []*xdstest.Backend
		for _, status := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
			h := health.NewServer()
			h.SetServingStatus("s", status)
			backends = append(backends, xdstest.NewBackends(t, 1, xdstest.BackendOptions{Listen: b.net.Listen, Server: []grpc.ServerOption{serveHealth(h)}})...)
		}
		control, spare := b.control(), b.backends(1)[0]
		spare.Stop()
		r := service(backends...)
		addAddress(r.Endpoints[0].Endpoints[0].LbEndpoints[2], spare.Addr())
		set(t, control, r)
		cfg := b.config(control)
		cfg.HealthCheckService = "s"
		cc := b.dial(cfg)
		for range 50 {
			if got, err := call(t, cc, grpc.WaitForReady(true)); err != nil || got != backends[0].Addr().String() {
				t.Fatalf("an RPC went to %q (%v), want %s, the only one that is SERVING", got, err, backends[0].Addr())
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
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
