// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// This file implements Envoy's overprovisioning, which gRPC does not have (A27-EDSP-4) and
// Config.OverprovisioningFactor enables: a priority that has lost more endpoints than the
// remaining ones can make up for shares the load with the next priority, before it fails
// altogether.

// A loadShare is the part of the load that a priority takes, in units of 1/shareScale.
type loadShare struct {
	p    *priority
	part uint64
}

const shareScale = 1 << 24

// shareLoad returns how the i-th priority, if it is READY, shares the load with the following
// priorities of the same leaf, and starts the priorities that are needed. The result is nil if
// the i-th priority takes all the load. sharing is the number of priorities needed.
func (c *cluster) shareLoad(i int) (shares []loadShare, sharing int) {
	p := c.priorities[i]
	if !p.mayOverflow() || p.connectivity() != picker.Ready {
		return nil, 0
	}
	left := uint64(shareScale)
	for _, q := range c.priorities[i:] {
		if q.leaf != p.leaf || left == 0 {
			break
		}
		if q != p {
			q.activate()
			sharing++
		}
		if q.connectivity() == picker.Ready {
			part := min(q.health(), left)
			shares = append(shares, loadShare{q, part})
			left -= part
		} else if q.phase == trying {
			break // it may still become READY
		}
	}
	if len(shares) < 2 {
		shares = nil
	}
	return shares, sharing
}

// mergeShares merges the priorities that share the load into one, and returns it with the
// cluster's configuration adapted to it: localities keep their weight within their priority.
func (c *cluster) mergeShares() (*priority, *picker.Cluster) {
	p := c.shares[0].p
	k := c.leafIndex(p.leaf)
	merged := *c.cfg
	merged.Leaves = slices.Clone(merged.Leaves)
	all := &priority{leaf: p.leaf, index: len(merged.Leaves[k].Priorities)}
	var cfg picker.Priority
	for _, s := range c.shares {
		var sum uint64 // over the localities that get a part of it
		for i, l := range s.p.localities {
			if slices.ContainsFunc(l.endpoints, (*endpoint).serves) {
				sum += uint64(s.p.cfg.Localities[i].Weight)
			}
		}
		for _, l := range s.p.cfg.Localities {
			l.Weight = uint32(min(max(uint64(l.Weight)*s.part/sum, 1), shareScale))
			cfg.Localities = append(cfg.Localities, l)
		}
		all.localities = append(all.localities, s.p.localities...)
	}
	leaf := &merged.Leaves[k]
	leaf.Priorities = append(slices.Clip(leaf.Priorities), cfg)
	return all, &merged
}
