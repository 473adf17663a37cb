// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltaserver "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	sotwserver "github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/xdstest"
)

var goCPRuns = flag.Int("gocp.runs", 0, "how many histories TestGoControlPlane runs for each cache and variant; 0 is a few")

// goCP is go-control-plane's server with one of its caches, in a bubble.
type goCP struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t     *testing.T
	cache cachev3.Cache
	set   func(version int, resources map[resourcev3.Type][]types.Resource)

	network *xdstest.Network
	grpc    *grpc.Server
}

// goCPCaches are the caches, by name: one snapshot of everything, one linear cache for each
// type behind a mux, and a mux of both kinds.
var goCPCaches = map[string]func(*goCP){
	"snapshot": func(cp *goCP) { cp.cache, cp.set = goCPSnapshot(cp.t) },
	"linear":   func(cp *goCP) { cp.mux("", resourcev3.ListenerType, resourcev3.RouteType) },
	"mux":      func(cp *goCP) { cp.mux("snapshot") },
}

func goCPSnapshot(t *testing.T) (cachev3.Cache, func(int, map[resourcev3.Type][]types.Resource)) {
	c := cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil)
	return c, func(version int, resources map[resourcev3.Type][]types.Resource) {
		snapshot, err := cachev3.NewSnapshot(fmt.Sprint(version), resources)
		if err == nil {
			err = c.SetSnapshot(context.Background(), "node-1", snapshot)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// mux has linear caches for Clusters, ClusterLoadAssignments and more types, and a snapshot
// for the others.
func (cp *goCP) mux(others string, more ...resourcev3.Type) {
	m := &cachev3.MuxCache{
		Classify:      func(r *cachev3.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *cachev3.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        map[string]cachev3.Cache{},
	}
	linear := map[string]*cachev3.LinearCache{}
	for _, url := range append(more, resourcev3.ClusterType, resourcev3.EndpointType) {
		linear[url] = cachev3.NewLinearCache(url)
		m.Caches[url] = linear[url]
	}
	setSnapshot := func(int, map[resourcev3.Type][]types.Resource) {}
	if others == "snapshot" {
		var c cachev3.Cache
		c, setSnapshot = goCPSnapshot(cp.t)
		m.Caches[resourcev3.ListenerType], m.Caches[resourcev3.RouteType] = c, c
	}
	cp.cache = m
	cp.set = func(version int, resources map[resourcev3.Type][]types.Resource) {
		setSnapshot(version, resources)
		for url, c := range linear {
			byName := map[string]types.Resource{}
			for _, r := range resources[url] {
				byName[cachev3.GetResourceName(r)] = r
			}
			c.SetResources(byName)
		}
	}
}

func (cp *goCP) start() {
	lis, err := cp.network.Listen("cp")
	if err != nil {
		cp.t.Error(err)
		return
	}
	cp.grpc = grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(cp.grpc, cp)
	srv := cp.grpc
	go func() { _ = srv.Serve(lis) }()
}

func (cp *goCP) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return sotwserver.NewServer(stream.Context(), cp.cache, nil).StreamHandler(stream, resourcev3.AnyType)
}

func (cp *goCP) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return deltaserver.NewServer(stream.Context(), cp.cache, nil).DeltaStreamHandler(stream, resourcev3.AnyType)
}

// goCPHistory has the resources of a server, and a client of it that watches all targets.
type goCPHistory struct {
	t       *testing.T
	rng     *rand.Rand
	cp      *goCP
	h       *harness
	watches [goCPSize]*recorder
	// restarts is false for linear caches in state of the world: there a request with the latest
	// version is not answered if all that it names is gone.
	restarts bool

	version int
	route   [goCPSize]int // the cluster that a target's routes lead to
	inline  [goCPSize]bool
	port    [goCPSize]uint16
	there   [goCPSize]bool // the cluster and its endpoints
}

const goCPSize = 5 // targets, clusters

func newGoCPHistory(t *testing.T, kind string, delta bool, seed uint64) *goCPHistory {
	m := &goCPHistory{t: t, rng: rand.New(rand.NewPCG(seed, 3)), cp: &goCP{t: t, network: xdstest.NewNetwork()}}
	goCPCaches[kind](m.cp)
	m.restarts = delta || kind == "snapshot"
	for i := range goCPSize {
		m.route[i], m.port[i], m.there[i] = i, uint16(i+1), true
	}
	opts := Options{
		TargetOptions: TargetOptions{DropDeleted: true}, Linger: -1, Delta: delta, ResourceTimeout: time.Duration(1+seed%3) * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(m.cp.network.Dial)},
	}
	m.h = newClientHarness(t, opts, []string{serverDoc("cp")}, "")
	m.set()
	m.cp.start()
	t.Cleanup(func() { m.cp.grpc.Stop() })
	for i := range m.watches {
		m.watch(i)
	}
	return m
}

