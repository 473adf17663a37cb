// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const emptyCall = "/grpc.testing.TestService/EmptyCall"

// TestWaitReadySaysWhatIsMissing: when its context ends, the error of WaitReady names the missing
// resource, route or endpoint.
func TestWaitReadySaysWhatIsMissing(t *testing.T) {
	tests := []struct {
		name   string
		change func(r *xdstest.Resources)
		want   []string
	}{
		{"listener", func(r *xdstest.Resources) { r.Listeners = nil }, []string{`waiting for Listener resource "` + target}},
		{"cluster", func(r *xdstest.Resources) { r.Clusters = nil }, []string{`waiting for Cluster resource "` + target}},
		{"virtual host", func(r *xdstest.Resources) { r.Routes[0].VirtualHosts = nil }, []string{"has no virtual host"}},
		{"route", func(r *xdstest.Resources) { r.Routes[0] = xdstest.RouteConfig(target, xdstest.Route("/x", target)) }, []string{"no matching route", target}},
		{"endpoint", func(r *xdstest.Resources) { r.Endpoints[0] = xdstest.Endpoints(target) }, []string{`cluster "` + target, "no targets to pick from; EDS resource \"" + target + "\" was sent without endpoints"}},
		{"connection", func(*xdstest.Resources) {}, []string{`cluster "` + target, "no endpoint of priority 0 is reachable", nobody.Addr.String()}},
	}
	for _, tt := range tests {
		control := xdstest.New(t, xdstest.Options{})
		r := xdstest.Service(target, xdstest.Locality{Endpoints: []xdstest.Endpoint{nobody}})
		tt.change(&r)
		set(t, control, r)
		cc := dial(t, control.Bootstrap("node-7"))
		var err error
		says := func() bool { // a moment later, on a machine that is busy
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err = integrate.WaitReady(ctx, cc, emptyCall)
			return errors.Is(err, context.DeadlineExceeded) && !slices.ContainsFunc(append(tt.want, "node-7", emptyCall), func(want string) bool {
				return !strings.Contains(err.Error(), want)
			})
		}
		for begin := time.Now(); !says(); {
			if time.Since(begin) > time.Minute {
				t.Fatalf("%s: %v, want %q, the node and the method in it", tt.name, err, tt.want)
			}
		}
	}
}

// TestWaitReady: WaitReady returns once nothing is missing any more, be that the first resources, a
// route or a backend, and RPCs are sent then. It matches the headers of its context, and waits for
// all clusters of a route. It is not counted as an RPC.
func TestWaitReady(t *testing.T) {
	for _, policy := range []testplane.ClusterOption{func(*clusterv3.Cluster) {}, testplane.RingHash(8, 8)} {
		backends, control := start(t, 3)
		backends[0].Stop()
		cc := dial(t, control.Bootstrap("n"))
		ready := make(chan error, 1)
		start := func(ctx context.Context) { go func() { ready <- integrate.WaitReady(ctx, cc, emptyCall) }() }
		blocked := func(why string) {
			t.Helper()
			select {
			case err := <-ready:
				t.Fatalf("%s: WaitReady returned %v", why, err)
			case <-time.After(100 * time.Millisecond):
			}
		}
		blue := metadata.AppendToOutgoingContext(t.Context(), "x-tenant", "blue")
		start(blue)
		blocked("without resources")

		r := clusters(backends, nil, header(xdstest.Route("", "b"), "x-tenant", "red"))
		for i := range r.Clusters {
			policy(r.Clusters[i])
		}
		set(t, control, r)
		blocked("without a route for the header")
		r.Routes[0] = xdstest.RouteConfig(target, header(xdstest.Route("", "b"), "x-tenant", "red"), testplane.WeightedRoute("", testplane.Weighted{Cluster: "a", Weight: 1}, testplane.Weighted{Cluster: "c", Weight: 1}))
		set(t, control, r)
		blocked("without one of two clusters")
		kit.Must(t, backends[0].Start())
		if err := <-ready; err != nil {
			t.Error(err)
		}
		red := metadata.AppendToOutgoingContext(t.Context(), "x-tenant", "red")
		if err := integrate.WaitReady(red, cc, emptyCall); err != nil {
			t.Error(err)
		}
		for i, b := range backends {
			if b.Calls() != 0 {
				t.Errorf("backend %d was called", i)
			}
		}
		if _, err := call(t, cc); err != nil {
			t.Errorf("an RPC of a channel that is ready: %v", err)
		}
	}
}

// TestWaitReadyOfOthers checks that WaitReady waits for the state READY of a channel with the
// resolver of another package.
func TestWaitReadyOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backend := b.backends(1)[0]
		backend.Stop()
		cc := b.closing(grpc.NewClient("passthrough:///"+backend.Addr().String(), b.dialer()...))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := integrate.WaitReady(ctx, cc, emptyCall); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "passthrough:///") {
			t.Errorf("without a backend: %v, want the deadline and the target", err)
		}
		kit.Must(t, backend.Start())
		if err := integrate.WaitReady(t.Context(), cc, emptyCall); err != nil || cc.GetState() != connectivity.Ready {
			t.Errorf("with a backend: %v, and the channel is %v", err, cc.GetState())
		}
	})
}

// TestWaitReadyOfClosed checks that WaitReady fails for a channel that is closed, also while it
// waits.
func TestWaitReadyOfClosed(t *testing.T) {
	cc := dial(t, xdstest.New(t, xdstest.Options{}).Bootstrap("n"))
	ended := make(chan error)
	go func() { ended <- integrate.WaitReady(t.Context(), cc, emptyCall) }()
	cc.WaitForStateChange(t.Context(), connectivity.Idle)
	kit.Must(t, cc.Close())
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("of a channel that is closed meanwhile: %v", err)
	}
	if err := integrate.WaitReady(t.Context(), cc, emptyCall); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("of a closed channel: %v", err)
	}
}

// TestWaitReadySurvivesIdleness: a channel that goes idle while WaitReady waits is
// connected again.
func TestWaitReadySurvivesIdleness(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	cc := dial(t, control.Bootstrap("n"), grpc.WithIdleTimeout(50*time.Millisecond))
	ended := make(chan error)
	go func() { ended <- integrate.WaitReady(t.Context(), cc, emptyCall) }()
	cc.WaitForStateChange(t.Context(), connectivity.Idle)
	cc.WaitForStateChange(t.Context(), connectivity.Connecting) // it has gone idle
	set(t, control, service(xdstest.NewBackends(t, 1, xdstest.BackendOptions{})...))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

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
	backends, control := start(t, 4)
	r := service(backends...)
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

// TestWaitReadyConnectsOne: WaitReady connects one endpoint of a cluster that connects on demand and that RPCs may go to,
// also if the channel had to be woken, and no more of them later. The user's Connect has each cluster connected, and is
// not taken for an RPC's, before and after WaitReady.
func TestWaitReadyConnectsOne(t *testing.T) {
	dial := dialSlowly(t)
	for _, before := range []bool{true, false} {
		cc := dial()
		for i := 0; before && i < 3; i++ {
			kit.Must(t, integrate.WaitReady(t.Context(), cc, "/s/m"))
			if n := awake(t, cc); n != 1 {
				t.Fatalf("WaitReady connected %d endpoints, want 1", n)
			}
		}
		cc.Connect()
		kit.Must(t, integrate.WaitReady(t.Context(), cc, "/other/m"))
		if n := awake(t, cc); n != 2 {
			t.Errorf("WaitReady before %v: Connect connected %d endpoints, want 2", before, n)
		}
	}
}
