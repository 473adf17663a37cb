// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// quick makes a client that returns to its server soon.
var quick = xds.Options{BackoffBase: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond, Linger: -1}

// start returns a control plane and a client of it.
func start(t testing.TB, opts xds.Options) (*xdstest.Server, *xds.Client) {
	t.Helper()
	checker := testplane.NewChecker(nil)
	cp := xdstest.New(t, xdstest.Options{Server: []grpc.ServerOption{checker.ServerOption()}})
	cfg, err := bootstrap.Parser{}.Parse("test", cp.Bootstrap(t.Name()))
	kit.Must(t, err)
	c := xds.Acquire(cfg, opts)
	t.Cleanup(c.Release)
	t.Cleanup(func() {
		if v := checker.Violations(); len(v) > 0 {
			t.Errorf("violations of the protocol: %q", v)
		}
	})
	return cp, c
}

// latest is a Watcher that keeps the latest call for wait.
type latest struct {
	cancel func()
	calls  chan outcome // holds at most one
}

type outcome struct {
	config *picker.Config
	err    error
}

func watch(c *xds.Client, target string) *latest {
	l := &latest{calls: make(chan outcome, 1)}
	l.cancel = c.View(nil, "").Watch(target, target, l)
	return l
}

func (l *latest) Update(c *picker.Config) { l.put(outcome{config: c}) }
func (l *latest) Error(err error)         { l.put(outcome{err: err}) }

func (l *latest) put(o outcome) {
	select {
	case <-l.calls:
	default:
	}
	l.calls <- o
}

// wait returns the first outcome for which ok returns true.
func (l *latest) wait(t testing.TB, what string, ok func(outcome) bool) outcome {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	var last outcome
	for {
		select {
		case last = <-l.calls:
			if ok(last) {
				return last
			}
		case <-timeout:
			t.Fatalf("timed out waiting for %s; the latest is %+v", what, last)
		}
	}
}

// served reports whether an outcome has an endpoint on the port.
func served(port uint16) func(outcome) bool {
	return func(o outcome) bool {
		return o.config != nil && len(o.config.Clusters) == 1 && len(o.config.Clusters[0].Leaves) == 1 &&
			len(o.config.Clusters[0].Leaves[0].Priorities) == 1 &&
			o.config.Clusters[0].Leaves[0].Priorities[0].Localities[0].Endpoints.At(0).Addr.Port() == port
	}
}

func service(name string, port uint16) xdstest.Resources {
	return xdstest.Service(name, xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)}}})
}

// TestControlPlane is the way of a target with go-control-plane at the other
// end: changes, a bad version, a restart, and a watch that comes back.
func TestControlPlane(t *testing.T) { variants(t, testControlPlane) }

// variants runs a test for each variant of ADS.
func variants(t *testing.T, f func(t *testing.T, opts xds.Options)) {
	for _, delta := range []bool{false, true} {
		t.Run(fmt.Sprint("delta=", delta), func(t *testing.T) {
			opts := quick
			opts.Delta = delta
			f(t, opts)
		})
	}
}

func testControlPlane(t *testing.T, opts xds.Options) {
	cp, c := start(t, opts)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w := watch(c, "svc")
	set := func(port uint16) {
		t.Helper()
		all := service("svc", port)
		all.Add(service("keep", 1))
		kit.Must(t, cp.Set(all))
	}
	set(1)
	w.wait(t, "the first configuration", served(1))
	set(2)
	w.wait(t, "new endpoints", served(2))
	if err := cp.WaitACK(ctx, resourcev3.EndpointType); err != nil {
		t.Error(err)
	}

	bad := service("svc", 3)
	bad.Endpoints[0].Endpoints[0].Priority = 7
	kit.Must(t, cp.Set(bad))
	detail, err := cp.WaitNACK(ctx, resourcev3.EndpointType)
	if err != nil || !strings.Contains(detail, "svc") {
		t.Errorf("NACK %q, %v; want one that names the resource", detail, err)
	}
	w.wait(t, "a note", func(o outcome) bool { return served(2)(o) && o.config.Clusters[0].Leaves[0].ResolutionNote != nil })

	kit.Must(t, cp.Restart())
	set(4)
	w.wait(t, "endpoints after a restart", served(4))

	keep := watch(c, "keep")
	keep.wait(t, "another target", served(1))
	for i := range 20 { // T-WATCH-3: the server is asked again, and answers
		w.cancel()
		if i%2 == 0 {
			kit.Must(t, cp.Wait(ctx, func() bool { return len(cp.Stats(resourcev3.ListenerType).Names) == 1 }))
		}
		w = watch(c, "svc")
		w.wait(t, "a target that is watched again", served(4))
	}
	w.cancel()
	keep.cancel()
}

