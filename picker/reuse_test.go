// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestVersionsChangeNothing checks that a cluster whose localities have versions equals one
// built from all endpoints: the same groups, with the same picks at the same positions, in
// random histories.
func TestVersionsChangeNothing(t *testing.T) {
	taken, followed := 0, 0
	for seed := range uint64(60) {
		h := newVersionHistory(seed)
		for step := range 60 {
			what := h.change()
			prev := h.fast.clusters.At(0)
			h.build(t)
			is, want := h.fast.clusters.At(0), h.slow.clusters.At(0)
			if err := sameCluster(is, want); err != nil {
				t.Fatalf("history %d, step %d, %s: %v", seed, step, what, err)
			}
			for i := range is.groups {
				for k := range prev.groups {
					if is.groups[i].schedule != nil && is.groups[i].schedule == prev.groups[k].schedule {
						taken++
					}
				}
			}
			if what == "weights" && len(is.groups) > 0 {
				followed++
			}
			h.issue(want)
		}
	}
	if taken < 1000 || followed < 100 {
		t.Errorf("%d groups were taken over and %d weights changed: too few to say anything", taken, followed)
	}
}

// A versionHistory is a cluster that is built twice after each change: with versions of its
// localities, and without.
type versionHistory struct {
	*world
	rng        *rand.Rand
	fast, slow *Snapshot
	seen       map[*Load]string // the state that a version identifies
	version    map[*Load]uint64
	endpoints  int // that there have been
}

func newVersionHistory(seed uint64) *versionHistory {
	h := &versionHistory{rng: newRand(seed), seen: map[*Load]string{}, version: map[*Load]uint64{}}
	var list []Locality
	for i := range 1 + h.rng.IntN(4) {
		list = append(list, zone(fmt.Sprint(i), 1+h.rng.Uint32N(3), h.some(1+h.rng.IntN(12))))
	}
	h.world = newWorld(list...)
	h.builder.env = h.env.withDefaults()
	h.switchPolicy()
	h.build(nil)
	return h
}

// some returns so many new endpoints.
func (h *versionHistory) some(n int) []Endpoint {
	list := endpoints(h.endpoints, make([]uint32, n)...)
	for i := range list {
		list[i].Weight = 1 + h.rng.Uint32N(20)
	}
	h.endpoints += n
	return list
}

// build builds both snapshots.
func (h *versionHistory) build(t *testing.T) {
	h.builder.env.Now = int64(h.time)
	h.states[0].Version++
	for k := range h.states[0].Localities {
		l := &h.states[0].Localities[k]
		now := fmt.Sprint(l.Load)
		for _, e := range l.Endpoints.(StateSlice) {
			now += fmt.Sprintf(" %p %v %v %v %v %v", e, e.binding, e.Connectivity, e.Ejected, e.StateSince, e.weight)
		}
		if now != h.seen[l.Load] || h.rng.IntN(20) == 0 {
			h.seen[l.Load] = now
			h.version[l.Load]++
		}
		l.Version = h.version[l.Load]
	}
	h.fast = h.next(t, h.fast)
	for k := range h.states[0].Localities {
		h.states[0].Localities[k].Version = 0
	}
	h.slow = h.next(t, h.slow)
}

func (h *versionHistory) next(t *testing.T, prev *Snapshot) *Snapshot {
	if prev == nil {
		s, err := h.builder.build(nil, h.cfg, h.states)
		kit.Must(t, err)
		return s
	}
	return h.builder.rebuild(prev, []ClusterChange{{0, h.cfg.Clusters[0], &h.states[0]}})
}

// issue counts RPCs, as many in both snapshots.
func (h *versionHistory) issue(c *cluster) {
	for i := range c.groups {
		if g := &c.groups[i]; g.cursor != nil {
			g.cursor.issued.Add(h.rng.Uint64N(30))
		}
	}
	if other := h.fast.clusters.At(0); other.cursor != nil && c.cursor != nil {
		other.cursor.issued.Store(c.cursor.issued.Load())
	}
}

// switchPolicy makes the policy another one.
func (h *versionHistory) switchPolicy() {
	p := policies[h.rng.IntN(len(policies))]
	if h.rng.IntN(2) == 0 {
		p = Policy{Kind: PolicyEDF}
	}
	p.Flat = h.rng.IntN(3) == 0
	if h.rng.IntN(4) == 0 {
		p = Policy{Kind: PolicyEDF, ZoneAware: &ZoneAware{Enabled: .5, ByWeight: true}}
	}
	if h.rng.IntN(3) > 0 {
		p.SlowStart = nil
	}
	h.leaf(0).Policy = p
	h.leaf(0).Origin = &Origin{Locality: LocalityID{Region: "r", Zone: "0"}, Fleet: []ZoneSize{
		{ID: LocalityID{Region: "r", Zone: "0"}, Endpoints: 2, Weight: 20}, {ID: LocalityID{Region: "r", Zone: "1"}, Endpoints: 2, Weight: 20}}}
	h.renew(0)
	for _, e := range h.flat(0) {
		if h.rng.IntN(8) > 0 {
			e.Connectivity = Ready
		}
	}
}

