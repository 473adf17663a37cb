// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"iter"
)

// Destinations returns the possible results of Match for an RPC, over all random words:
// clusters, by their index in Config.Clusters, with outcome Picked, and NoRoute or
// NotForwarding with the cluster -1. A cluster is repeated if several routes lead to it. It
// must not be used on the path of RPCs: O(routes).
func (s *Snapshot) Destinations(ctx context.Context, method string) iter.Seq2[int32, Outcome] {
	return func(yield func(int32, Outcome) bool) {
		for i := range s.routes {
			cfg := &s.routes[i]
			if !s.mayMatch(ctx, method, cfg) {
				continue
			}
			to := &s.table.routes[i]
			clusters, outcome := to.clusters, Picked
			switch to.cluster {
			case splitClusters:
			case noCluster:
				clusters, outcome = []int32{noCluster}, NotForwarding
			default:
				clusters = []int32{to.cluster}
			}
			for k, c := range clusters {
				if len(clusters) > 1 && cfg.Clusters[k].Weight == 0 {
					continue
				}
				if !yield(c, outcome) {
					return
				}
			}
			if cfg.Fraction == nil || *cfg.Fraction >= 1e6 {
				return
			}
		}
		yield(-1, NoRoute)
	}
}

// mayMatch reports whether a route matches an RPC for some random word.
func (s *Snapshot) mayMatch(ctx context.Context, method string, cfg *Route) bool {
	if !cfg.Path.matches(method) || cfg.Fraction != nil && *cfg.Fraction == 0 {
		return false
	}
	for k := range cfg.Headers {
		m := &cfg.Headers[k]
		constant, match := m.constant()
		if !constant {
			match = m.matches(s.env.Header(ctx, m.Name))
		}
		if !match {
			return false
		}
	}
	return true
}