func (m *goCPHistory) watch(i int) { m.watches[i] = m.h.watch(fmt.Sprint("t", i)) }

func (m *goCPHistory) set() {
	// A type that a snapshot lacks has no version, and go-control-plane does not say that its
	// resources are gone.
	all := map[resourcev3.Type][]types.Resource{resourcev3.ListenerType: nil, resourcev3.RouteType: nil, resourcev3.ClusterType: nil, resourcev3.EndpointType: nil}
	for i := range goCPSize {
		routes := routesTo(fmt.Sprint("r", i), fmt.Sprint("c", m.route[i]))
		if m.inline[i] {
			all[resourcev3.ListenerType] = append(all[resourcev3.ListenerType], testplane.InlineListener(fmt.Sprint("t", i), routes))
		} else {
			all[resourcev3.ListenerType] = append(all[resourcev3.ListenerType], listenerTo(fmt.Sprint("t", i), routes.Name))
			all[resourcev3.RouteType] = append(all[resourcev3.RouteType], routes)
		}
		if m.there[i] {
			all[resourcev3.ClusterType] = append(all[resourcev3.ClusterType], clusterTo(fmt.Sprint("c", i), fmt.Sprint("e", i)))
			all[resourcev3.EndpointType] = append(all[resourcev3.EndpointType], endpointsAt(fmt.Sprint("e", i), m.port[i]))
		}
	}
	if !m.h.c.opts.Delta {
		// In state of the world, go-control-plane may build a response before a request and send it
		// after the request. It then reverts the request's change in its records.
		synctest.Wait()
	}
	m.version++
	m.cp.set(m.version, all)
}

// step does one thing. Many steps begin while earlier ones are in progress.
func (m *goCPHistory) step() {
	i := m.rng.IntN(goCPSize)
	switch k := m.rng.IntN(20); {
	case k < 4:
		m.port[i] += goCPSize
	case k < 8:
		m.route[i] = m.rng.IntN(goCPSize)
	case k < 13:
		m.there[i] = !m.there[i]
	case k < 15:
		m.inline[i] = !m.inline[i]
	case k < 18:
		m.watches[i].cancel()
		if m.rng.IntN(2) == 0 {
			synctest.Wait()
		}
		m.watch(i)
	case k < 19 && m.restarts:
		m.cp.grpc.Stop()
		if m.rng.IntN(2) == 0 {
			<-time.After(time.Duration(m.rng.IntN(4000)) * time.Millisecond)
		}
		m.cp.start()
	}
	m.set()
	switch m.rng.IntN(6) {
	case 0, 1:
		synctest.Wait()
	case 2:
		<-time.After(time.Duration(1+m.rng.IntN(3000)) * time.Millisecond)
	}
}

// check compares the watchers' resources with the server's, once all has had its time.
func (m *goCPHistory) check(step int) {
	advance(30 * time.Second)
	for i, w := range m.watches {
		c := m.route[i]
		want := fmt.Sprintf("c%d %d", c, m.port[c])
		if !m.there[c] {
			want = fmt.Sprintf("c%d is missing", c)
		}
		if got := goCPOutcome(w.got()); got != want {
			m.t.Errorf("after step %d target t%d has %q, want %q", step, i, got, want)
			for s := range m.h.c.Resources() {
				m.t.Logf("%v %s %v watched=%v %v", s.Type, s.Name, s.State, s.Watched, s.Err)
			}
			m.t.FailNow()
		}
	}
}

func goCPOutcome(got calls) string {
	if got.config == nil {
		return fmt.Sprint("error ", got.err)
	}
	var all []string
	for _, c := range got.config.Clusters {
		all = append(all, goCPCluster(c))
	}
	return strings.Join(all, "; ")
}

