// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// adapt returns the configuration that this channel makes of one that all
// channels share: without endpoint weights if it is to ignore them (D2), and
// with its own share of the endpoints where the policy wants a subset (A68).
// A cluster that is the same as before stays the same.
func (b *lb) adapt(cfg *picker.Config) *picker.Config {
	var out *picker.Config
	for i, cc := range cfg.Clusters {
		if !slices.ContainsFunc(cc.Leaves, b.adapts) {
			continue
		}
		if out == nil {
			clone := *cfg
			out, clone.Clusters = &clone, slices.Clone(cfg.Clusters)
		}
		if c := b.clusters[cc.Name]; c != nil && c.sent == cc {
			out.Clusters[i] = c.cfg
		} else {
			out.Clusters[i] = b.adaptCluster(cc)
		}
	}
	if out == nil {
		return cfg
	}
	return out
}

// adapts reports whether the leaf is not taken as it is.
func (b *lb) adapts(l picker.Leaf) bool {
	return b.opts.IgnoreEndpointWeights && l.Policy.Kind == picker.PolicyEDF || l.Policy.Subset > 0
}

func (b *lb) adaptCluster(cc *picker.Cluster) *picker.Cluster {
	out := *cc
	out.Leaves = slices.Clone(cc.Leaves)
	for i := range out.Leaves {
		l := &out.Leaves[i]
		if b.opts.IgnoreEndpointWeights && l.Policy.Kind == picker.PolicyEDF {
			l.Policy.Kind = picker.PolicyRoundRobin
		}
		if n := l.Policy.Subset; n > 0 {
			l.Priorities = slices.Clone(l.Priorities)
			for k := range l.Priorities {
				l.Priorities[k] = l.Priorities[k].Subset(int(n), b.subsetSeed)
			}
		}
	}
	return &out
}
