// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package methodconfig

import (
	"maps"
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// retryLimits contains the names of the clusters whose retries are limited. Interceptors retry
// the RPCs of their routes, since gRPC has no limit for a cluster.
type retryLimits map[string]bool

func retryLimitsOf(cfg *picker.Config) retryLimits {
	limits := retryLimits{}
	for _, c := range cfg.Clusters {
		if hasRetryLimit(c) {
			limits[c.Name] = true
		}
	}
	return limits
}

// SameRetryLimits reports whether two configurations limit the retries of the same clusters.
// O(clusters).
func SameRetryLimits(a, b *picker.Config) bool {
	return slices.EqualFunc(a.Clusters, b.Clusters, func(a, b *picker.Cluster) bool {
		return a == b || a.Name == b.Name && hasRetryLimit(a) == hasRetryLimit(b)
	}) || maps.Equal(retryLimitsOf(a), retryLimitsOf(b))
}

// hasRetryLimit reports whether the retries of a cluster's RPCs are limited.
func hasRetryLimit(c *picker.Cluster) bool {
	for i := range c.Leaves {
		if c.Leaves[i].Retries != nil {
			return true
		}
	}
	return false
}

// limited reports whether retries of a route's RPCs may be limited.
func (l retryLimits) limited(r *picker.Route) bool {
	if r.Retry == nil || len(l) == 0 {
		return false
	}
	for i := range r.Clusters {
		if l[r.Clusters[i].Name] {
			return true
		}
	}
	return false
}
