// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
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

	"github.com/xdslb/xdslb/bench/tap"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

func init() { tap.Install(tap.Ours, tap.StockXDS, tap.RoundRobin) }

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
}

func (sc scenario) endpoints() int { return sc.localities * sc.perLocality }

// resources are what a control plane serves for the scenario. Revisions differ
// in the weight of one endpoint.
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
	var opts []xdstest.ClusterOption
	if sc.loadReports {
		opts = append(opts, xdstest.LoadReports())
	}
	opts = append(opts, xdstest.MaxRequests(1_000_000))
	r := xdstest.Service(service, ls...)
	r.Clusters[0] = xdstest.Cluster(service, service, opts...)
	if sc.drops {
		xdstest.Drop(r.Endpoints[0], "lb", 0)
		xdstest.Drop(r.Endpoints[0], "throttle", 1)
	}
	routes := r.Routes[0].VirtualHosts[0].Routes
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

// backend is one in-memory server that all endpoints lead to.
type backend struct {
	lis   *bufconn.Listener
	dials atomic.Int64
}

func startBackend(tb testing.TB) *backend {
	b := &backend{lis: bufconn.Listen(1 << 16)}
	srv := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(srv, echo{})
	go func() { _ = srv.Serve(b.lis) }() // ends with Stop
	tb.Cleanup(srv.Stop)
	return b
}

func (b *backend) dial(ctx context.Context, _ string) (net.Conn, error) {
	b.dials.Add(1)
	return b.lis.DialContext(ctx)
}

type echo struct {
	testgrpc.UnimplementedTestServiceServer
}

func (echo) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	return &testgrpc.Empty{}, nil
}

// dial returns a channel of the implementation whose connections to all the
// scenario's endpoints are up.
func dial(tb testing.TB, impl string, sc scenario, control *xdstest.Server) *grpc.ClientConn {
	tb.Helper()
	b := startBackend(tb)
	var res resolver.Builder
	var err error
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(b.dial)}
	target := "xds:///" + service
	switch impl {
	case "ours":
		res, err = integrate.NewBuilder(integrate.Config{Bootstrap: control.Bootstrap(tb.Name())})
	case "stock":
		res, err = xds.NewXDSResolverWithConfigForTesting(control.Bootstrap(tb.Name()))
	case "roundrobin":
		m := manual.NewBuilderWithScheme("static")
		var state resolver.State
		for i := range sc.endpoints() {
			state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: endpointAddr(i).String()}}})
		}
		m.InitialState(state)
		res, target = m, "static:///"+service
		opts = append(opts, grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	default:
		tb.Fatalf("unknown impl %q", impl)
	}
	if err != nil {
		tb.Fatal(err)
	}
	cc, err := grpc.NewClient(target, append(opts, grpc.WithResolvers(res))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cc.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client := testgrpc.NewTestServiceClient(cc)
	for b.dials.Load() < int64(sc.endpoints()) {
		if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true)); err != nil {
			tb.Fatal(err)
		}
	}
	return cc
}

// startControl serves the scenario.
func startControl(tb testing.TB, sc scenario) *xdstest.Server {
	control := xdstest.New(tb, xdstest.Options{})
	if err := control.Set(sc.resources(0)); err != nil {
		tb.Fatal(err)
	}
	return control
}
