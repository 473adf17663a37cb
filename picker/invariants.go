// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "fmt"

// checkInvariants panics if picks could go wrong in s. It runs under the build
// tag invariants only.
func (s *Snapshot) checkInvariants(states []ClusterState) {
	must := func(ok bool, format string, args ...any) {
		if !ok {
			panic("picker: " + fmt.Sprintf(format, args...))
		}
	}
	for i, r := range s.table.routes {
		must(int(r.cluster) < len(s.clusters), "route %d leads to cluster %d of %d", i, r.cluster, len(s.clusters))
		must((r.cluster == splitClusters) == (r.split != nil), "route %d has cluster %d and split %v", i, r.cluster, r.split)
	}
	for i, c := range s.clusters {
		must(s.index[c.name] == int32(i), "cluster %d is indexed as %d", i, s.index[c.name])
		must(c.version == states[i].Version, "cluster %d has version %d of %d", i, c.version, states[i].Version)
		must((c.outcome == Picked) == (len(c.localities) > 0), "cluster %d has outcome %d with %d localities", i, c.outcome, len(c.localities))
		must((c.alias != nil) == (len(c.localities) > 1), "cluster %d draws from %d localities", i, len(c.localities))
		must(len(c.drops) == len(c.counts), "cluster %d counts %d drops of %d", i, len(c.counts), len(c.drops))
		for k, bound := range c.drops {
			must(bound <= c.dropped && (k == 0 || bound >= c.drops[k-1]), "cluster %d has drop bounds %v of %v", i, c.drops, c.dropped)
		}
		end := int32(0)
		for k, l := range c.localities {
			must(l.first >= end, "locality %d of cluster %d starts at %d, before %d", k, i, l.first, end)
			end = l.first + int32(len(l.weights))
			e := l.schedule.At(l.load.issued.Load())
			must(e >= 0 && e < len(l.weights) && l.weights[e] > 0, "locality %d of cluster %d picks %d of %v", k, i, e, l.weights)
		}
	}
}
