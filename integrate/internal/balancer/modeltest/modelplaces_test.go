// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"net/netip"
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// This file finds things in the configuration that was sent last.

// tier is a priority of a cluster with the leaf that it is of: neither a
// picker.Priority nor a priority of the balancer's.
type tier struct {
	*picker.Priority
	leaf *picker.Leaf
}

// priorities returns the priorities of all leaves in the order of A75.
func (c *planeCluster) priorities() (list []tier) {
	if c.sent == nil {
		return nil
	}
	for i := range c.sent.Leaves {
		l := &c.sent.Leaves[i]
		for k := range l.Priorities {
			list = append(list, tier{&l.Priorities[k], l})
		}
	}
	return list
}

// find returns the endpoint that has the address of a number, and the index of its
// priority.
func (c *planeCluster) find(number int) (at int, e *picker.Endpoint) {
	for i, p := range c.priorities() {
		if e := p.find(number); e != nil {
			return i, e
		}
	}
	return 0, nil
}

func (p tier) find(number int) *picker.Endpoint {
	for _, loc := range p.Localities {
		for _, e := range loc.Endpoints.All() {
			if has(e, number) {
				return e
			}
		}
	}
	return nil
}

// usable reports whether the priority has an endpoint that RPCs may go to.
func (p tier) usable() bool { return p.usables() > 0 }

// transparent reports whether the states of the SubConns tell that of the priority.
func (p tier) transparent() bool {
	return !delegates(&p.leaf.Policy) && p.leaf.Outlier == nil && p.leaf.Policy.Subset == 0
}

// sluggish reports whether a custom policy of the cluster's takes its time.
func (c *planeCluster) sluggish() bool {
	return slices.ContainsFunc(c.leaves, func(l *planeLeaf) bool { return l.sluggish })
}

func (t *trial) clusterOf(l *planeLeaf) *planeCluster {
	for _, c := range t.plane.clusters {
		if slices.Contains(c.leaves, l) {
			return c
		}
	}
	return nil
}

// has reports whether an endpoint has the address of a number.
func has(e *picker.Endpoint, number int) bool {
	return numberOf(e.Addr) == number ||
		e.Extra != nil && slices.ContainsFunc(e.Extra.Addrs, func(a netip.AddrPort) bool { return numberOf(a) == number })
}

// numberOf is the inverse of addr.
func numberOf(address netip.AddrPort) int {
	a := address.Addr().As4()
	return int(a[1])<<16 | int(a[2])<<8 | int(a[3])
}

func numberAt(address string) int { return numberOf(netip.MustParseAddrPort(address)) }
