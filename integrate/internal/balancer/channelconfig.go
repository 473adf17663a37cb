// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math"
	"slices"

	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// adaptation derives the configuration of a channel from the one that all channels share.
type adaptation struct {
	*channel
	subsetSeed uint64 // random: selects the endpoints that the channel keeps of a large set (A68)
}

// config adapts a configuration, which all channels share, to this channel: it removes endpoint
// weights if they are to be ignored (D2), sets the default limit of circuit breakers, selects a
// subset of the endpoints if the policy requires it (A68), and removes endpoints that its
// credentials would connect to in plaintext contrary to A29. Unchanged clusters are reused;
// changed holds the indexes of the changed clusters.
func (a *adaptation) config(list *clusterList, cfg *picker.Config, changed []int) *picker.Config {
	clusters, copied := cfg.Clusters, false
	if !persistent.SameSlice(list.own, list.received) {
		clusters, copied = slices.Clone(list.own), true
	}
	for _, i := range changed {
		cc := cfg.Clusters[i]
		if slices.ContainsFunc(cc.Leaves, a.needsOwn) {
			cc = a.cluster(cc)
			if !copied {
				clusters, copied = slices.Clone(clusters), true
			}
		}
		if copied {
			clusters[i] = cc
		}
	}
	if !copied {
		return cfg
	}
	out := *cfg
	out.Clusters = clusters
	return &out
}

// needsOwn reports whether the leaf must be adapted.
func (a *adaptation) needsOwn(l picker.Leaf) bool {
	return a.opts.IgnoreEndpointWeights && weights.Apply(&l.Policy) || l.Policy.Subset > 0 || a.refuses(&l) ||
		l.DefaultLimit && l.MaxRequests != a.opts.DefaultMaxRequests
}

// ignoreWeights changes a policy that weighs endpoints into its unweighted equivalent.
func ignoreWeights(p *picker.Policy) {
	switch p.Kind {
	case picker.PolicyEDF:
		p.Kind = picker.PolicyRoundRobin
	case picker.PolicyLeastRequest:
		least := *p.Least
		least.IgnoreWeights = true
		p.Least = &least
	case picker.PolicyLeastLatency:
		latency := *p.Latency
		latency.IgnoreWeights = true
		p.Latency = &latency
	}
}

func (a *adaptation) cluster(cc *picker.Cluster) *picker.Cluster {
	out := *cc
	out.Leaves = slices.Clone(cc.Leaves)
	for i := range out.Leaves {
		l := &out.Leaves[i]
		if a.refuses(l) {
			a.refuse(l)
		}
		if a.opts.IgnoreEndpointWeights && weights.Apply(&l.Policy) {
			ignoreWeights(&l.Policy)
		}
		if l.DefaultLimit {
			l.MaxRequests = a.opts.DefaultMaxRequests
		}
		if n := l.Policy.Subset; n > 0 {
			l.Priorities = slices.Clone(l.Priorities)
			for k := range l.Priorities {
				l.Priorities[k] = l.Priorities[k].Subset(int(min(n, math.MaxInt32)), a.subsetSeed)
			}
		}
	}
	return &out
}
