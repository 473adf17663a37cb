// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	stockxds "google.golang.org/grpc/xds"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestPlacement: of 10,000 keys, grpc-go's own xDS and ours send each to the same
// backend of a ring_hash cluster, before and after one of the backends is removed
// (D3, T-RING-1..3): a fleet can mix the two.
func TestPlacement(t *testing.T) {
	keys := 10_000
	if testing.Short() {
		keys = 500
	}
	const n = 10
	backends := xdstest.NewBackends(t, n, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	serve := func(backends []*xdstest.Backend) {
		t.Helper()
		endpoints := xdstest.BackendEndpoints(backends...)
		for i := range endpoints {
			endpoints[i].Weight = 1 + uint32(endpoints[i].Addr.Port())%3
		}
		r := xdstest.Service("svc", xdstest.Locality{Endpoints: endpoints})
		r.Clusters = []*clusterv3.Cluster{xdstest.Cluster("svc", "svc", testplane.RingHash(1024, 4096))}
		r.Routes = []*routev3.RouteConfiguration{xdstest.RouteConfig("svc", testplane.HashHeader(xdstest.Route("", "svc"), "key"))}
		kit.Must(t, control.Set(r))
	}
	serve(backends)

	dial := func(b resolver.Builder, err error) *grpc.ClientConn {
		t.Helper()
		kit.Must(t, err)
		cc, err := grpc.NewClient("xds:///svc", grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
		kit.Must(t, err)
		t.Cleanup(func() { _ = cc.Close() })
		return cc
	}
	bootstrap := control.Bootstrap("placement")
	stock := dial(stockxds.NewXDSResolverWithConfigForTesting(bootstrap))
	ours := dial(integrate.NewBuilder(integrate.Config{Bootstrap: bootstrap}))

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	place := func(cc *grpc.ClientConn, key int) (string, error) {
		ctx := metadata.AppendToOutgoingContext(ctx, "key", fmt.Sprint("key-", key))
		res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
		return res.GetHostname(), err
	}
	placement := func(cc *grpc.ClientConn) []string {
		t.Helper()
		hosts := make([]string, keys)
		var g errgroup.Group
		const workers = 16
		for w := range workers {
			g.Go(func() (err error) {
				for i := w; i < keys && err == nil; i += workers {
					hosts[i], err = place(cc, i)
				}
				return err
			})
		}
		kit.Must(t, g.Wait())
		return hosts
	}
	compare := func(when string) []string {
		t.Helper()
		want, got := placement(stock), placement(ours)
		differ := 0
		for i := range want {
			if got[i] != want[i] {
				differ++
			}
		}
		if differ > 0 {
			t.Errorf("%s: %d of %d keys are placed otherwise than by grpc-go", when, differ, keys)
		}
		return got
	}

	before := compare("with all backends")
	const gone = 3
	key := slices.Index(before, backends[gone].Addr().String())
	if key < 0 {
		t.Fatalf("backend %d has no key", gone)
	}
	serve(slices.Delete(slices.Clone(backends), gone, gone+1))
	for _, cc := range []*grpc.ClientConn{stock, ours} {
		for host := before[key]; host == before[key]; { // until the client has the update
			var err error
			if host, err = place(cc, key); err != nil {
				t.Fatal(err)
			}
		}
	}
	after := compare("without one backend")
	moved := 0
	for i := range after {
		if before[i] != backends[gone].Addr().String() && after[i] != before[i] {
			moved++
		}
	}
	t.Logf("%d keys, of the other backends' %d moved", keys, moved)
}
