// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/ringhash"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// withPolicy serves four backends under a policy, routed by a header's hash.
func withPolicy(t *testing.T, opt xdstest.ClusterOption) (*grpc.ClientConn, []*xdstest.Backend) {
	backends := xdstest.NewBackends(t, 4, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, opt)}
	r.Routes = []*routev3.RouteConfiguration{xdstest.RouteConfig(target, xdstest.HashHeader(xdstest.Route("", target), "session"))}
	set(t, control, r)
	cc := dial(t, control.Bootstrap("n"))
	for _, b := range backends { // until all are connected
		for i := 0; b.Calls() == 0; i++ {
			ctx := metadata.AppendToOutgoingContext(context.Background(), "session", fmt.Sprint(i))
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true))
			cancel()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return cc, backends
}

// TestRingHash: RPCs go where the XXH64 ring of Envoy and grpc-go puts the hash
// of their header (A42, T-RING-1..3, T-RING-6).
func TestRingHash(t *testing.T) {
	cc, backends := withPolicy(t, xdstest.RingHash(1024, 4096))
	var hosts []ringhash.Host
	for _, b := range backends {
		hosts = append(hosts, ringhash.Host{Key: b.Addr().String(), Weight: 1})
	}
	ring, err := ringhash.New(hosts, 1024, 4096, ringhash.XXH64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		session := fmt.Sprintf("user-%d", i)
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "session", session), 10*time.Second)
		res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if want := hosts[ring.Pick(ringhash.XXH64.Sum(session))].Key; res.GetHostname() != want {
			t.Errorf("session %q went to %s, want %s", session, res.GetHostname(), want)
		}
	}
}

// TestLeastRequest: a backend that is slow gets few of the RPCs (A48).
func TestLeastRequest(t *testing.T) {
	cc, backends := withPolicy(t, xdstest.LeastRequest(2))
	backends[0].SetDelay(200 * time.Millisecond)
	before := backends[0].Calls()
	done := make(chan error)
	const workers, each = 8, 100
	for range workers {
		go func() {
			for range each {
				if _, err := call(t, cc); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if n := backends[0].Calls() - before; n > workers*each/8 {
		t.Errorf("the slow one of four backends got %d of %d RPCs, want far less than its even share", n, workers*each)
	}
}
