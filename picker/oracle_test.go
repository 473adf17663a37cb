// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/bench/kit/slow"
)

// An oracle picks like a Snapshot but computes everything for each pick, from the configuration
// and states at the last build. Its only state is the positions in the EDF sequences.
type oracle struct {
	cfg      Config
	clusters []oracleCluster
}

type oracleCluster struct {
	leaf       *Leaf // nil: RPCs fail
	localities []oracleLocality
	waits      bool
	inFlight   uint32
}

type oracleLocality struct {
	id      LocalityID
	share   uint32
	weights []uint32 // 0 for endpoints that are not picked
	place   uint64   // in the sequence
}

// build runs after Build. Sequences start at 0. The position after a change of weights is
// tested in edf; TestBuildContinuity tests the result.
func (o *oracle) build(w *world) {
	o.cfg = *w.cfg
	o.clusters = slices.Grow(o.clusters, len(w.states))[:len(w.states)]
	for i, s := range w.states {
		c := &o.clusters[i]
		before := c.localities
		c.leaf, c.localities, c.waits = nil, nil, false
		if s.Leaf < 0 {
			continue
		}
		c.leaf = &w.cfg.Clusters[i].Leaves[s.Leaf]
		for k, l := range c.leaf.Priorities[s.Priority].Localities {
			now := oracleLocality{id: l.ID, share: l.Weight}
			if c.leaf.Policy.Flat && k > 0 { // goes into the layer that there is
				now.id, now.weights = LocalityID{}, c.localities[0].weights
				c.localities = nil
			}
			for j, e := range l.Endpoints.All() {
				weight := e.Weight
				if c.leaf.Policy.Kind == PolicyRoundRobin {
					weight = 1
				}
				state := s.Localities[k].Endpoints.State(j).Connectivity
				if e.Health == Draining || state != Ready {
					weight = 0
				}
				now.weights = append(now.weights, weight)
				c.waits = c.waits || e.Health != Draining && (state == Idle || state == Connecting)
			}
			c.localities = append(c.localities, now)
		}
		for k := range c.localities {
			now := &c.localities[k]
			for _, old := range before {
				if old.id != now.id {
					continue
				} else if slices.Equal(old.weights, now.weights) {
					now.place = old.place
				} else if sameActive(old.weights, now.weights) && slow.Sum(now.weights) > 0 {
					now.place = placeOf(w.snapshot.clusters.At(i), w.loads[i], now.id)
				}
			}
		}
	}
}

// sameActive reports whether the same indexes have a weight in a and b.
func sameActive(a, b []uint32) bool {
	return slices.EqualFunc(a, b, func(v, w uint32) bool { return (v > 0) == (w > 0) })
}

// placeOf is the place of a locality, or of all localities if id is zero.
func placeOf(c *cluster, loads *ClusterLoad, id LocalityID) uint64 {
	var load *Load
	if id != (LocalityID{}) {
		load = loads.Locality(id)
	}
	g := c.groupOf(&groupInput{load: load})
	return g.schedule.Place(g.cursor.issued.Load())
}

func (o *oracle) pick(path string, r uint64) Result {
	route := slowMatch(o.cfg.Routes, path, nil, r)
	if route == noRoute {
		return Result{NoRoute, -1, -1, 0}
	}
	to := o.cfg.Routes[route].Clusters
	if len(to) == 0 {
		return Result{NotForwarding, route, -1, 0}
	}
	name := to[drawIndex(len(to), draw(r, drawCluster), func(i int) uint32 { return to[i].Weight })].Name
	cluster := int32(slices.IndexFunc(o.cfg.Clusters, func(c *Cluster) bool { return c.Name == name }))
	c := &o.clusters[cluster]
	total := uint64(0)
	for _, l := range c.localities {
		total += slow.Sum(l.weights)
	}
	if total == 0 && c.waits {
		return Result{Queue, route, cluster, 0}
	} else if total == 0 {
		return Result{Failed, route, cluster, 0}
	}
	passed := probability(0)
	for i, d := range c.leaf.Drops {
		passed += (always - passed).perMillion(d.PerMillion)
		if passed.hit(draw(r, drawDrop)) {
			return Result{Dropped, route, cluster, int32(i)}
		}
	}
	if c.inFlight >= c.leaf.MaxRequests {
		return Result{Overloaded, route, cluster, 0}
	}
	c.inFlight++
	k := drawIndex(len(c.localities), r, func(i int) uint32 {
		if l := c.localities[i]; slow.Sum(l.weights) > 0 {
			return l.share
		}
		return 0
	})
	index := 0
	for _, l := range c.localities[:k] {
		index += len(l.weights)
	}
	l := &c.localities[k]
	e := slow.NewEDF(l.weights)
	e.Skip(l.place % slow.Period(l.weights))
	l.place++
	return Result{Picked, route, cluster, int32(index + e.Next())}
}