func goCPCluster(c *picker.Cluster) string {
	if c.Err != nil {
		return c.Name + " is missing"
	}
	return ports(c)
}

// TestGoControlPlane has clusters come and go, routes lead to others, watches end and begin,
// and the server restart, at random in the incremental variant also while earlier changes are under way, with unmodified
// go-control-plane and each of its caches. Time is virtual, and resources have one to three
// seconds to come. Whatever happens, in the end both variants of ADS have the server's resources.
func TestGoControlPlane(t *testing.T) {
	runs := 20
	if testing.Short() || raceEnabled {
		runs = 5
	}
	if *goCPRuns > 0 {
		runs = *goCPRuns
	}
	for kind := range goCPCaches {
		for _, delta := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/delta=%v", kind, delta), func(t *testing.T) {
				for seed := range uint64(runs) {
					t.Run(fmt.Sprint(seed), func(t *testing.T) {
						bubble(t, func(t *testing.T) {
							m := newGoCPHistory(t, kind, delta, seed)
							for i := range 40 {
								m.step()
								if i%20 == 19 {
									m.check(i)
								}
							}
						})
					})
				}
			})
		}
	}
}

// goCPSteps is a history of few steps. It returns how long it took after each step until the target
// had the served resources.
func goCPSteps(t *testing.T, delta bool, steps ...func(*goCPHistory)) (took []time.Duration) {
	bubble(t, func(t *testing.T) {
		m := newGoCPHistory(t, "linear", delta, 14)
		m.h.c.combined.timeout, m.h.c.combined.defaultTimeout = 0, true
		for i := 1; i < goCPSize; i++ {
			m.watches[i].cancel()
		}
		advance(time.Second)
		for i, step := range steps {
			step(m)
			m.set()
			begin, c := time.Now(), m.route[0]
			want := fmt.Sprintf("c%d %d", c, m.port[c])
			if !m.there[c] {
				want = fmt.Sprintf("c%d is missing", c)
			}
			for goCPOutcome(m.watches[0].got()) != want {
				if advance(10 * time.Millisecond); time.Since(begin) > time.Minute {
					t.Fatalf("step %d: after a minute the target has %q, want %q", i, goCPOutcome(m.watches[0].got()), want)
				}
			}
			took = append(took, time.Since(begin))
			advance(100 * time.Millisecond) // for requests that unsubscribe
		}
	})
	return took
}

func routeTo(c int) func(*goCPHistory)           { return func(m *goCPHistory) { m.route[0] = c } }
func setThere(c int, is bool) func(*goCPHistory) { return func(m *goCPHistory) { m.there[c] = is } }

// TestServiceFlaps: a service that is deleted and created again, many times within
// Options.ResourceTimeout, has its endpoints while it is there.
func TestServiceFlaps(t *testing.T) {
	for _, delta := range []bool{false, true} {
		var steps []func(*goCPHistory)
		for range 100 {
			steps = append(steps, setThere(0, false), func(m *goCPHistory) { m.there[0], m.port[0] = true, m.port[0]+goCPSize })
		}
		for i, d := range goCPSteps(t, delta, steps...) {
			if d > 2*time.Second {
				t.Fatalf("delta=%v: step %d took %v", delta, i, d)
			}
		}
	}
}

// TestDeletedWhileLeft: a cluster that is deleted while no route leads to it counts as missing
// once routes return to it and the server has not sent it in time.
func TestDeletedWhileLeft(t *testing.T) {
	for _, delta := range []bool{false, true} {
		took := goCPSteps(t, delta, routeTo(1), setThere(0, false), routeTo(0))
		if d := took[2]; d > 16*time.Second {
			t.Errorf("delta=%v: in use for %v", delta, d)
		}
	}
}

// TestDeletedAfterReturn: a cluster that routes have left and returned to is deleted as others
// are, at once.
func TestDeletedAfterReturn(t *testing.T) {
	for _, delta := range []bool{false, true} {
		took := goCPSteps(t, delta, routeTo(1), routeTo(0), setThere(0, false))
		if d := took[2]; d > 0 {
			t.Errorf("delta=%v: in use for %v", delta, d)
		}
	}
}