// TestRandomWatches watches and cancels at random while streams break, with
// go-control-plane as the judge: every target exists
// at all times, so every watch must have its configuration soon.
func TestRandomWatches(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	variants(t, func(t *testing.T, opts xds.Options) { testRandomWatches(t, opts, rounds) })
}

func testRandomWatches(t *testing.T, opts xds.Options, rounds int) {
	cp, c := start(t, opts)
	rng := rand.New(rand.NewPCG(8, 9))
	const targets = 6
	var port uint16 = 1
	set := func() {
		var all xdstest.Resources
		for i := range targets {
			all.Add(service(fmt.Sprint("t", i), port+uint16(1000*i)))
		}
		kit.Must(t, cp.Set(all))
	}
	set()
	watches := map[*latest]int{}
	for range rounds {
		for range 20 {
			switch rng.IntN(10) {
			case 0:
				cp.BreakStreams()
			case 1, 2:
				port++
				set()
			case 3, 4, 5:
				for w := range watches {
					w.cancel()
					delete(watches, w)
					break
				}
			default:
				i := rng.IntN(targets)
				watches[watch(c, fmt.Sprint("t", i))] = i
			}
		}
		port++
		set()
		for w, i := range watches {
			w.wait(t, fmt.Sprint("t", i), served(port+uint16(1000*i)))
		}
	}
	for w := range watches {
		w.cancel()
	}
}

// TestConcurrentUse has everything called from everywhere, for the race detector
// to see.
func TestConcurrentUse(t *testing.T) { variants(t, testConcurrentUse) }

func testConcurrentUse(t *testing.T, opts xds.Options) {
	cp, c := start(t, opts)
	cfg, err := bootstrap.Parser{}.Parse("test", cp.Bootstrap(t.Name()))
	kit.Must(t, err)
	for i := range 4 {
		kit.Must(t, cp.Update(service(fmt.Sprint("t", i), 1)))
	}
	var tasks sync.WaitGroup
	for g := range 8 {
		tasks.Go(func() {
			for i := range 30 {
				mine := xds.Acquire(cfg, opts)
				if mine != c {
					t.Error("another client for the same bootstrap")
				}
				w := watch(mine, fmt.Sprint("t", (g+i)%4))
				switch i % 5 {
				case 0:
					mine.ResolveNow()
				case 1:
					for range mine.Resources() {
					}
				case 2:
					if _, release, err := mine.Conn(cfg.Servers[0].Key()); err == nil {
						release()
					}
				case 3:
					w.wait(t, "the configuration", served(1))
				case 4:
					if g == 0 {
						cp.BreakStreams()
					}
				}
				w.cancel()
				mine.Release()
			}
		})
	}
	tasks.Wait()
}

