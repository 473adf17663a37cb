// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// direct is a client whose server's responses are made up on the spot: what
// happens to them from the stream to the watcher, without the network.
type direct struct {
	c *Client
	s *server
	w *counter
}

type counter struct{ updates int }

func (w *counter) Update(*picker.Config) { w.updates++ }
func (w *counter) Error(error)           {}

func newDirect(tb testing.TB) *direct {
	tb.Helper()
	cfg, err := bootstrap.Parse("test", []byte(`{"xds_servers": [`+serverDoc("cp")+`], "node": {"id": "`+tb.Name()+`"}}`))
	if err != nil {
		tb.Fatal(err)
	}
	d := &direct{w: &counter{}}
	d.c = Acquire(cfg, Options{Linger: -1, ConnectFailureAfter: time.Hour, DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }),
	}})
	tb.Cleanup(func() { d.c.Release(); <-d.c.done })
	d.c.Watch("svc", "svc", d.w)
	for d.s == nil {
		d.c.mu.Lock()
		d.s = d.c.servers[cfg.Servers[0].Key()]
		d.c.mu.Unlock()
	}
	return d
}

// respond has a response handled, and waits for the watchers.
func (d *direct) respond(typ resource.Type, version string, list ...*anypb.Any) {
	d.c.mu.Lock()
	d.s.types[typ].sent = true
	d.c.mu.Unlock()
	r := response{server: d.s, typ: typ, msg: &discoveryv3.DiscoveryResponse{TypeUrl: typ.URL(), VersionInfo: version, Resources: list}}
	for _, settled := range r.handle() {
		<-settled
	}
}

// manyEndpoints returns two assignments with n endpoints in three localities;
// one weight makes the difference.
func manyEndpoints(n int) (a, b *endpointv3.ClusterLoadAssignment) {
	localities := make([]xdstest.Locality, 3)
	for i := range n {
		l := &localities[i%3]
		l.Zone = fmt.Sprint("zone-", i%3)
		l.Endpoints = append(l.Endpoints, xdstest.Endpoint{
			Addr:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8080),
			Weight: uint32(1 + i%5),
		})
	}
	a = xdstest.Endpoints("svc", localities...)
	b = proto.CloneOf(a)
	b.Endpoints[1].LbEndpoints[n/6].LoadBalancingWeight = wrapperspb.UInt32(77)
	return a, b
}

// BenchmarkEndpointsUpdate is an update of one assignment, from the message to
// the return of Watcher.Update: with one changed weight, and with none.
func BenchmarkEndpointsUpdate(b *testing.B) {
	for _, n := range []int{100, 5000, 10000} {
		for _, change := range []string{"weight", "none"} {
			b.Run(fmt.Sprintf("n=%d/change=%s", n, change), func(b *testing.B) {
				d := newDirect(b)
				for i, m := range target("svc")[:3] {
					d.respond(resource.Type(i), "1", wrap(m))
				}
				first, second := manyEndpoints(n)
				versions := []*anypb.Any{wrap(first), wrap(second)}
				if change == "none" {
					versions[1] = versions[0]
				}
				d.respond(eds, "0", versions[0])
				updates := d.w.updates
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					i++
					d.respond(eds, "v", versions[i%2])
				}
				if got := d.w.updates - updates; got != 0 && change == "none" || got != i && change == "weight" {
					b.Errorf("%d updates of %d", got, i)
				}
			})
		}
	}
}

// BenchmarkKeepBytes is the memory of an assignment of 10,000 endpoints in the cache,
// with KeepBytes and without: what the heap grows by, with a configuration delivered.
func BenchmarkKeepBytes(b *testing.B) {
	for _, keep := range []bool{false, true} {
		b.Run(fmt.Sprint("keep=", keep), func(b *testing.B) {
			old := keepBytes.Swap(keep)
			defer keepBytes.Store(old)
			const n = 10000
			list, _ := manyEndpoints(n)
			encoded := wrap(list)
			var before, after runtime.MemStats
			for b.Loop() {
				d := newDirect(b)
				for i, m := range target("svc")[:3] {
					d.respond(resource.Type(i), "1", wrap(m))
				}
				runtime.GC()
				runtime.ReadMemStats(&before)
				d.respond(eds, "1", encoded)
				runtime.GC()
				runtime.ReadMemStats(&after)
				if raw := statusOf(d.c, eds, "svc").Raw; (raw != nil) != keep {
					b.Fatalf("bytes: %v", raw)
				}
			}
			b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/n, "B/endpoint")
			b.ReportMetric(float64(len(encoded.Value))/n, "wire-B/endpoint")
		})
	}
}

// BenchmarkLook is one look at a target with n clusters, one of which has new
// endpoints.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			d := newDirect(b)
			var names []string
			var clusters, endpoints []*anypb.Any
			for i := range n {
				names = append(names, fmt.Sprint("c", i))
				clusters = append(clusters, wrap(clusterTo(names[i], names[i])))
				endpoints = append(endpoints, wrap(endpointsAt(names[i], 1)))
			}
			d.respond(lds, "1", wrap(listenerTo("svc", "r")))
			d.respond(rds, "1", wrap(routesTo("r", names...)))
			d.respond(cds, "1", clusters...)
			d.respond(eds, "1", endpoints...)
			versions := []*anypb.Any{wrap(endpointsAt("c7", 2)), wrap(endpointsAt("c7", 3))}
			i := 0
			for b.Loop() {
				i++
				d.respond(eds, "v", versions[i%2])
			}
			if d.w.updates != i+1 {
				b.Errorf("%d updates of %d", d.w.updates, i+1)
			}
		})
	}
}
