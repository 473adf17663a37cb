// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/internal/adscodec"
	"github.com/xdslb/xdslb/xds/overlay"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// direct is a client whose server's responses are passed to it without a network: it covers the
// path from the stream to the watcher.
type direct struct {
	c *Client
	s *server
	w *counter
}

type counter struct{ updates int }

func (w *counter) Update(*picker.Config) { w.updates++ }
func (w *counter) Error(error)           {}

func newDirect(tb testing.TB) *direct { return newDirectWith(tb, Options{}) }

func newDirectWith(tb testing.TB, opts Options) *direct {
	tb.Helper()
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+serverDoc("cp")+`], "node": {"id": "`+tb.Name()+`"}}`))
	kit.Must(tb, err)
	d := &direct{w: &counter{}}
	opts.Linger, opts.ConnectFailureAfter = -1, time.Hour
	opts.DialOptions = []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }),
	}
	d.c = Acquire(cfg, opts)
	tb.Cleanup(func() { d.c.Release(); <-d.c.done })
	d.c.view().Watch("svc", "svc", d.w)
	for d.s == nil {
		d.c.mu.Lock()
		d.s = d.c.pool.servers[cfg.Servers[0].Key()]
		d.c.mu.Unlock()
	}
	return d
}

// respond has a response handled, and waits for the watchers.
func (d *direct) respond(typ resource.Type, version string, list ...*anypb.Any) {
	d.c.mu.Lock()
	d.s.types[typ].sent = true
	d.c.mu.Unlock()
	r := response{t: &d.s.types[typ], msg: arrived(&discoveryv3.DiscoveryResponse{TypeUrl: typ.URL(), VersionInfo: version, Resources: list})}
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
				for i, m := range targetOf("svc")[:3] {
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

// BenchmarkOverlay is an update of one assignment of 10,000 endpoints for a target without an overlay
// and a second target: without an overlay too, with one that matches nothing, and with a patch of the
// policy of the endpoints.
func BenchmarkOverlay(b *testing.B) {
	for name, patches := range map[string][]string{
		"none": nil, "other": {patchOf("other", useMaglev), `{"resource": "endpoints", "name": "other", "merge": {"policy": null}}`},
		"policy": {`{"resource": "endpoints", "name": "*", "merge": {"policy": {"drop_overloads": [{"category": "test", "drop_percentage": {"numerator": 25}}]}}}`},
	} {
		b.Run("patches="+name, func(b *testing.B) {
			d := newDirect(b)
			var source *overlay.Source
			if patches != nil {
				source = patchesOf(b, patches...)
			}
			d.c.View(source, "xds:///svc").Watch("svc", "other.svc", &counter{})
			for i, m := range targetOf("svc")[:3] {
				d.respond(resource.Type(i), "1", wrap(m))
			}
			first, second := manyEndpoints(10000)
			versions := []*anypb.Any{wrap(first), wrap(second)}
			d.respond(eds, "0", versions[0])
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				d.respond(eds, "v", versions[i%2])
			}
		})
	}
}

// BenchmarkKeepBytes measures the memory of an assignment of 10,000 endpoints in the cache, with
// KeepBytes and without: the growth of the heap, including the delivered configuration.
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
				for i, m := range targetOf("svc")[:3] {
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

// BenchmarkClusterChange measures a change of one of n clusters of 1.3 KB, from the bytes of the
// response to the watcher, in both variants; wire-B is the size of the server's response. In one
// case a single target's routes lead to all of them, in the other there are n targets with one
// cluster each.
func BenchmarkClusterChange(b *testing.B) {
	const n = 9000
	for _, targets := range []int{1, n} {
		for _, variant := range []string{"sotw", "delta"} {
			b.Run(fmt.Sprintf("variant=%s/n=%d/targets=%d", variant, n, targets), func(b *testing.B) {
				d := newDirect(b)
				d.speak(variant)
				var names []string
				var clusters, endpoints, listeners, routes []proto.Message
				for i := range n {
					names = append(names, fmt.Sprintf("outbound|8080||svc-%d.namespace.svc.cluster.local", i))
					clusters = append(clusters, largeCluster(names[i], 0))
					endpoints = append(endpoints, endpointsAt(names[i], 1))
				}
				if targets == 1 {
					listeners = append(listeners, listenerTo("svc", "svc"))
					routes = append(routes, routesTo("svc", names...))
				} else {
					for i := range n {
						d.c.view().Watch(names[i], names[i], d.w)
						listeners = append(listeners, listenerTo(names[i], names[i]))
						routes = append(routes, routesTo(names[i], names[i]))
					}
				}
				d.settled()
				for typ, list := range [][]proto.Message{listeners, routes, clusters, endpoints} {
					d.say(resource.Type(typ), "1", list)
				}
				changed := slices.Clone(clusters)
				changed[7] = largeCluster(names[7], 1)
				versions := [2][]proto.Message{clusters, changed}
				if variant == "delta" {
					versions = [2][]proto.Message{{clusters[7]}, {changed[7]}}
				}
				var wire [2][]byte
				for i, list := range versions {
					msg := d.message(resource.ClusterType, fmt.Sprint("v", i), list)
					wire[i], _ = proto.Marshal(msg)
				}
				updates := d.w.updates
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					i++
					msg, err := unmarshal(wire[i%2], d.message(resource.ClusterType, "", nil))
					if err != nil {
						b.Fatal(err)
					}
					d.handle(resource.ClusterType, msg)
				}
				b.ReportMetric(float64(len(wire[0])), "wire-B/op")
				if got := d.w.updates - updates; got != i {
					b.Errorf("%d updates of %d", got, i)
				}
			})
		}
	}
}

// BenchmarkSharedCluster measures a change of one of 100 clusters to which the routes of 1000
// targets lead, in both variants: all targets share the objects made from the cluster.
func BenchmarkSharedCluster(b *testing.B) {
	const targets, n = 1000, 100
	for _, variant := range []string{"sotw", "delta"} {
		b.Run("variant="+variant, func(b *testing.B) {
			d := newDirect(b)
			d.speak(variant)
			var names []string
			var clusters, endpoints, listeners []proto.Message
			for i := range n {
				names = append(names, fmt.Sprint("c", i))
				clusters = append(clusters, largeCluster(names[i], 0))
				endpoints = append(endpoints, endpointsAt(names[i], 1))
			}
			for i := range targets {
				name := fmt.Sprint("t", i)
				d.c.view().Watch(name, "svc", d.w)
				listeners = append(listeners, listenerTo(name, "svc"))
			}
			d.settled()
			d.say(lds, "1", listeners)
			d.say(rds, "1", []proto.Message{routesTo("svc", names...)})
			d.say(cds, "1", clusters)
			d.say(eds, "1", endpoints)
			changed := slices.Clone(clusters)
			changed[7] = largeCluster(names[7], 1)
			versions := [2][]proto.Message{clusters, changed}
			if variant == "delta" {
				versions = [2][]proto.Message{{clusters[7]}, {changed[7]}}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d.say(cds, fmt.Sprint("v", i), versions[i%2])
			}
		})
	}
}

// unmarshal reads a response as the variant's stream does.
func unmarshal(data []byte, msg proto.Message) (proto.Message, error) {
	if _, ok := msg.(*discoveryv3.DiscoveryResponse); ok {
		r := &adscodec.Response{}
		return r, adscodec.New().Unmarshal(framesOf(data), r)
	}
	return msg, proto.Unmarshal(data, msg)
}

// largeCluster returns a cluster of 1.3 KB.
func largeCluster(name string, version uint32) *clusterv3.Cluster {
	c := clusterTo(name, name)
	c.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRequests: wrapperspb.UInt32(100 + version)}}}
	c.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {Fields: map[string]*structpb.Value{
		"services": structpb.NewStringValue(strings.Repeat("x", 1000)),
	}}}}
	return c
}