// change makes a random change, and describes it.
func (h *versionHistory) change() string {
	leaf := *h.leaf(0)
	list := slices.Clone(leaf.Priorities[0].Localities)
	l := &list[h.rng.IntN(len(list))]
	k := h.rng.IntN(l.Endpoints.Len())
	at := *l.Endpoints.At(k)
	set := func(e Endpoint) { l.Endpoints = replace(l.Endpoints, k, k+1, e) }
	all := h.flat(0)
	e := all[h.rng.IntN(len(all))]
	what := ""
	switch n := h.rng.IntN(20); n {
	case 0, 1, 2, 3, 4, 5:
		what = "weights"
		for range 1 + h.rng.IntN(2) {
			k = h.rng.IntN(l.Endpoints.Len())
			at = *l.Endpoints.At(k)
			at.Weight = 1 + h.rng.Uint32N(20)
			set(at)
		}
	case 6:
		what = "health"
		at.Health ^= Healthy ^ Draining
		set(at)
	case 7:
		what = "endpoints"
		l.Endpoints = replace(l.Endpoints, k, k, h.some(1)...)
	case 8:
		what = "endpoints"
		if l.Endpoints.Len() > 1 {
			l.Endpoints = replace(l.Endpoints, k, k+1)
		}
	case 9:
		what = "a locality more"
		list = append(list, zone(fmt.Sprint("z", h.endpoints), 1+h.rng.Uint32N(3), h.some(3)))
	case 10:
		what = "a locality less"
		if len(list) > 1 {
			k := h.rng.IntN(len(list))
			list = slices.Delete(list, k, k+1)
		}
	case 11:
		what = "the order of localities"
		h.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	case 12:
		what = "the weight of a locality"
		l.Weight = 1 + h.rng.Uint32N(3)
	case 13:
		what = "extreme weights"
		at.Weight = 1 << 31 * h.rng.Uint32N(2)
		set(at)
	case 14:
		what = "the policy"
		h.switchPolicy()
		return what
	default:
		what = "a state"
		switch n {
		case 15:
			e.Ejected = !e.Ejected
		case 16:
			e.SetWeight(float64(h.rng.IntN(5)))
		case 17:
			h.time += time.Duration(h.rng.IntN(10)) * time.Second
		default:
			e.Connectivity, e.StateSince = Connectivity(h.rng.IntN(4)), int64(h.time)
		}
		return what
	}
	leaf.Priorities = []Priority{{Localities: list}}
	h.cfg.Clusters[0] = &Cluster{Name: h.cfg.Clusters[0].Name, Leaves: []Leaf{leaf}}
	h.renew(0)
	return what
}

// sameCluster returns the difference between a and b.
func sameCluster(a, b *cluster) error {
	if a.outcome != b.outcome || fmt.Sprint(a.err) != fmt.Sprint(b.err) || len(a.groups) != len(b.groups) || a.random != b.random || a.inSlowStart != b.inSlowStart {
		return fmt.Errorf("outcome %v (%v) with %d groups, slow start %v, want %v (%v) with %d, %v",
			a.outcome, a.err, len(a.groups), a.inSlowStart, b.outcome, b.err, len(b.groups), b.inSlowStart)
	}
	if (a.alias == nil) != (b.alias == nil) || a.alias != nil && !slices.Equal(a.alias.cells, b.alias.cells) {
		return fmt.Errorf("localities are drawn by %v, want %v", a.alias, b.alias)
	}
	for i := range a.groups {
		g, h := &a.groups[i], &b.groups[i]
		if g.rule != h.rule || g.first != h.first || g.load != h.load || g.selected != h.selected || !slices.Equal(g.endpoints, h.endpoints) {
			return fmt.Errorf("group %d is %+v, want %+v", i, g, h)
		}
		switch g.rule {
		case inSequence:
			if !slices.Equal(g.schedule.Weights(), h.schedule.Weights()) || g.cursor.issued.Load() != h.cursor.issued.Load() {
				return fmt.Errorf("group %d has weights %v at %d, want %v at %d", i, g.schedule.Weights(), g.cursor.issued.Load(), h.schedule.Weights(), h.cursor.issued.Load())
			}
			for k := range uint64(100) {
				ticket := g.cursor.issued.Load() + k
				if got, want := g.schedule.At(ticket), h.schedule.At(ticket); got != want {
					return fmt.Errorf("pick %d of group %d is %d, want %d", k, i, got, want)
				}
			}
		case byHash:
			for k := range uint64(100) {
				got, outcome := g.hashing.pick(k << 57)
				if want, to := h.hashing.pick(k << 57); got != want || outcome != to {
					return fmt.Errorf("hash %d of group %d is %v of %d, want %v of %d", k, i, outcome, got, to, want)
				}
			}
		case byLeastRequest:
			if !slices.Equal(g.least.candidates, h.least.candidates) || g.least.choices != h.least.choices {
				return fmt.Errorf("group %d has candidates %v, want %v", i, g.least.candidates, h.least.candidates)
			}
		case byLeastLatency:
			if !slices.Equal(g.latency.candidates, h.latency.candidates) {
				return fmt.Errorf("group %d has candidates %v, want %v", i, g.latency.candidates, h.latency.candidates)
			}
		}
	}
	return nil
}