// drawIndex leaves the choice to Alias, whose own tests say that it is fair.
func drawIndex(n int, r uint64, weight func(int) uint32) int {
	weights := make([]uint32, n)
	for i := range weights {
		weights[i] = weight(i)
	}
	a, err := NewAlias(weights)
	if err != nil {
		panic(err)
	}
	return a.Pick(r)
}

// mutate changes the world at random, as updates and connections do, without modifying the
// inputs of an earlier Build.
func (w *world) mutate(rng *rand.Rand) {
	i := rng.IntN(len(w.states))
	if rng.IntN(2) == 0 { // connections
		for _, e := range w.flat(i) {
			if rng.IntN(3) == 0 {
				e.Connectivity = pick(rng, Ready, Ready, Ready, Connecting, Idle, TransientFailure)
			}
		}
		w.states[i].Version++
		return
	}
	cfg := *w.cfg
	cfg.Clusters = slices.Clone(cfg.Clusters)
	old := w.leaf(i)
	leaf := *old
	leaf.Priorities = nil
	if rng.IntN(10) > 0 {
		p := Priority{}
		for k := range 3 {
			var list []Endpoint
			if len(old.Priorities) > 0 && k < len(old.Priorities[0].Localities) && rng.IntN(2) == 0 {
				list = old.Priorities[0].Localities[k].Endpoints.Slice()
				for j := range list {
					list[j].Weight = 1 + rng.Uint32N(6)
				}
			} else {
				for j := range rng.IntN(6) {
					list = append(list, Endpoint{Addr: address(k*10 + j), Weight: pick(rng, uint32(4), 1+rng.Uint32N(6)), Health: Health(rng.IntN(8) / 7)})
				}
			}
			p.Localities = append(p.Localities, zone(fmt.Sprint(k), 1+rng.Uint32N(5), list))
		}
		leaf.Priorities = []Priority{p}
	}
	leaf.Policy.Kind = PolicyKind(rng.IntN(8) / 7) // now and then PolicyRoundRobin
	leaf.Policy.Flat = rng.IntN(4) == 0
	leaf.Drops = nil
	for k := range rng.IntN(3) {
		leaf.Drops = append(leaf.Drops, Drop{fmt.Sprint(k), pick(rng, 0, 10000, rng.Uint32N(300000))})
	}
	leaf.MaxRequests = pick(rng, uint32(1024), 3, 0)
	cfg.Clusters[i] = &Cluster{Name: w.cfg.Clusters[i].Name, Leaves: []Leaf{leaf}}
	if rng.IntN(4) == 0 {
		cfg.Routes = clusterRoutes(rng, cfg.Clusters)
	}
	if rng.IntN(8) == 0 { // move a cluster
		k := rng.IntN(len(cfg.Clusters))
		cfg.Clusters[i], cfg.Clusters[k] = cfg.Clusters[k], cfg.Clusters[i]
		for _, swap := range []func(){
			func() { w.states[i], w.states[k] = w.states[k], w.states[i] },
			func() { w.breakers[i], w.breakers[k] = w.breakers[k], w.breakers[i] },
			func() { w.loads[i], w.loads[k] = w.loads[k], w.loads[i] },
			func() { w.known[i], w.known[k] = w.known[k], w.known[i] },
		} {
			swap()
		}
		i = k
	}
	w.cfg = &cfg
	w.renew(i)
}

// clusterRoutes makes routes without headers to some of the clusters.
func clusterRoutes(rng *rand.Rand, clusters []*Cluster) []Route {
	routes := make([]Route, 1+rng.IntN(4))
	for i := range routes {
		routes[i].Path = StringMatch{Kind: MatchKind(rng.IntN(2)), Value: pick(rng, "", "/a/", "/a/b")}
		for range rng.IntN(4) {
			routes[i].Clusters = append(routes[i].Clusters, WeightedCluster{Name: clusters[rng.IntN(len(clusters))].Name, Weight: 1 + rng.Uint32N(9)})
		}
		if rng.IntN(4) == 0 {
			f := rng.Uint32N(1e6)
			routes[i].Fraction = &f
		}
	}
	return routes
}

// Every pick is the oracle's, through random changes, builds, picks and ends of
// RPCs, and at the end every count is right.
func TestPickOracle(t *testing.T) {
	worlds := 60
	if testing.Short() || raceEnabled {
		worlds = 20
	}
	var seen [NotForwarding + 1]int
	for seed := range uint64(worlds) {
		checkPicks(t, seed, &seen)
	}
	for outcome, n := range seen {
		if n < 100 {
			t.Errorf("outcome %d was seen %d times in all", outcome, n)
		}
	}
}

func checkPicks(t *testing.T, seed uint64, seen *[NotForwarding + 1]int) {
	type call struct {
		endpoint *EndpointState
		cluster  string
	}
	var (
		rng         = newRand(seed)
		w, o        = newWorld(), new(oracle)
		outstanding []call
		loads       = make(map[*Load]LoadSnapshot)
		refused     = make(map[*Counter]uint64)
	)
	for range 2 {
		w.add(Leaf{})
	}
	for step := range 400 {
		for range 1 + rng.IntN(3) {
			w.mutate(rng)
		}
		prev := w.snapshot
		s := w.build(t)
		if old := slices.Clone(o.clusters); prev != nil {
			for name, i := range s.index { // the oracle identifies clusters by name, too
				o.clusters[i] = old[prev.index[name]]
			}
		}
		o.build(w)
		for range rng.IntN(30) {
			path, r := pick(rng, "/a/b", "/a/c", "/b"), rng.Uint64()
			want := o.pick(path, r)
			if !s.NeedsRandom() {
				r = 0
			}
			got := s.Pick(bg, path, r)
			if got != want {
				t.Fatalf("seed %d, step %d: Pick(%q, %#x) = %+v, want %+v", seed, step, path, r, got, want)
			}
			seen[got.Outcome]++
			switch got.Outcome {
			case Picked:
				_, _, e := w.endpoint(got.Cluster, got.Index)
				outstanding = append(outstanding, call{e, s.clusters.At(int(got.Cluster)).name})
				n := loads[e.binding.load]
				n.Issued++
				loads[e.binding.load] = n
			case Dropped:
				refused[w.states[got.Cluster].Drops[got.Index]]++
			case Overloaded:
				refused[w.states[got.Cluster].Overload]++
			}
		}
		rng.Shuffle(len(outstanding), func(i, j int) { outstanding[i], outstanding[j] = outstanding[j], outstanding[i] })
		for len(outstanding) > 0 && (step == 399 || rng.IntN(30) > 0) {
			c := outstanding[0]
			outstanding = outstanding[1:]
			c.endpoint.Finish(CallOK)
			n := loads[c.endpoint.binding.load]
			n.OK++
			loads[c.endpoint.binding.load] = n
			o.clusters[s.index[c.cluster]].inFlight--
		}
	}
	for load, want := range loads {
		if got := load.Snapshot(); got != want {
			t.Errorf("seed %d: counted %+v, want %+v", seed, got, want)
		}
	}
	for counter, want := range refused {
		if got := counter.Load(); got != want {
			t.Errorf("seed %d: %d refusals were counted, want %d", seed, got, want)
		}
	}
	for i, b := range w.breakers {
		if b.InFlight() != 0 {
			t.Errorf("seed %d: %d RPCs in flight to cluster %d at the end", seed, b.InFlight(), i)
		}
	}
}
