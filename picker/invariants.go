// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package picker

import (
	"fmt"
	"slices"
)

// invariants enables the checks of Build's results, which double its cost.
const invariants = true

// checkInvariants panics if picks could fail in s.
func (s *Snapshot) checkInvariants(states []ClusterState) {
	must := func(ok bool, format string, args ...any) {
		if !ok {
			panic("picker: " + fmt.Sprintf(format, args...))
		}
	}
	for i, r := range s.table.routes {
		must(int(r.cluster) < s.clusters.Len(), "route %d leads to cluster %d of %d", i, r.cluster, s.clusters.Len())
		must((r.cluster == splitClusters) == (r.split != nil), "route %d has cluster %d and split %v", i, r.cluster, r.split)
	}
	for i := range s.clusters.Len() {
		c := s.clusters.At(i)
		must(s.index[c.name] == int32(i), "cluster %d is indexed as %d", i, s.index[c.name])
		must(c.version == states[i].Version, "cluster %d has version %d of %d", i, c.version, states[i].Version)
		must((c.outcome == Picked) == (len(c.groups) > 0), "cluster %d has outcome %d with %d groups", i, c.outcome, len(c.groups))
		must((c.alias != nil) == (len(c.groups) > 1), "cluster %d draws from %d groups", i, len(c.groups))
		must(len(c.drops) == len(c.counts), "cluster %d counts %d drops of %d", i, len(c.counts), len(c.drops))
		for k, bound := range c.drops {
			must(bound <= c.dropped && (k == 0 || bound >= c.drops[k-1]), "cluster %d has drop bounds %v of %v", i, c.drops, c.dropped)
		}
		end := int32(0)
		for k, g := range c.groups {
			must(g.first >= end, "group %d of cluster %d starts at %d, before %d", k, i, g.first, end)
			switch g.rule {
			case inSequence:
				weights := g.schedule.Weights()
				end = g.first + int32(len(weights))
				e := g.schedule.At(g.cursor.issued.Load())
				must(e >= 0 && e < len(weights) && weights[e] > 0, "group %d of cluster %d picks %d of %v", k, i, e, weights)
			case byLeastRequest:
				for _, t := range g.least.candidates {
					must(t.weight > 0 && t.index >= 0, "group %d of cluster %d has candidates %v", k, i, g.least.candidates)
					end = max(end, g.first+t.index+1)
				}
			case byLeastLatency, byZones:
				l := g.latency
				if g.probes != nil {
					l = g.probes.least
				}
				for _, t := range l.candidates {
					must(t.weight > 0 && t.index >= 0 && t.endpoint.binding.timing != nil, "group %d of cluster %d has candidates %v", k, i, l.candidates)
					end = max(end, g.first+t.index+1)
				}
			case byProbes:
				for _, t := range g.probes.least.candidates {
					must(g.probes.index[t.endpoint] == t.index, "group %d of cluster %d has candidates %v", k, i, g.probes.least.candidates)
					end = max(end, g.first+t.index+1)
				}
			case byHash:
				end = g.first + int32(len(g.endpoints))
				h := g.hashing
				must(len(h.hosts) == len(g.endpoints) && len(h.states) == len(g.endpoints), "group %d of cluster %d has %d hosts for %d endpoints", k, i, len(h.hosts), len(g.endpoints))
				_, ok := h.notFailed.find(0)
				_, ready := h.ready.find(0)
				must(ok || !ready, "group %d of cluster %d has READY hosts and all failed", k, i)
			}
		}
	}
}

// checkLoads panics if localities of a priority share a Load, which is the position in the
// sequence of each of them.
func checkLoads(localities []LocalityState) {
	users := make(map[*Load]int, len(localities))
	for i := range localities {
		if k, shared := users[localities[i].Load]; shared && localities[i].Load != nil {
			panic(fmt.Sprintf("picker: localities %d and %d share a Load", k, i))
		}
		users[localities[i].Load] = i
	}
}

// checkReused panics if the reused group g differs from a group compiled from the endpoints of
// in.
func (b *builder) checkReused(g *group, in groupInput, policy *Policy) {
	was := in.count
	if err := b.scan(&in); err != nil {
		panic("picker: reused group: " + err.Error())
	}
	if was != in.count {
		panic(fmt.Sprintf("picker: reused group: %v endpoints by state, want %v", in.count, was))
	}
	states := slices.Collect(func(yield func(*EndpointState) bool) {
		for i := range in.states {
			if !yield(in.endpoints.State(i)) {
				return
			}
		}
	})
	switch g.rule {
	case inSequence:
		if g.selected != nil {
			k := g.first - int32(in.first)
			if states[k] != g.selected || in.states[k] != Ready {
				panic(fmt.Sprintf("picker: reused group: endpoint %d is no longer the selected one, or in state %d", k, in.states[k]))
			}
			return
		}
		aging := b.inSlowStart
		weights := b.endpointWeights(&in, policy)
		if same, _ := g.schedule.Compare(weights); !same {
			panic(fmt.Sprintf("picker: reused group: weights %v, want %v", weights, g.schedule.Weights()))
		}
		if b.inSlowStart != aging {
			panic("picker: reused group: endpoints in slow start differ")
		}
		if g.endpoints != nil && !slices.Equal(g.endpoints, states) {
			panic("picker: reused group: endpoints differ")
		}
	case byHash:
		if !slices.Equal(g.hashing.states, in.states) || !slices.Equal(g.endpoints, states) {
			panic(fmt.Sprintf("picker: reused group: states %v, want %v", in.states, g.hashing.states))
		}
		if p, err := place(g.hashing.placement, g.hashing.spec, in.localities); err != nil || p.ring != g.hashing.ring || p.table != g.hashing.table {
			panic(fmt.Sprintf("picker: reused group: placement differs, %v", err))
		}
		if f, _ := b.fadeIn(g.hashing, nil, &in, policy.SlowStart); f != nil {
			panic("picker: reused group: endpoints in slow start")
		}
	case byLeastRequest:
		sampler, err := b.sampler(&in, policy)
		if err != nil || !slices.Equal(sampler.candidates, g.least.candidates) {
			panic(fmt.Sprintf("picker: reused group: candidates %v, %v, want %v", sampler.candidates, err, g.least.candidates))
		}
	}
}
