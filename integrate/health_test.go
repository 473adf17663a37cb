// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"sync/atomic"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/health" // the client's side
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

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
	r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(good, bad, both)})
	r.Endpoints[0].Endpoints[0].LbEndpoints[2].GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{
		Address: xdstest.Endpoints("", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(spare)}).Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress(),
	}}
	set(t, control, r)
	cc := dialConfig(t, integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1, HealthCheckService: "s"})
	for goodWatches.Load() == 0 || badWatches.Load() == 0 || bothWatches.Load() == 0 {
		if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
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
