// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker/persistent"
)

// A world is a configuration with everything a caller of Build keeps beside it.
type world struct {
	cfg        *Config
	states     []ClusterState
	breakers   []*Breaker
	loads      []*ClusterLoad
	known      []map[string]*EndpointState // by cluster, then address
	builder    builder
	env        Env
	snapshot   *Snapshot
	unreported bool          // of loads
	time       time.Duration // of clock
	clock      *Clock        // of endpoints that are timed
}

// newWorld has one route for everything to one cluster whose only priority has
// the given localities, all READY.
func newWorld(localities ...Locality) *world {
	w := &world{
		cfg: &Config{
			Routes: []Route{{Clusters: []WeightedCluster{{Name: "c0", Weight: 1}}}},
		},
		builder: builder{start: func() uint64 { return 0 }},
	}
	w.clock = NewExactClock(func() int64 { return int64(w.time) })
	w.add(Leaf{MaxRequests: 1024, Priorities: []Priority{{Localities: localities}}})
	return w
}

// add adds a cluster with one leaf and makes all its endpoints READY.
func (w *world) add(leaf Leaf) {
	i := len(w.cfg.Clusters)
	leaf.Name = fmt.Sprintf("c%d", i)
	w.cfg.Clusters = append(w.cfg.Clusters, &Cluster{Name: leaf.Name, Leaves: []Leaf{leaf}})
	w.states = append(w.states, ClusterState{})
	w.breakers = append(w.breakers, new(Breaker))
	w.loads = append(w.loads, &ClusterLoad{Unreported: w.unreported})
	w.known = append(w.known, make(map[string]*EndpointState))
	w.renew(i)
	for _, l := range w.states[i].Localities {
		for _, e := range l.Endpoints.(StateSlice) {
			e.Connectivity = Ready
		}
	}
}

// leaf is the only leaf of cluster i.
func (w *world) leaf(i int) *Leaf { return &w.cfg.Clusters[i].Leaves[0] }

// renew brings the state of cluster i in line with its configuration, as
// integrate does: endpoints keep their state by locality and address.
func (w *world) renew(i int) {
	leaf, s := w.leaf(i), &w.states[i]
	s.Version++
	s.Breaker, s.Overload, s.Drops = w.breakers[i], w.loads[i].Overload(), nil
	for _, d := range leaf.Drops {
		s.Drops = append(s.Drops, w.loads[i].Drop(d.Category))
	}
	s.Localities = nil
	if len(leaf.Priorities) == 0 {
		s.Leaf, s.Failed = -1, true
		return
	}
	s.Leaf, s.Failed = 0, false
	for _, l := range leaf.Priorities[s.Priority].Localities {
		ls := LocalityState{Load: w.loads[i].Locality(l.ID)}
		var list StateSlice
		for _, e := range l.Endpoints.All() {
			counts := leaf.Policy.CountsInFlight()
			timed := leaf.Policy.TimesRPCs()
			key := fmt.Sprint(l.ID, e.Addr, counts, timed)
			if w.known[i][key] == nil {
				w.known[i][key] = new(EndpointState)
				b := NewBinding(ls.Load, s.Breaker, counts)
				if timed {
					b = NewTimedBinding(ls.Load, s.Breaker, w.clock)
				}
				w.known[i][key].Bind(b)
			}
			list = append(list, w.known[i][key])
		}
		ls.Endpoints = list
		s.Localities = append(s.Localities, ls)
	}
}

// ready is renew of the first cluster, and makes all its endpoints READY.
func (w *world) ready() {
	w.renew(0)
	for _, e := range w.flat(0) {
		e.Connectivity = Ready
	}
}

// rebuild builds after a change of the first cluster's state.
func (w *world) rebuild(t testing.TB) *Snapshot {
	t.Helper()
	w.states[0].Version++
	return w.build(t)
}

// flat returns the endpoints that picks of cluster i index.
func (w *world) flat(i int) (list []*EndpointState) {
	for _, l := range w.states[i].Localities {
		list = appendStates(list, l.Endpoints)
	}
	return list
}

// endpoint returns the endpoint that a pick of cluster i with that index means.
func (w *world) endpoint(i, index int32) (locality int, cfg *Endpoint, state *EndpointState) {
	localities := w.leaf(int(i)).Priorities[w.states[i].Priority].Localities
	for k := range localities {
		if n := int32(localities[k].Endpoints.Len()); index >= n {
			index -= n
			continue
		}
		return k, localities[k].Endpoints.At(int(index)), w.states[i].Localities[k].Endpoints.(StateSlice)[index]
	}
	return -1, nil, nil
}

func (w *world) build(t testing.TB) *Snapshot {
	t.Helper()
	w.builder.env = w.env.withDefaults()
	s, err := w.builder.build(w.snapshot, w.cfg, w.states)
	kit.Must(t, err)
	w.snapshot = s
	return s
}

// endpoints returns one endpoint for each weight, on addresses of their own in
// 10.0.0.0/8 from number first.
func endpoints(first int, weights ...uint32) []Endpoint {
	list := make([]Endpoint, len(weights))
	for i, w := range weights {
		list[i] = Endpoint{Addr: address(first + i), Weight: w}
	}
	return list
}

func address(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 443)
}

// indexOf returns i of address(i).
func indexOf(a netip.AddrPort) int {
	b := a.Addr().As4()
	return int(b[1])<<16 | int(b[2])<<8 | int(b[3])
}

func zone(name string, weight uint32, endpoints []Endpoint) Locality {
	return Locality{ID: LocalityID{Region: "r", Zone: name}, Weight: weight, Endpoints: ListOf(endpoints...)}
}

// edit changes an endpoint of l.
func edit(l *Locality, i int, f func(*Endpoint)) {
	e := *l.Endpoints.At(i)
	f(&e)
	l.Endpoints = replace(l.Endpoints, i, i+1, e)
}

// replace returns a version of a list in which the endpoints [i, j) are replaced by others.
func replace(list EndpointList, i, j int, others ...Endpoint) EndpointList {
	var b persistent.Builder[Endpoint]
	b.Follow(list, list.Len()+len(others))
	for k, e := range slices.Insert(list.Slice(), j, others...) {
		switch {
		case k < i:
			b.Add(e, k)
		case k >= j && k < j+len(others):
			b.Add(e, -1)
		case k >= j:
			b.Add(e, k-len(others))
		}
	}
	return b.List()
}

// reweigh gives an endpoint of the first locality of cluster 0 another weight.
func (w *world) reweigh(i int, weight uint32) {
	edit(&w.leaf(0).Priorities[0].Localities[0], i, func(e *Endpoint) { e.Weight = weight })
}

var bg = context.Background()

var raceEnabled bool

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }
