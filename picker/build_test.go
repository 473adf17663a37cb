// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/kit/slow"
)

// Unchanged parts are reused, down to the pointer.
func TestBuildTakesOver(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 2)), zone("b", 1, endpoints(2, 3, 4)))
	w.add(Leaf{MaxRequests: 1, Priorities: []Priority{{Localities: []Locality{zone("a", 1, endpoints(0, 1))}}}})
	first := w.build(t)

	second := w.build(t)
	if second.table != first.table || second.clusters.At(0) != first.clusters.At(0) || second.clusters.At(1) != first.clusters.At(1) {
		t.Error("a build without a change makes something new")
	}

	w.flat(0)[2].Connectivity = Connecting
	third := w.rebuild(t)
	was, is := second.clusters.At(0).groups, third.clusters.At(0).groups
	if third.clusters.At(1) != second.clusters.At(1) {
		t.Error("an unchanged cluster is rebuilt")
	}
	if is[0].schedule != was[0].schedule {
		t.Error("an unchanged locality is rebuilt")
	}
	if is[1].schedule == was[1].schedule {
		t.Error("a locality that lost an endpoint is taken over")
	}

	cfg := *w.cfg
	cfg.Clusters = []*Cluster{w.cfg.Clusters[1], w.cfg.Clusters[0]}
	w.cfg, w.states = &cfg, []ClusterState{w.states[1], w.states[0]}
	fourth := w.build(t)
	if fourth.clusters.At(0) != third.clusters.At(1) || fourth.clusters.At(1) != third.clusters.At(0) {
		t.Error("moved clusters are rebuilt")
	}
	if got := fourth.Pick(bg, "/s/m", 0); got.Cluster != 1 {
		t.Errorf("a route leads to cluster %d after its cluster moved to 1", got.Cluster)
	}

	cfg.Routes = slices.Clone(cfg.Routes)
	if w.build(t).table == fourth.table {
		t.Error("routes that changed are taken over")
	}
}

// TestBuildRouted: Build takes the compiled routes of Env.Routed, unless they are of other routes or
// other clusters.
func TestBuildRouted(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)))
	w.add(Leaf{MaxRequests: 1, Priorities: []Priority{{Localities: []Locality{zone("a", 1, endpoints(0, 1))}}}})
	first := w.build(t)
	cfg := *w.cfg
	cfg.Routes = slices.Clone(cfg.Routes)
	states := []ClusterState{{Leaf: -1}, {Leaf: -1}}
	routed, err := Build(nil, &cfg, states, Env{})
	kit.Must(t, err)
	next, err := Build(first, &cfg, w.states, Env{Routed: routed})
	kit.Must(t, err)
	if next.table != routed.table || next.clusters.At(0) != first.clusters.At(0) {
		t.Error("routes that were compiled are compiled again, or clusters are not taken from the previous snapshot")
	}
	if next.env.Routed != nil {
		t.Error("a snapshot keeps the one with the compiled routes")
	}

	other := cfg
	other.Clusters = []*Cluster{cfg.Clusters[1], cfg.Clusters[0]}
	next, err = Build(first, &other, []ClusterState{w.states[1], w.states[0]}, Env{Routed: routed})
	kit.Must(t, err)
	if got := next.Pick(bg, "/s/m", 0); got.Cluster != 1 {
		t.Errorf("a route leads to cluster %d after its cluster moved to 1", got.Cluster)
	}
	other = cfg
	other.Routes = slices.Clone(cfg.Routes)
	if next, err = Build(first, &other, w.states, Env{Routed: routed}); err != nil || next.table == routed.table {
		t.Errorf("the compiled form of other routes is used (%v)", err)
	}
}

// TestRebuild checks that for random changes of some clusters, a snapshot made from these alone
// equals the result of Build.
func TestRebuild(t *testing.T) {
	rng := newRand(9)
	w := newWorld(zone("a", 1, endpoints(0, 1, 2)), zone("b", 1, endpoints(2, 3, 4)))
	for i := 1; i < 8; i++ {
		leaf := Leaf{MaxRequests: 1, Priorities: []Priority{{Localities: []Locality{zone("a", 1, endpoints(10*i, 1, 2, 3))}}}}
		if i%3 == 0 {
			leaf.Drops = []Drop{{Category: "d", PerMillion: 1000}}
		}
		w.add(leaf)
	}
	rebuilt := w.build(t)
	for range 3000 {
		var changes []ClusterChange
		for i := range w.states {
			if rng.IntN(4) > 0 {
				continue
			}
			c := *w.cfg.Clusters[i]
			c.Err = nil
			switch rng.IntN(6) {
			case 0:
				c.Err = errors.New("invalid")
			case 1:
				c.Leaves = slices.Clone(c.Leaves)
				c.Leaves[0].Drops = []Drop{{Category: "d", PerMillion: rng.Uint32N(2) * 1000}}
			default:
				e := w.flat(i)
				e[rng.IntN(len(e))].Connectivity = Connectivity(rng.IntN(4))
			}
			w.cfg.Clusters[i] = &c
			w.renew(i)
			changes = append(changes, ClusterChange{i, &c, &w.states[i]})
		}
		before := rebuilt
		rebuilt = w.builder.rebuild(before, changes)
		w.snapshot = before
		built := w.build(t)
		if rebuilt.table != built.table || rebuilt.drawing != built.drawing || rebuilt.random != built.random {
			t.Fatalf("rebuilt with %d clusters that draw, built with %d", rebuilt.drawing, built.drawing)
		}
		for i := range rebuilt.clusters.Len() {
			a, b := rebuilt.clusters.At(i), built.clusters.At(i)
			if a.version != b.version || a.outcome != b.outcome || a.random != b.random || len(a.groups) != len(b.groups) || !slices.Equal(a.drops, b.drops) || fmt.Sprint(a.err) != fmt.Sprint(b.err) {
				t.Fatalf("cluster %d: rebuilt %+v, built %+v", i, a, b)
			}
			changed := slices.ContainsFunc(changes, func(ch ClusterChange) bool { return ch.Index == i })
			if !changed && a != before.clusters.At(i) || changed && a == before.clusters.At(i) {
				t.Fatalf("cluster %d: changed = %v, and the snapshot differs", i, changed)
			}
			r := rng.Uint64()
			outcome := func(s *Snapshot) Outcome {
				res := s.PickCluster(bg, -1, int32(i), r)
				if res.Outcome == Picked {
					w.flat(i)[res.Index].Finish(CallOK)
				}
				return res.Outcome
			}
			if x, y := outcome(rebuilt), outcome(built); x != y {
				t.Fatalf("cluster %d: rebuilt %v, built %v", i, x, y)
			}
		}
	}
}

// New weights go on from the same place, not from the start (D2): 10 picks are
// 3/7 of a round of weights 1:2:4, and with 2:2:4, whose order is cabc, the
// nearest place is 3 picks in.
func TestBuildKeepsPlace(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 2, 4)))
	picks(t, w.build(t), 10)
	w.reweigh(0, 2)
	if got, want := picks(t, w.rebuild(t), 6), "ccabcc"; got != want {
		t.Errorf("after a change of weights picks %s, want %s", got, want)
	}
}

// A new sequence starts anywhere with the same probability: the first pick of
// many fresh snapshots is distributed like all picks (D2).
func TestBuildRandomStart(t *testing.T) {
	rounds := 20000.
	if raceEnabled {
		rounds = 4000
	}
	w := newWorld(zone("a", 1, endpoints(0, 1, 9, 90)))
	rng := newRand(1)
	w.builder.start = rng.Uint64
	var counts [3]float64
	for range int(rounds) {
		w.snapshot = nil
		counts[w.build(t).Pick(bg, "/s/m", 0).Index]++
		w.flat(0)[0].Finish(CallOK)
	}
	for i, share := range []float64{.01, .09, .9} {
		if math.Abs(counts[i]-rounds*share) > 4*math.Sqrt(rounds*share*(1-share)) {
			t.Errorf("endpoint %d is the first of %v of %v snapshots, want a share of %v", i, counts[i], rounds, share)
		}
	}
	// Build itself draws, too.
	firsts := make(map[int32]bool)
	for range 400 { // all with the same has a chance of .9⁴⁰⁰
		s, err := Build(nil, w.cfg, w.states, Env{})
		kit.Must(t, err)
		firsts[s.clusters.At(0).groups[0].first+int32(s.clusters.At(0).groups[0].schedule.At(0))] = true
	}
	if len(firsts) < 2 {
		t.Error("all snapshots start with the same endpoint")
	}
}

// Shares hold however often snapshots are replaced: with nothing changed, with
// weights that wander, and with an endpoint that comes and goes. (Changes that
// keep time with the picks can beat the average; random ones cannot.)
func TestBuildContinuity(t *testing.T) {
	rounds := 100000
	if testing.Short() || raceEnabled {
		rounds = 4000
	}
	rng := newRand(2)
	for _, test := range []struct {
		name   string
		change func(w *world, i int)
	}{
		{"nothing", func(*world, int) {}},
		{"a weight", func(w *world, _ int) {
			list := w.leaf(0).Priorities[0].Localities[0].Endpoints
			i := rng.IntN(list.Len())
			w.reweigh(i, list.At(i).Weight^1)
		}},
		{"all weights", func(w *world, _ int) {
			for k := range w.leaf(0).Priorities[0].Localities[0].Endpoints.Len() {
				w.reweigh(k, uint32(k+1)*10+rng.Uint32N(4))
			}
		}},
		{"endpoint", func(w *world, i int) { w.flat(0)[4].Connectivity = []Connectivity{Ready, TransientFailure}[i%2] }},
	} {
		w := newWorld(zone("a", 1, endpoints(0, 10, 20, 30, 40, 50)))
		w.leaf(0).MaxRequests = math.MaxUint32
		w.builder.start = newRand(1).Uint64
		counts, due := make([]float64, 5), make([]float64, 5)
		for i := range rounds {
			test.change(w, i)
			s := w.rebuild(t)
			weights := s.clusters.At(0).groups[0].schedule.Weights()
			for k, weight := range weights {
				due[k] += 10 * float64(weight) / float64(slow.Sum(weights))
			}
			for range 10 {
				counts[s.Pick(bg, "/s/m", 0).Index]++
			}
		}
		for k := range counts {
			if math.Abs(counts[k]/due[k]-1) > .05 {
				t.Errorf("%s: endpoint %d has %v picks, want %v ± 5 %%", test.name, k, counts[k], due[k])
			}
		}
	}
}

func TestBuildErrors(t *testing.T) {
	for _, test := range []struct {
		change func(*world)
		want   string
	}{
		{func(w *world) { w.cfg = nil }, "picker: no configuration"},
		{func(w *world) { w.states = nil }, "picker: 0 states for 1 clusters"},
		{func(w *world) { w.cfg.Clusters[0] = nil }, "picker: cluster 0 is nil"},
		{func(w *world) {
			w.cfg.Clusters = append(w.cfg.Clusters, w.cfg.Clusters[0])
			w.states = append(w.states, w.states[0])
		}, `picker: cluster "c0" is configured twice`},
		{func(w *world) { w.cfg.Routes[0].Clusters[0].Name = "x" }, `picker: route 0 "": cluster "x" is not configured`},
	} {
		w := newWorld(zone("a", 1, endpoints(0, 1, 1)), zone("b", 1, endpoints(2, 1, 1)))
		w.leaf(0).Drops = []Drop{{"x", 1}}
		w.renew(0)
		test.change(w)
		s, err := Build(nil, w.cfg, w.states, Env{})
		if s != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Build = %v, %v; want an error with %q", s, err, test.want)
		}
	}
}

