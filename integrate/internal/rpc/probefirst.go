// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// This file finds the clusters whose endpoints are probed for their load for each unary RPC
// (picker.Prequal.Synchronous). See Call.probe.

// probesFirst reports whether RPCs to the cluster probe endpoints for their load.
func probesFirst(c *picker.Cluster) bool {
	return slices.ContainsFunc(c.Leaves, func(l picker.Leaf) bool {
		return l.Policy.Kind == picker.PolicyPrequal && l.Policy.Prequal != nil && l.Policy.Prequal.Synchronous > 0
	})
}

// SameProbing reports whether the RPCs of two configurations with the same routes probe
// endpoints of the same clusters. O(clusters).
func SameProbing(a, b *picker.Config) bool {
	return slices.EqualFunc(a.Clusters, b.Clusters, func(a, b *picker.Cluster) bool {
		return a == b || probesFirst(a) == probesFirst(b) && (a.Name == b.Name || !probesFirst(a))
	})
}

// probingClusters returns the names of the clusters whose endpoints are probed, or nil.
func probingClusters(cfg *picker.Config) map[string]bool {
	var names map[string]bool
	for _, c := range cfg.Clusters {
		if probesFirst(c) {
			if names == nil {
				names = map[string]bool{}
			}
			names[c.Name] = true
		}
	}
	return names
}

// markProbing marks the plans of a route if any of its clusters is among the names.
func (r *routePlans) markProbing(route *picker.Route, names map[string]bool) {
	if names != nil && slices.ContainsFunc(route.Clusters, func(c picker.WeightedCluster) bool { return names[c.Name] }) {
		for _, p := range r.plans() {
			p.probesFirst = true
		}
	}
}
