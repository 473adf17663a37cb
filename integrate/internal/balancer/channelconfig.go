// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"log/slog"
	"math"
	"slices"
	"sync/atomic"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// adaptation derives the configuration of a channel from the one that all channels share.
type adaptation struct {
	*channel
	subsetSeed uint64 // random: selects the endpoints that the channel keeps of a large set (A68)
}

// config adapts a configuration, which all channels share, to this channel: it removes endpoint
// weights if they are to be ignored (D2), selects a subset of the endpoints if the policy
// requires it (A68), and removes endpoints that its credentials would connect to in plaintext
// contrary to A29. Unchanged clusters are reused; changed holds the indexes of the changed
// clusters.
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
	return a.opts.IgnoreEndpointWeights && weighs(&l.Policy) || l.Policy.Subset > 0 || a.refuses(&l)
}

// weighs reports whether a policy uses endpoint weights and could ignore them: ring hash and
// Maglev could not.
func weighs(p *picker.Policy) bool {
	return p.Kind == picker.PolicyEDF || p.Kind == picker.PolicyLeastRequest && !p.Least.IgnoreWeights ||
		p.Kind == picker.PolicyLeastLatency && !p.Latency.IgnoreWeights
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
		if a.opts.IgnoreEndpointWeights && weighs(&l.Policy) {
			ignoreWeights(&l.Policy)
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

// WeightsNoted reports whether noteWeights has logged its line.
var WeightsNoted atomic.Bool

// noteWeights logs, once per process, that endpoint weights are used, since grpc-go's own xDS
// ignores them (D2, A27-EDSP-5) and traffic shifts after a migration. Only changed clusters are
// examined.
func (a *adaptation) noteWeights(cfg *picker.Config, changed []int) {
	if a.standalone || a.simulated || WeightsNoted.Load() {
		return
	}
	for _, i := range changed {
		if cc := cfg.Clusters[i]; weightsCount(cc) && !WeightsNoted.Swap(true) {
			a.rec.write(slog.LevelWarn, "xdslb: endpoints of a cluster have different weights, and ROUND_ROBIN and LEAST_REQUEST use them, "+
				"unlike in google.golang.org/grpc/xds. Config.IgnoreEndpointWeights gives all endpoints of a locality the same share. This is logged once.", cc.Name)
			return
		}
	}
}

// weightsCount reports whether ignoring endpoint weights would make a difference to a cluster.
func weightsCount(cc *picker.Cluster) bool {
	for i := range cc.Leaves {
		l := &cc.Leaves[i]
		if !weighs(&l.Policy) {
			continue
		}
		for _, p := range l.Priorities {
			for _, loc := range p.Localities {
				for _, e := range loc.Endpoints.All() {
					if e.Weight != loc.Endpoints.At(0).Weight {
						return true
					}
				}
			}
		}
	}
	return false
}
