// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"net/netip"
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// This file carries a cluster from one configuration to the next. The rule it
// keeps: an endpoint that is in both is the same endpoint, with its connection,
// whatever else moves around it. Endpoints are compared in place first, so
// that an update which leaves the order alone costs one pass; only what is
// left over on either side goes through a map.

// update takes over a new configuration of the cluster.
func (c *cluster) update(cfg *picker.Cluster) {
	old := c.leaves
	c.cfg, c.dirty = cfg, true
	c.leaves, c.order = make([]*leaf, len(cfg.Leaves)), nil
	for i := range cfg.Leaves {
		var prev *leaf
		if k := slices.IndexFunc(old, func(l *leaf) bool { return l != nil && l.cfg.Name == cfg.Leaves[i].Name }); k >= 0 {
			prev, old[k] = old[k], nil
		}
		c.leaves[i] = c.updateLeaf(prev, &cfg.Leaves[i])
		c.order = append(c.order, c.leaves[i].priorities...)
	}
	for _, l := range old {
		if l != nil {
			l.close(c.lb)
		}
	}
	if c.inUse != nil && !slices.Contains(c.order, c.inUse) {
		c.inUse = nil
	}
	for _, p := range c.order {
		p.inherit()
	}
	c.choose()
}

// updateLeaf returns the live side of cfg, made from prev where there is one.
func (c *cluster) updateLeaf(prev *leaf, cfg *picker.Leaf) *leaf {
	l := prev
	turned := prev != nil && prev.cfg.Policy.Hashes() != cfg.Policy.Hashes()
	switch {
	case l == nil:
		l = &leaf{cfg: cfg}
		l.account(c.lb)
	case l.cfg.Service != cfg.Service || l.cfg.Load.Server != cfg.Load.Server:
		// Breaker and load reports belong to the pair of names. Calls that
		// are under way keep crediting the old ones.
		l.discharge()
		l.cfg = cfg
		l.account(c.lb)
	default:
		l.cfg = cfg
	}
	olds := l.priorities
	l.priorities = make([]*priority, len(cfg.Priorities))
	claimed := make([]bool, len(olds))
	for i := range cfg.Priorities {
		p := claim(olds, claimed, i, &cfg.Priorities[i])
		if p == nil {
			p = &priority{cluster: c, leaf: l}
		}
		p.index, p.cfg = i, &cfg.Priorities[i]
		l.priorities[i] = p
	}
	m := move{lb: c.lb}
	for i, p := range olds {
		if !claimed[i] {
			m.abandon(p)
		}
	}
	for _, p := range l.priorities {
		m.match(p)
	}
	m.settle()
	l.detect(c.lb)
	l.weigh()
	for _, p := range l.priorities {
		p.recount()
		if turned {
			p.touch() // endpoints may be asleep that are to connect now
		}
	}
	l.load.Retain(cfg)
	l.metrics.Store(newMetricNames(cfg.Load.Metrics))
	return l
}

// claim finds the old priority that a new one continues: one that shares a
// locality with it, the one of the same index first (T-PRIO-5).
func claim(olds []*priority, claimed []bool, index int, cfg *picker.Priority) *priority {
	shares := func(p *priority) bool {
		return slices.ContainsFunc(p.localities, func(l *locality) bool {
			return slices.ContainsFunc(cfg.Localities, func(n picker.Locality) bool { return n.ID == l.id })
		})
	}
	if index < len(olds) && !claimed[index] && shares(olds[index]) {
		claimed[index] = true
		return olds[index]
	}
	for i, p := range olds {
		if !claimed[i] && shares(p) {
			claimed[i] = true
			return p
		}
	}
	return nil
}

// move carries the endpoints of one leaf over to a new configuration.
type move struct {
	lb    *lb
	left  []leftover // old endpoints without a place yet
	fresh []opening  // places without an endpoint yet
}

type leftover struct {
	addrs addrKey
	e     *endpoint
}

type opening struct {
	loc *locality
	i   int
}

// addrKey identifies an endpoint by its addresses; their order does not
// matter to A61, and the first alone is the key of nearly all.
type addrKey struct {
	addr netip.AddrPort
	more string
}

func keyOf(e *picker.Endpoint) addrKey {
	if e.Extra == nil || len(e.Extra.Addrs) == 0 {
		return addrKey{addr: e.Addr}
	}
	all := append([]netip.AddrPort{e.Addr}, e.Extra.Addrs...)
	slices.SortFunc(all, netip.AddrPort.Compare)
	k := addrKey{addr: all[0]}
	for _, a := range all[1:] {
		k.more += a.String() + " "
	}
	return k
}

