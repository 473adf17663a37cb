// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"slices"

	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
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

// SameClusters reports whether Compile depends on the same clusters of two configurations.
// O(clusters).
func SameClusters(a, b *picker.Config) bool {
	return methodconfig.SameClustersWith(a, b, methodconfig.LimitsRetries) && methodconfig.SameClustersWith(a, b, probesFirst) && methodconfig.SameClustersWith(a, b, timesRPCs)
}