// speak has the server spoken to in a variant.
func (d *direct) speak(name string) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if name == "delta" {
		d.s.refused = time.Now()
		d.s.setVariantLocked(delta{})
	}
	d.s.openedLocked()
}

// settled waits until the client has asked for all watched resources.
func (d *direct) settled() {
	for n := -1; ; {
		d.c.mu.Lock()
		now := len(d.s.types[resource.ListenerType].subs)
		watched := len(d.c.targets.managers)
		d.c.mu.Unlock()
		if now == watched && now == n {
			return
		}
		n = now
		runtime.Gosched()
	}
}

// message makes a response in the variant that is spoken.
func (d *direct) message(typ resource.Type, version string, list []proto.Message) proto.Message {
	if d.s.variant == (sotw{}) {
		msg := &discoveryv3.DiscoveryResponse{TypeUrl: typ.URL(), VersionInfo: version, Nonce: version}
		for _, m := range list {
			msg.Resources = append(msg.Resources, wrap(m))
		}
		return msg
	}
	msg := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ.URL(), Nonce: version}
	for _, m := range list {
		_, name := nameOf(m)
		msg.Resources = append(msg.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: wrap(m)})
	}
	return msg
}

func (d *direct) say(typ resource.Type, version string, list []proto.Message) {
	d.handle(typ, d.message(typ, version, list))
}

// handle has a response handled as by a stream, with the requests that are due made
// before and after it, and waits for the watchers.
func (d *direct) handle(typ resource.Type, msg proto.Message) {
	d.requests()
	r := response{t: &d.s.types[typ], msg: arrived(msg)}
	for _, settled := range r.handle() {
		<-settled
	}
	d.requests()
}

func (d *direct) requests() {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	for req, _ := d.s.requestLocked(nil); req != nil; req, _ = d.s.requestLocked(nil) {
		_, _ = proto.Marshal(req)
	}
}

// framesOf cuts data into buffers as gRPC's transport does.
func framesOf(data []byte) (list mem.BufferSlice) {
	for frame := range slices.Chunk(data, 16<<10) {
		list = append(list, mem.SliceBuffer(frame))
	}
	return list
}