func sameAddrs(a, b *picker.Endpoint) bool {
	if a.Extra == nil && b.Extra == nil {
		return a.Addr == b.Addr
	}
	return keyOf(a) == keyOf(b)
}

// abandon offers all endpoints of a priority that is gone.
func (m *move) abandon(p *priority) {
	p.keep()
	p.stopFailover()
	p.dismiss()
	for _, l := range p.localities {
		m.abandonLocality(l)
	}
}

func (m *move) abandonLocality(l *locality) {
	for i, e := range l.endpoints {
		m.left = append(m.left, leftover{keyOf(&l.cfg[i]), e})
	}
}

// match takes over p's localities, and in each the endpoints that stayed at
// their index.
func (m *move) match(p *priority) {
	olds := p.localities
	p.localities = make([]*locality, len(p.cfg.Localities))
	counted := p.leaf.cfg.Policy.CountsInFlight()
	for i := range p.cfg.Localities {
		cfg := &p.cfg.Localities[i]
		load := p.leaf.load.Locality(cfg.ID)
		k := slices.IndexFunc(olds, func(l *locality) bool { return l != nil && l.id == cfg.ID })
		if k < 0 || olds[k].load != load || olds[k].counted != counted {
			// Endpoints that come from elsewhere are other ones: what their
			// RPCs are counted with is settled when they are made.
			l := &locality{
				prio: p, id: cfg.ID, cfg: cfg.Endpoints, load: load, taps: p.leaf.sink(cfg.ID), counted: counted,
				endpoints: make([]*endpoint, len(cfg.Endpoints)),
			}
			for j := range l.endpoints {
				m.fresh = append(m.fresh, opening{l, j})
			}
			p.localities[i] = l
			p.touch()
			continue
		}
		if k != i {
			p.touch()
		}
		p.localities[i] = olds[k]
		m.matchEndpoints(olds[k], cfg.Endpoints)
		olds[k] = nil
	}
	if len(olds) != len(p.localities) {
		p.touch()
	}
	for _, l := range olds {
		if l != nil {
			m.abandonLocality(l)
			p.touch()
		}
	}
}

// matchEndpoints moves a locality from its old list of endpoints to a new one.
// A list that is the same slice costs nothing.
func (m *move) matchEndpoints(l *locality, cfg []picker.Endpoint) {
	oldCfg, old := l.cfg, l.endpoints
	if len(oldCfg) == len(cfg) && (len(cfg) == 0 || &oldCfg[0] == &cfg[0]) {
		return
	}
	l.cfg = cfg
	same := len(old) == len(cfg)
	for i := 0; same && i < len(cfg); i++ {
		same = sameAddrs(&oldCfg[i], &cfg[i])
	}
	if same { // weights or health changed, the set did not
		for i, e := range old {
			drained := e.draining
			if e.draining = cfg[i].Health == picker.Draining; drained && !e.draining && !e.linked() {
				l.prio.incomplete = true // it was not asked to connect
			}
		}
		return
	}
	l.prio.touch()
	l.endpoints = make([]*endpoint, len(cfg))
	for i := range max(len(old), len(cfg)) {
		switch {
		case i >= len(cfg):
			m.left = append(m.left, leftover{keyOf(&oldCfg[i]), old[i]})
		case i >= len(old):
			m.fresh = append(m.fresh, opening{l, i})
		case sameAddrs(&oldCfg[i], &cfg[i]):
			l.endpoints[i] = old[i]
			old[i].draining = cfg[i].Health == picker.Draining
		default:
			m.left = append(m.left, leftover{keyOf(&oldCfg[i]), old[i]})
			m.fresh = append(m.fresh, opening{l, i})
		}
	}
}

// settle fills the open places, with old endpoints of the same address where
// there are any, and releases the old ones that found none.
func (m *move) settle() {
	var byAddr map[addrKey]*endpoint
	if len(m.left) > 0 && len(m.fresh) > 0 {
		byAddr = make(map[addrKey]*endpoint, len(m.left))
		for _, l := range m.left {
			byAddr[l.addrs] = l.e
		}
	}
	for _, o := range m.fresh {
		cfg := &o.loc.cfg[o.i]
		old := byAddr[keyOf(cfg)]
		switch {
		case old == nil:
			old = newEndpoint(o.loc)
		case old.loc != o.loc:
			e := newEndpoint(o.loc)
			e.adopt(old)
			old = e
		}
		old.draining = cfg.Health == picker.Draining
		o.loc.endpoints[o.i] = old
		delete(byAddr, keyOf(cfg))
	}
	for _, l := range m.left {
		if byAddr == nil || byAddr[l.addrs] == l.e {
			l.e.retire(m.lb)
		}
	}
}
