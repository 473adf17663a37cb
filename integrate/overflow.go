// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// This file is Envoy's overprovisioning, which gRPC does without (A27-EDSP-4) and
// Config.OverprovisioningFactor turns on: a priority that has lost more endpoints
// than the others can make up for shares the load with the next one, before it is
// lost altogether.

// A share is how much of the load a priority takes, in units of 1/whole.
type share struct {
	p    *priority
	part uint64
}

const whole = 1 << 24

// health is how much of the load the priority can take: the part of its endpoints
// that have not failed, times the factor. Endpoints that still connect for the
// first time count as healthy, so that start-up spills nothing.
func (p *priority) health() uint64 {
	total := uint64(p.counts[picker.Idle] + p.counts[picker.Connecting] + p.counts[picker.Ready] + p.counts[picker.TransientFailure])
	up := total - uint64(p.counts[picker.TransientFailure])
	if total == 0 {
		return 0
	}
	return min(up*whole/total*uint64(p.cluster.lb.opts.OverprovisioningFactor)/100, whole)
}

// spills reports whether the priority may share its load. What places RPCs by
// their hash would place them elsewhere, and children know one priority.
func (p *priority) spills() bool {
	if p.cluster.lb.opts.OverprovisioningFactor == 0 || p.leaf.cfg.Policy.Flat {
		return false
	}
	switch p.leaf.cfg.Policy.Kind {
	case picker.PolicyEDF, picker.PolicyRoundRobin, picker.PolicyLeastRequest:
		return true
	}
	return false
}

// overflow settles how the load is shared by the i-th priority, which is READY,
// and those after it in the same leaf, and starts those that are needed. It
// returns how many these are.
func (c *cluster) overflow(i int) (needed int) {
	var shares []share
	p := c.order[i]
	if p.spills() {
		left := uint64(whole)
		for _, q := range c.order[i:] {
			if q.leaf != p.leaf || left == 0 {
				break
			}
			if q != p {
				q.activate()
				needed++
			}
			if q.connectivity() == picker.Ready {
				part := min(q.health(), left)
				shares = append(shares, share{q, part})
				left -= part
			} else if q.failover != nil {
				break // it may still come up
			}
		}
	}
	if len(shares) < 2 {
		shares = nil
	}
	if !slices.Equal(shares, c.shares) {
		c.shares, c.dirty = shares, true
	}
	return needed
}

// serves reports whether the endpoint gets RPCs.
func (e *endpoint) serves() bool { return e.standing() == picker.Ready && !e.draining }

// merge makes one priority of those that share the load, and the cluster as it
// would be if it had it: localities keep their weight within their priority.
func (c *cluster) merge() (*priority, *picker.Cluster) {
	p := c.shares[0].p
	k := c.leafIndex(p.leaf)
	served := *c.cfg
	served.Leaves = slices.Clone(served.Leaves)
	all := &priority{cluster: c, leaf: p.leaf, index: len(served.Leaves[k].Priorities)}
	var cfg picker.Priority
	for _, s := range c.shares {
		var sum uint64 // over the localities that get any of it
		for i, l := range s.p.localities {
			if slices.ContainsFunc(l.endpoints, (*endpoint).serves) {
				sum += uint64(s.p.cfg.Localities[i].Weight)
			}
		}
		for _, l := range s.p.cfg.Localities {
			l.Weight = uint32(min(max(uint64(l.Weight)*s.part/sum, 1), whole))
			cfg.Localities = append(cfg.Localities, l)
		}
		all.localities = append(all.localities, s.p.localities...)
	}
	leaf := &served.Leaves[k]
	leaf.Priorities = append(slices.Clip(leaf.Priorities), cfg)
	return all, &served
}
