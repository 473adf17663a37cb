// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// delegates reports whether the priority's endpoints are connected by child
// policies: see group.
func (p *priority) delegates() bool {
	k := p.leaf.cfg.Policy.Kind
	return k == picker.PolicyCustom || k == picker.PolicyPickFirst
}

// tend brings the priority's groups in line with its configuration: O(endpoints)
// of the groups that changed. A priority that is deactivated gets no new ones.
func (p *priority) tend() {
	if !p.delegates() {
		p.reclaim()
		return
	}
	if !p.started {
		return
	}
	olds := p.groups
	p.groups = make([]*group, len(p.localities))
	if p.leaf.cfg.Policy.Flat && len(p.localities) > 0 {
		p.groups[0] = p.tendGroup(olds, 0, p.localities)
	} else {
		for i := range p.localities {
			p.groups[i] = p.tendGroup(olds, i, p.localities[i:i+1])
		}
	}
	for _, g := range olds {
		if g != nil {
			p.detach(g)
			g.close()
		}
	}
	p.recount()
	p.forget()
	p.cluster.dirty = true
}

// tendGroup returns the group of some localities, brought up to date: that of
// before, which it takes out of olds, or a new one. It is nil if there is
// nothing to connect.
func (p *priority) tendGroup(olds []*group, first int, members []*locality) *group {
	key := groupKey{kind: p.leaf.cfg.Policy.Kind, flat: p.leaf.cfg.Policy.Flat, breaker: p.leaf.breaker, load: p.leaf.load}
	if !key.flat {
		key.locality = members[0].id
	}
	var g *group
	if i := slices.IndexFunc(olds, func(g *group) bool { return g != nil && g.groupKey == key }); i >= 0 {
		g, olds[i] = olds[i], nil
	}
	empty := true
	for _, l := range members {
		empty = empty && len(l.endpoints) == 0
	}
	if g == nil {
		if empty || p.retire != nil {
			for _, l := range members {
				for _, e := range l.endpoints {
					e.set(picker.Connecting)
				}
			}
			return nil
		}
		g = &group{groupKey: key, prio: p, state: picker.Connecting}
		for _, l := range members {
			for _, e := range l.endpoints {
				if e.multi() != nil { // the child is to choose among the addresses
					e.release(p.cluster.lb)
				}
			}
		}
	}
	g.first, g.localities = first, slices.Clone(members)
	g.update()
	g.spread()
	return g
}

// detach leaves the connections of a group that ends to whoever connects the
// endpoints next.
func (p *priority) detach(g *group) {
	for _, l := range p.localities {
		for _, e := range l.endpoints {
			if h := e.holder(); h != nil && h.child.group == g && !e.manifold {
				e.unhold()
			}
		}
	}
}

// reclaim ends the groups of a priority whose policy the snapshot has itself,
// and goes on with their connections.
func (p *priority) reclaim() {
	if p.groups == nil {
		return
	}
	for _, g := range p.groups {
		if g != nil {
			p.detach(g)
			g.close()
		}
	}
	p.groups = nil
	for _, l := range p.localities {
		for _, e := range l.endpoints {
			e.Connectivity = picker.Idle
			e.roused.Store(false)
			switch {
			case e.conn == nil:
			case e.holder() != nil:
				// The child of a group that ends may close it when it likes.
				e.holder().own = true
				e.conn = nil
				e.unhold()
			default:
				if e.raw == picker.Idle && !p.lazy() {
					e.conn.Connect()
					e.raw = picker.Connecting
				}
				if e.Connectivity = e.raw; e.raw == picker.Ready {
					e.arrive()
				}
			}
		}
	}
	p.touch()
	p.recount()
}

// dismiss ends the priority's groups, and with them their connections.
func (p *priority) dismiss() {
	for _, g := range p.groups {
		if g != nil {
			g.close()
		}
	}
	p.groups = nil
}

// groupState aggregates the groups' states as weighted_target does.
func (p *priority) groupState() picker.Connectivity {
	var has [4]bool
	for i, l := range p.localities {
		switch {
		case i < len(p.groups) && p.groups[i] != nil:
			has[p.groups[i].state] = true
		case len(p.groups) == 0 && len(l.endpoints) > 0:
			has[picker.Connecting] = true
		}
	}
	for _, s := range []picker.Connectivity{picker.Ready, picker.Connecting, picker.Idle} {
		if has[s] {
			return s
		}
	}
	return picker.TransientFailure
}
