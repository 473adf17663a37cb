// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package methodconfig

import (
	"maps"
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// A ClusterSet contains the names of the clusters of a configuration that have a property on which
// the interceptors of their routes depend.
type ClusterSet map[string]bool

// ClustersWith returns the clusters that have a property. O(clusters).
func ClustersWith(cfg *picker.Config, has func(*picker.Cluster) bool) ClusterSet {
	set := ClusterSet{}
	for _, c := range cfg.Clusters {
		if has(c) {
			set[c.Name] = true
		}
	}
	return set
}

// SameClustersWith reports whether the same clusters of two configurations have a property.
// O(clusters).
func SameClustersWith(a, b *picker.Config, has func(*picker.Cluster) bool) bool {
	return slices.EqualFunc(a.Clusters, b.Clusters, func(a, b *picker.Cluster) bool {
		return a == b || a.Name == b.Name && has(a) == has(b)
	}) || maps.Equal(ClustersWith(a, has), ClustersWith(b, has))
}

// Serves reports whether RPCs of a route may go to a cluster of the set.
func (s ClusterSet) Serves(r *picker.Route) bool {
	return len(s) > 0 && slices.ContainsFunc(r.Clusters, func(c picker.WeightedCluster) bool { return s[c.Name] })
}

// LimitsRetries reports whether the retries of a cluster's RPCs are limited. Interceptors retry
// the RPCs of its routes, since gRPC has no limit for a cluster.
func LimitsRetries(c *picker.Cluster) bool {
	return slices.ContainsFunc(c.Leaves, func(l picker.Leaf) bool { return l.Retries != nil })
}
