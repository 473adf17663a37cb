// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// stockServer: all RPCs succeed and an update arrives although a server of grpc-go's xDS in the same
// process opens streams, which the agent does not accept beside ours.
func stockServer(t *testing.T, delta bool) result {
	lis, err := net.Listen("tcp", clientIP+":0")
	if err != nil {
		t.Skipf("the system has no second loopback address: %v", err)
	}
	m, first, second := twoServices(t, delta)
	m.endpoints(account, account, netip.MustParseAddrPort(lis.Addr().String()))
	var outages atomic.Int32
	s, err := xds.NewGRPCServer(grpc.Creds(insecure.NewCredentials()), xds.BootstrapContentsForTesting(m.config(delta).Bootstrap),
		xds.ServingModeCallback(func(_ net.Addr, a xds.ServingModeChangeArgs) {
			if a.Mode == connectivity.ServingModeNotServing {
				outages.Add(1)
			}
		}))
	kit.Must(t, err)
	t.Cleanup(s.Stop)
	go func() { _ = s.Serve(lis) }()
	b := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0]
	m.service("orders", "orders", b)
	arrived := first.reaches(b)
	first.more(1000)
	n := m.overlapping()
	if n == 0 {
		t.Error("the agent closed no stream, so the server opened none")
	}
	return result{total(t, first, second), fmt.Sprintf("%d overlapping streams; update after %s; the server stopped serving %d times", n, rounded(arrived), outages.Load())}
}

// partial: a target of the same process uses grpc-go's xDS, as during a rollout. All RPCs to the
// other target succeed, and an update arrives. RPCs to the former may fail.
func partial(t *testing.T, delta bool) result {
	m := newMesh(t)
	backends := xdstest.NewBackends(t, 3, xdstest.BackendOptions{})
	m.service("orders", "orders", backends[0])
	m.service("prices", "prices", backends[1])
	m.startPilot()
	m.startAgent()
	cfg := m.config(delta)
	stock := send(t, "prices", dialStock(t, cfg.Bootstrap, "prices"))
	stock.reaches(backends[1])
	before := stock.now()
	begin := time.Now()
	ours := send(t, "orders", dial(t, cfg, "orders"))
	ready := time.Since(begin)
	ours.more(500)
	m.service("orders", "orders", backends[2])
	arrived := ours.reaches(backends[2])
	c := stock.end()
	return result{total(t, ours), fmt.Sprintf("ready after %s, update after %s; stock: %d of %d failed; %d overlapping streams",
		rounded(ready), rounded(arrived), c.failed-before.failed, c.ok+c.failed-before.ok-before.failed, m.overlapping())}
}

// dialStock returns a channel to a service that uses grpc-go's xDS.
func dialStock(t testing.TB, bootstrap []byte, name string) *grpc.ClientConn {
	t.Helper()
	r, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	kit.Must(t, err)
	cc, err := grpc.NewClient(target(name), grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// stockClients: with grpc-go's xDS, RPCs to one of two targets fail. It is the reason for the
// other scenarios, and has no requirement of its own.
func stockClients(t *testing.T) result {
	m := newMesh(t)
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	m.service("orders", "orders", backends[0])
	m.service("prices", "prices", backends[1])
	m.startPilot()
	m.startAgent()
	bootstrap := m.config(false).Bootstrap
	var sum counts
	var running []*traffic
	for _, name := range []string{"orders", "prices"} {
		running = append(running, send(t, name, dialStock(t, bootstrap, name)))
	}
	running[0].more(500)
	note := ""
	for _, f := range running {
		c := f.end()
		sum.ok += c.ok
		sum.failed += c.failed
		note += fmt.Sprintf("%s: %d of %d failed; ", f.name, c.failed, c.ok+c.failed)
	}
	return result{sum, note + fmt.Sprintf("%d overlapping streams", m.overlapping())}
}
