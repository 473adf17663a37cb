// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// This file handles priorities whose endpoints are connected by child policies: see group.

// syncGroups updates the priority's groups to its configuration: O(endpoints) of the groups
// that changed.
func (p *priority) syncGroups() {
	olds := slices.Clone(p.groups) // picks read the published slice
	p.groups = make([]*group, len(p.localities))
	if p.leaf.cfg.Policy.Flat && len(p.localities) > 0 {
		p.syncGroup(olds, 0, p.localities)
	} else {
		for i := range p.localities {
			p.syncGroup(olds, i, p.localities[i:i+1])
		}
	}
	for _, g := range olds {
		if g != nil {
			p.releaseConns(g)
		}
	}
	for g := range p.liveGroups {
		g.update(p.cfg)
		g.propagateState()
	}
	p.recount()
	p.note(picks)
}

// syncGroup sets the group of a range of localities: the previous group, which it removes from
// olds, or a new one. There is no group if all endpoints are draining, or if the priority is
// retired and had no group.
func (p *priority) syncGroup(olds []*group, first int, members []*locality) {
	key := groupKey{kind: p.leaf.cfg.Policy.Kind, flat: p.leaf.cfg.Policy.Flat, breaker: p.leaf.breaker, load: p.leaf.load}
	if !key.flat {
		key.locality = members[0].id
	}
	var g *group
	if slices.ContainsFunc(members, (*locality).usable) {
		if i := slices.IndexFunc(olds, func(g *group) bool { return g != nil && g.groupKey == key }); i >= 0 {
			g, olds[i] = olds[i], nil
		} else if p.phase == retired {
			p.needsConnect = true
		} else {
			g = &group{groupKey: key, leaf: p.leaf, tally: &p.tally, state: picker.Connecting}
		}
	}
	for _, l := range members {
		for _, e := range l.endpoints {
			if c := e.conn; c != nil && c.child == nil && (c.multiAddress() || e.Draining) {
				c.shutdown() // the child must choose among the addresses
			}
			if g == nil {
				e.setState(picker.Connecting)
			}
		}
	}
	if g != nil {
		g.first, g.localities = first, slices.Clone(members)
		p.groups[first] = g
	}
}

// liveGroups visits the existing groups.
func (p *priority) liveGroups(yield func(*group) bool) {
	for _, g := range p.groups {
		if g != nil && !yield(g) {
			return
		}
	}
}

// closeGroups ends the groups of a priority whose policy the snapshot implements itself, and
// keeps their connections.
func (p *priority) closeGroups() {
	if p.groups == nil {
		return
	}
	olds := p.groups
	p.groups = nil
	for _, g := range olds {
		if g != nil {
			p.releaseConns(g)
		}
	}
	for e := range p.endpoints {
		e.resume()
	}
	p.invalidate()
	p.recount()
}

// releaseConns ends a group, and returns the endpoints' own connections to the balancer. The
// connections of endpoints with several addresses are closed with the group, because the
// balancer makes no such connections.
func (p *priority) releaseConns(g *group) {
	g.close()
	for _, l := range p.localities {
		for i, e := range l.endpoints {
			c := e.conn
			if c == nil || c.child == nil || c.child.child.owner != g {
				continue
			}
			if multiAddressed(l.cfg.At(i)) {
				e.conn = nil
			} else {
				c.releaseFromChild()
				e.renameConn(l.cfg.At(i)) // the child may have the previous hostname
			}
		}
	}
}

// onEjection notifies the child policies, if they connect the endpoint, that it was ejected, or
// returned.
func (p *priority) onEjection(e *endpoint) {
	for g := range p.liveGroups {
		if g.covers(e.loc) {
			g.onEjection(e)
		}
	}
}
