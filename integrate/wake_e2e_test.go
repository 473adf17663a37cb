// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// slowBuilder returns from Build only once the channel's first configuration is in force. gRPC
// calls ExitIdle after that, as it does now and then anyway.
type slowBuilder struct {
	resolver.Builder
	inForce func()
}

func (b slowBuilder) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	r, err := b.Builder.Build(target, cc, opts)
	b.inForce()
	return r, err
}

// dialSlowly returns a function that makes a channel to the four backends of two ring_hash
// clusters, by a slowBuilder.
func dialSlowly(t *testing.T) func() *grpc.ClientConn {
	backends := xdstest.NewBackends(t, 4, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, testplane.RingHash(64, 64)), xdstest.Cluster("other", target, testplane.RingHash(64, 64))}
	r.Routes = []*routev3.RouteConfiguration{xdstest.RouteConfig(target, xdstest.Route("/other/", "other"), xdstest.Route("", target))}
	set(t, control, r)
	builder, err := integrate.NewBuilder(integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1})
	kit.Must(t, err)
	return func() (cc *grpc.ClientConn) {
		slow := slowBuilder{builder, func() {
			for s := cc.GetState(); s != connectivity.Idle && cc.WaitForStateChange(t.Context(), s); s = cc.GetState() {
			}
		}}
		cc, err = grpc.NewClient("xds:///"+target, grpc.WithResolvers(slow), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithChainUnaryInterceptor(integrate.UnaryInterceptor), grpc.WithChainStreamInterceptor(integrate.StreamInterceptor))
		kit.Must(t, err)
		t.Cleanup(func() { _ = cc.Close() })
		return cc
	}
}

// awake is how many endpoints of the channel are not IDLE. Whatever gRPC had to tell the
// balancer before an RPC that has ended is seen.
func awake(t *testing.T, cc *grpc.ClientConn) (n int) {
	t.Helper()
	s, err := integrate.StatusOf(cc)
	if err != nil || len(s.Clusters) != 2 {
		t.Fatalf("StatusOf() = %+v, %v", s, err)
	}
	for _, c := range s.Clusters {
		count := c.Leaves[0].Priorities[0].Endpoints
		n += count.Total - count.Idle
	}
	return n
}

// TestFirstRPCConnectsOne (A42): the first RPC of a channel connects the endpoint of its hash
// and no other, though the interceptor has woken the channel for it, also if gRPC passes that
// on when there is a configuration already.
func TestFirstRPCConnectsOne(t *testing.T) {
	dial := dialSlowly(t)
	for hash := range uint64(8) { // most lead past the first endpoint
		cc := dial()
		ctx := integrate.WithRequestHash(t.Context(), hash<<61)
		if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
			t.Fatal(err)
		}
		if n := awake(t, cc); n != 1 {
			t.Fatalf("the first RPC of channel %d connected %d endpoints, want 1", hash, n)
		}
	}
}

// TestWaitReadyConnectsOne: WaitReady connects one endpoint of a cluster that connects on
// demand and that RPCs may go to, also if the channel had to be woken; and no more of them
// later.
func TestWaitReadyConnectsOne(t *testing.T) {
	cc := dialSlowly(t)()
	for range 3 {
		kit.Must(t, integrate.WaitReady(t.Context(), cc, "/s/m"))
		if n := awake(t, cc); n != 1 {
			t.Fatalf("WaitReady connected %d endpoints, want 1", n)
		}
	}
}

// TestConnectConnectsEach: the user's Connect has each cluster connected, and is not taken for
// an RPC's, also after one has woken the channel.
func TestConnectConnectsEach(t *testing.T) {
	for _, before := range []bool{true, false} {
		cc := dialSlowly(t)()
		if before {
			kit.Must(t, integrate.WaitReady(t.Context(), cc, "/s/m"))
		}
		cc.Connect()
		kit.Must(t, integrate.WaitReady(t.Context(), cc, "/other/m"))
		if n := awake(t, cc); n != 2 {
			t.Errorf("RPC before %v: Connect connected %d endpoints, want 2", before, n)
		}
	}
}