// A cluster that cannot be compiled fails only its own RPCs, until it can be compiled
// (T-WATCH-4).
func TestClusterErrors(t *testing.T) {
	for _, test := range []struct {
		change func(*world)
		want   string
	}{
		{func(w *world) { w.states[0].Leaf = 1 }, `active leaf 1: only 1 leaves`},
		{func(w *world) { w.states[0].Priority = -1 }, `active priority -1: only 1 priorities`},
		{func(w *world) { w.states[0].Priority = 1 }, `active priority 1: only 1 priorities`},
		{func(w *world) { w.states[0].Localities = nil }, "0 states for 2 localities"},
		{func(w *world) { w.states[0].Breaker = nil }, "no circuit breaker"},
		{func(w *world) { w.states[0].Overload = nil }, "no circuit breaker"},
		{func(w *world) { w.states[0].Drops = nil }, "drop categories: want 1 counters"},
		{func(w *world) { w.states[0].Drops[0] = nil }, "drop categories: want 1 counters"},
		{func(w *world) { w.leaf(0).Drops[0].PerMillion = 1e6 + 1 }, `drop category "x": 1000001 per million`},
		{func(w *world) { w.leaf(0).Policy.Kind = 99 }, "policy kind 99 is not supported"},
		{func(w *world) { w.states[0].Localities[0].Endpoints = nil }, "locality {r a }: endpoint states: want 2"},
		{func(w *world) { w.states[0].Localities[0].Load = nil }, "locality {r a }: no load counters"},
		{func(w *world) { w.states[0].Localities[0].Endpoints.(StateSlice)[1] = nil }, "endpoint 1 (10.0.0.1:443) is not bound to the counters"},
		{func(w *world) { w.states[0].Localities[1].Endpoints.(StateSlice)[0] = new(EndpointState) }, "endpoint 0 (10.0.0.2:443) is not bound to the counters"},
		{func(w *world) { w.states[0].Breaker = new(Breaker) }, "is not bound to the counters"},
		{func(w *world) {
			for i := range w.leaf(0).Priorities[0].Localities[0].Endpoints.Len() {
				w.reweigh(i, 0)
			}
		}, `locality {r a }: edf: weights: none of 2 is above zero`},
		{func(w *world) {
			w.leaf(0).Priorities[0].Localities[0].Weight = 0
			w.leaf(0).Priorities[0].Localities[1].Weight = 0
		}, `localities: alias: none of 2 weights is above 0`},
		{func(w *world) { w.states[0].Localities[1].Endpoints.(StateSlice)[1].Connectivity = 4 }, "locality {r b }: endpoint 1 (10.0.0.3:443) has connectivity 4"},
	} {
		w := newWorld(zone("a", 1, endpoints(0, 1, 1)), zone("b", 1, endpoints(2, 1, 1)))
		w.leaf(0).Drops = []Drop{{"x", 1}}
		w.renew(0)
		w.add(Leaf{MaxRequests: 10, Priorities: []Priority{{Localities: []Locality{zone("a", 1, endpoints(0, 1))}}}})
		good := w.build(t)
		test.change(w)
		s := w.rebuild(t)
		if err := s.ClusterErr(0); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ClusterErr = %v; want an error with %q", err, test.want)
		}
		if got := s.Pick(bg, "/s/m", 0).Outcome; got != Failed {
			t.Errorf("%s: outcome %d, want Failed", test.want, got)
		}
		if got := s.PickCluster(bg, -1, 1, 0).Outcome; got != Picked || s.ClusterErr(1) != nil || s.clusters.At(1) != good.clusters.At(1) {
			t.Errorf("%s: the other cluster has outcome %d, error %v", test.want, got, s.ClusterErr(1))
		}
		if w.build(t).ClusterErr(0) != s.ClusterErr(0) {
			t.Errorf("%s: the error disappears without a change", test.want)
		}
	}
	w := newWorld(zone("a", 1, endpoints(0, 1)))
	w.states[0].Breaker = nil
	w.build(t)
	w.renew(0)
	if s := w.build(t); s.ClusterErr(0) != nil || s.Pick(bg, "/s/m", 0).Outcome != Picked || s.ClusterErr(1) != nil || s.ClusterErr(-1) != nil {
		t.Errorf("once it is valid a cluster has error %v", s.ClusterErr(0))
	}
}

// The zero configuration routes nothing, and nil header and prev are allowed.
func TestBuildZero(t *testing.T) {
	s, err := Build(nil, new(Config), nil, Env{})
	kit.Must(t, err)
	if got, want := s.Pick(bg, "/s/m", 0), (Result{NoRoute, -1, -1, 0}); got != want || s.NeedsRandom() {
		t.Errorf("Pick = %+v, want %+v", got, want)
	}
	w := newWorld(zone("a", 1, endpoints(0, 1)))
	w.cfg.Routes[0].Headers = []HeaderMatch{{Name: "x", Kind: HeaderPresent}}
	if got := w.build(t).Pick(bg, "/s/m", 0); got.Outcome != Picked {
		t.Errorf("without a header hook a header is present: %+v", got)
	}
}
