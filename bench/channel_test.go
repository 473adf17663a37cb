// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/grpc/xds"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/pickercapture"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

func init() {
	pickercapture.Install(pickercapture.Ours, pickercapture.StockXDS, pickercapture.RoundRobin)
}

const (
	service = "bench.xdslb.test"
	method  = "/grpc.testing.TestService/EmptyCall"
)

// scenario is a set of resources to compare implementations on.
type scenario struct {
	name        string
	localities  int
	perLocality int
	loadReports bool
	drops       bool
	routes      int // that do not match, before the one that does
	weighted    bool
	policy      testplane.ClusterOption // nil is ROUND_ROBIN
	hashed      bool                    // by hashHeader
	tcp         bool                    // connections over loopback, not in memory
}

// impls are the whole stacks that are compared.
var impls = []string{"round_robin", "stock", "ours"}

func (sc scenario) endpoints() int { return sc.localities * sc.perLocality }

// resources returns the resources of the scenario. Revisions differ in the weight of one
// endpoint.
func (sc scenario) resources(revision uint32) xdstest.Resources {
	ls := make([]xdstest.Locality, sc.localities)
	n := 0
	for i := range ls {
		ls[i].Place = xdstest.Place{Region: "region", Zone: fmt.Sprintf("zone-%d", i), SubZone: "rack"}
		ls[i].Weight = uint32(i + 1)
		for range sc.perLocality {
			e := xdstest.Endpoint{Addr: endpointAddr(n)}
			if sc.weighted {
				e.Weight = uint32(1 + n%7)
			}
			if n == 0 {
				e.Weight += revision
			}
			ls[i].Endpoints = append(ls[i].Endpoints, e)
			n++
		}
	}
	var opts []testplane.ClusterOption
	if sc.loadReports {
		opts = append(opts, testplane.LoadReports())
	}
	if sc.policy != nil {
		opts = append(opts, sc.policy)
	}
	opts = append(opts, testplane.MaxRequests(1_000_000))
	r := xdstest.Service(service, ls...)
	r.Clusters[0] = xdstest.Cluster(service, service, opts...)
	if sc.drops {
		testplane.Drop(r.Endpoints[0], "lb", 0)
		testplane.Drop(r.Endpoints[0], "throttle", 1)
	}
	routes := r.Routes[0].VirtualHosts[0].Routes
	if sc.hashed {
		testplane.HashHeader(routes[0], hashHeader)
	}
	r.Routes[0].VirtualHosts[0].Routes = nil
	for i := range sc.routes {
		r.Routes[0].VirtualHosts[0].Routes = append(r.Routes[0].VirtualHosts[0].Routes, xdstest.Route(fmt.Sprintf("/package.Service%d/", i), service))
	}
	r.Routes[0].VirtualHosts[0].Routes = append(r.Routes[0].VirtualHosts[0].Routes, routes...)
	return r
}

func endpointAddr(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 80)
}

// backend is one server that all endpoints lead to.
type backend struct {
	connect func(ctx context.Context) (net.Conn, error)
	dials   atomic.Int64
}

func startBackend(tb testing.TB, tcp bool) *backend {
	b := &backend{}
	var lis net.Listener
	if tcp {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		kit.Must(tb, err)
		lis, b.connect = l, func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		}
	} else {
		l := bufconn.Listen(1 << 16)
		lis, b.connect = l, l.DialContext
	}
	srv := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(srv, echo{})
	go func() { _ = srv.Serve(lis) }() // ends with Stop
	tb.Cleanup(srv.Stop)
	return b
}

func (b *backend) dial(ctx context.Context, _ string) (net.Conn, error) {
	b.dials.Add(1)
	return b.connect(ctx)
}

type echo struct {
	testgrpc.UnimplementedTestServiceServer
}

func (echo) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	return &testgrpc.Empty{}, nil
}

// dial returns a channel of the implementation whose connections to all the
// scenario's endpoints are up, or of which sessions need, if it hashes.
func dial(tb testing.TB, impl string, sc scenario, control *xdstest.Server) *grpc.ClientConn {
	tb.Helper()
	if impl == "new_client" {
		cfg := integrate.Config{Bootstrap: control.Bootstrap(tb.Name()), Linger: -1, Logger: slog.New(slog.DiscardHandler)}
		return openWith(tb, sc, cfg.NewClient, "xds:///"+service, []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())})
	}
	target, opts := options(tb, impl, sc, control)
	return open(tb, sc, target, opts)
}

// open is dial for a target and options.
func open(tb testing.TB, sc scenario, target string, opts []grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	return openWith(tb, sc, grpc.NewClient, target, opts)
}

// openWith is open with a constructor of the channel.
func openWith(tb testing.TB, sc scenario, newClient func(string, ...grpc.DialOption) (*grpc.ClientConn, error), target string, opts []grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	b := startBackend(tb, sc.tcp)
	cc, err := newClient(target, append(opts, grpc.WithContextDialer(b.dial))...)
	kit.Must(tb, err)
	tb.Cleanup(func() { _ = cc.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	call := func(ctx context.Context) {
		kit.Must(tb, cc.Invoke(ctx, method, &testgrpc.Empty{}, &testgrpc.Empty{}, grpc.WaitForReady(true)))
	}
	if sc.hashed {
		for _, session := range sessions() {
			call(session)
		}
		return cc
	}
	for b.dials.Load() < int64(sc.endpoints()) {
		call(ctx)
	}
	return cc
}

// options returns the arguments of NewClient for a channel of the implementation.
func options(tb testing.TB, impl string, sc scenario, control *xdstest.Server) (target string, opts []grpc.DialOption) {
	opts = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if impl == "round_robin" {
		m := manual.NewBuilderWithScheme("static")
		var state resolver.State
		for _, addr := range addresses(sc.endpoints()) {
			state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: addr}}})
		}
		m.InitialState(state)
		return "static:///" + service, append(opts, grpc.WithResolvers(m), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	}
	return "xds:///" + service, append(opts, grpc.WithResolvers(newBuilder(tb, impl, control)))
}

// newBuilder returns the resolver of an implementation of xDS.
func newBuilder(tb testing.TB, impl string, control *xdstest.Server) resolver.Builder {
	return must(tb, func() (resolver.Builder, error) { return builderOf(impl, control.Bootstrap(tb.Name())) })
}

func builderOf(impl string, bootstrap []byte) (resolver.Builder, error) {
	if impl == "stock" {
		return xds.NewXDSResolverWithConfigForTesting(bootstrap)
	}
	return integrate.NewBuilder(integrate.Config{Bootstrap: bootstrap, Linger: -1, Logger: slog.New(slog.DiscardHandler)})
}

// startControl serves the scenario.
func startControl(tb testing.TB, sc scenario) *xdstest.Server {
	control := xdstest.New(tb, xdstest.Options{})
	kit.Must(tb, control.Set(sc.resources(0)))
	return control
}