// TestWithholdingServer checks the hint about a server that sends nothing until
// all of its resources are requested (T-XDS-17), as go-control-plane's SnapshotCache does in
// ADS mode.
func TestWithholdingServer(t *testing.T) {
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	resources := service("svc", 1)
	resources.Add(service("other", 2))
	asTypes := map[resourcev3.Type][]types.Resource{}
	for i := range resources.Listeners {
		asTypes[resourcev3.ListenerType] = append(asTypes[resourcev3.ListenerType], resources.Listeners[i])
	}
	snapshot, err := cache.NewSnapshot("1", asTypes)
	kit.Must(t, err)
	kit.Must(t, snapshots.SetSnapshot(t.Context(), "node", snapshot))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	srv := grpc.NewServer()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(srv, adsOnly{Server: sotw.NewServer(ctx, snapshots, nil)})
	go srv.Serve(lis)
	defer srv.Stop()
	cfg, err := bootstrap.Parser{}.Parse("test", fmt.Appendf(nil, `{"node": {"id": "node"}, "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}]}`, lis.Addr()))
	kit.Must(t, err)
	opts := quick
	opts.ResourceTimeout = 100 * time.Millisecond
	c := xds.Acquire(cfg, opts)
	defer c.Release()
	w := watch(c, "svc")
	defer w.cancel()
	w.wait(t, "the hint", func(o outcome) bool {
		return o.err != nil && strings.Contains(o.err.Error(), "until the client requests every resource")
	})
}

// TestSnapshotCache: in the incremental variant go-control-plane's SnapshotCache sends only the
// requested resources, whatever else it has, and each change by itself.
func TestSnapshotCache(t *testing.T) {
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	set := func(version string, port uint16) {
		t.Helper()
		r := service("svc", port)
		r.Add(service("other", 2))
		all := map[resourcev3.Type][]types.Resource{}
		for i := range r.Listeners {
			all[resourcev3.ListenerType] = append(all[resourcev3.ListenerType], r.Listeners[i])
			all[resourcev3.RouteType] = append(all[resourcev3.RouteType], r.Routes[i])
			all[resourcev3.ClusterType] = append(all[resourcev3.ClusterType], r.Clusters[i])
			all[resourcev3.EndpointType] = append(all[resourcev3.EndpointType], r.Endpoints[i])
		}
		snapshot, err := cache.NewSnapshot(version, all)
		if err == nil {
			err = snapshots.SetSnapshot(t.Context(), "node", snapshot)
		}
		kit.Must(t, err)
	}
	set("1", 1)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	srv := grpc.NewServer()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := &sentResources{}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(srv, deltaOnly{Server: delta.NewServer(ctx, snapshots, sent)})
	go srv.Serve(lis)
	defer srv.Stop()
	// The server is not said to speak this variant: the client finds out.
	cfg, err := bootstrap.Parser{}.Parse("test", fmt.Appendf(nil, `{"node": {"id": "node"}, "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}]}`, lis.Addr()))
	kit.Must(t, err)
	c := xds.Acquire(cfg, quick)
	defer c.Release()
	w := watch(c, "svc")
	defer w.cancel()
	w.wait(t, "the first configuration", served(1))
	set("2", 3)
	w.wait(t, "new endpoints", served(3))
	if n := sent.n.Load(); n != 5 {
		t.Errorf("%d resources were sent, want four and the one that changed", n)
	}
}

// sentResources counts the resources that a go-control-plane server sends.
type sentResources struct{ n atomic.Int64 }

func (*sentResources) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }
func (*sentResources) OnDeltaStreamClosed(int64, *corev3.Node)                {}
func (*sentResources) OnStreamDeltaRequest(int64, *discoveryv3.DeltaDiscoveryRequest) error {
	return nil
}
func (s *sentResources) OnStreamDeltaResponse(_ int64, _ *discoveryv3.DeltaDiscoveryRequest, resp *discoveryv3.DeltaDiscoveryResponse) {
	s.n.Add(int64(len(resp.GetResources())))
}

// deltaOnly serves the incremental variant of ADS, and nothing else.
type deltaOnly struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	delta.Server
}

func (s deltaOnly) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.DeltaStreamHandler(stream, resourcev3.AnyType)
}

// adsOnly serves ADS, and none of the other services of go-control-plane.
type adsOnly struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	sotw.Server
}

func (s adsOnly) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.StreamHandler(stream, resourcev3.AnyType)
}
