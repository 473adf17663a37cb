// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"net/netip"
	"slices"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// This file carries a cluster from one configuration to the next, with one invariant: an
// endpoint in both configurations is the same endpoint, with its connection, even if everything
// around it moves. Chunks that both configurations share are skipped. Endpoints of the
// remaining chunks are compared in place first, so that an update which keeps the order costs
// one pass over them. Only endpoints left over on either side are matched through a map.

// reconciler carries the endpoints of one leaf over to a new configuration.
type reconciler struct {
	leaf    *leafState
	changes *eventlog.Changes
	changed *[]*tally     // the cluster's, for new priorities
	left    []oldEndpoint // without a place yet
	open    []slot        // without an endpoint yet
	started bool          // the leaf had endpoints before
	moved   bool          // more than weights has changed, so that states must be counted again
}

type oldEndpoint struct {
	cfg     *picker.Endpoint // previous configuration
	e       *endpoint
	derived bool // the state of e was the state of its connection
	taken   bool
}

// slot is the place of an endpoint.
type slot struct {
	loc *locality
	i   int
}

// reconcile makes the leaf's priorities and endpoints match its configuration. changed is the
// cluster's list of tallies. It reports whether the states of endpoints must be counted again.
func (l *leaf) reconcile(changes *eventlog.Changes, changed *[]*tally) (moved bool) {
	m := reconciler{leaf: l.leafState, changes: changes, changed: changed}
	for range l.endpoints {
		m.started = true
		break
	}
	m.matchPriorities(l)
	m.finish()
	return m.moved
}

// matchPriorities makes the leaf's priorities match its new configuration. A priority continues
// an old one that shares a locality with it, preferably the one at the same index (T-PRIO-5).
func (m *reconciler) matchPriorities(l *leaf) {
	olds := l.priorities
	byLocality := map[picker.LocalityID][]int{} // indexes of olds
	for i, p := range olds {
		for _, loc := range p.localities {
			byLocality[loc.id] = append(byLocality[loc.id], i)
		}
	}
	continued := make([]bool, len(olds))
	l.priorities = make([]*priority, len(l.cfg.Priorities))
	for i := range l.cfg.Priorities {
		cfg := &l.cfg.Priorities[i]
		p := newPriority(m.leaf, m.changed)
		best := -1
		for _, loc := range cfg.Localities {
			for _, k := range byLocality[loc.ID] {
				if !continued[k] && (best < 0 || k == i || k < best && best != i) {
					best = k
				}
			}
		}
		if best >= 0 {
			p, continued[best] = olds[best], true
		}
		m.moved = m.moved || best != i
		p.index, p.cfg = i, cfg
		l.priorities[i] = p
	}
	for i, p := range olds {
		if !continued[i] {
			m.moved = true
			p.close()
			for _, loc := range p.localities {
				m.offer(p, loc)
			}
		}
	}
	for _, p := range l.priorities {
		m.matchLocalities(p)
	}
}

// offer makes the endpoints of a removed locality available to other places.
func (m *reconciler) offer(p *priority, l *locality) {
	for i, e := range l.endpoints {
		m.left = append(m.left, oldEndpoint{cfg: l.cfg.At(i), e: e, derived: p.groups == nil})
	}
}

// matchLocalities takes over the localities of the priority's previous configuration, and in
// each the endpoints whose index is unchanged.
func (m *reconciler) matchLocalities(p *priority) {
	olds := p.localities
	byID := make(map[picker.LocalityID]int, len(olds)) // indexes of olds
	for k, l := range olds {
		byID[l.id] = k
	}
	p.localities = make([]*locality, len(p.cfg.Localities))
	counted := countingOf(m.leaf.cfg)
	for i := range p.cfg.Localities {
		cfg := &p.cfg.Localities[i]
		load := p.leaf.load.Locality(cfg.ID)
		k, ok := byID[cfg.ID]
		if !ok || olds[k] == nil || olds[k].load != load || olds[k].counted != counted {
			// Endpoints that move here from another locality are created again, because the
			// counters of an endpoint's RPCs are fixed when it is created.
			l := &locality{
				leaf: m.leaf, tally: &p.tally, id: cfg.ID, cfg: cfg.Endpoints, load: load, observers: p.leaf.loadObserver(cfg.ID), counted: counted,
				binding:   counted.binding(load, p.leaf.breaker.Breaker, m.leaf.rpcClock),
				endpoints: make([]*endpoint, cfg.Endpoints.Len()),
			}
			l.changed()
			for j := range l.endpoints {
				m.open = append(m.open, slot{l, j})
			}
			p.localities[i] = l
			m.moved = true
			p.invalidate()
			continue
		}
		if k != i {
			m.moved = true
			p.invalidate()
		}
		p.localities[i] = olds[k]
		m.matchEndpoints(p, olds[k], cfg.Endpoints)
		olds[k] = nil
	}
	for _, l := range olds {
		if l != nil {
			m.moved = true
			m.offer(p, l)
			p.invalidate()
		}
	}
}

// matchEndpoints moves a locality from its old list of endpoints to a new one. If only weights
// and healths differ, the cost is proportional to the differences.
func (m *reconciler) matchEndpoints(p *priority, l *locality, cfg picker.EndpointList) {
	was := l.cfg
	l.cfg = cfg
	if !sameSet(was, cfg) {
		m.moved = true
		p.invalidate()
		l.changed()
		m.rearrange(p, l, was)
		return
	}
	for span := range cfg.Since(was) {
		for i := span.From; i < span.To; i++ {
			if before, now := was.At(i), cfg.At(i); *before != *now {
				same := *before
				same.Weight = now.Weight
				m.moved = m.moved || same != *now
				l.endpoints[i].configure(m.changes, before, now)
			}
		}
	}
}

// rearrange makes the endpoints of a locality parallel to its configuration, which was
// different before: endpoints that are in place stay, and the remaining ones are left over.
func (m *reconciler) rearrange(p *priority, l *locality, was picker.EndpointList) {
	old := l.endpoints
	l.endpoints = make([]*endpoint, l.cfg.Len())
	kept, next := 0, 0 // how far the old and the new list are done
	for from, to := range l.cfg.Since(was) {
		copy(l.endpoints[next:to.From], old[kept:from.From])
		kept, next = from.To, to.To
		for i := range max(from.Len(), to.Len()) {
			k, n := from.From+i, to.From+i
			switch {
			case k < from.To && n < to.To && sameAddrs(was.At(k), l.cfg.At(n)):
				l.endpoints[n] = old[k]
				old[k].configure(m.changes, was.At(k), l.cfg.At(n))
				continue
			case k < from.To:
				m.left = append(m.left, oldEndpoint{cfg: was.At(k), e: old[k], derived: p.groups == nil})
			}
			if n < to.To {
				m.open = append(m.open, slot{l, n})
			}
		}
	}
	copy(l.endpoints[next:], old[kept:])
}

// sameSet reports whether a and b have the same addresses at the same indexes.
func sameSet(a, b picker.EndpointList) bool {
	for was, is := range b.Since(a) {
		if was.Len() != is.Len() {
			return false
		}
		for i := was.From; i < was.To; i++ {
			if x, y := a.At(i), b.At(i); *x != *y && !sameAddrs(x, y) {
				return false
			}
		}
	}
	return true
}

// finish fills the open places with left-over endpoints of the same address, or with new ones,
// and removes the endpoints that are still left over.
func (m *reconciler) finish() {
	byAddr := make(map[addrKey]*oldEndpoint, min(len(m.left), len(m.open)))
	if len(m.open) > 0 {
		for i := range m.left {
			byAddr[keyOf(m.left[i].cfg)] = &m.left[i]
		}
	}
	for _, s := range m.open {
		cfg := s.loc.cfg.At(s.i)
		var e *endpoint
		if old := byAddr[keyOf(cfg)]; old == nil || old.taken {
			e = newEndpoint(s.loc)
			e.Draining, e.Cold = cfg.Health == picker.Draining, m.started
			m.changes.EndpointsAdded++
		} else {
			e, old.taken = old.e, true
			if old.e.loc != s.loc {
				e = newEndpoint(s.loc)
				e.Draining = cfg.Health == picker.Draining
				e.takeOver(old.e, old.derived, cfg)
			}
			e.configure(m.changes, old.cfg, cfg)
		}
		s.loc.endpoints[s.i] = e
		s.loc.changed()
	}
	for i := range m.left {
		if !m.left[i].taken {
			m.changes.EndpointsRemoved++
			m.left[i].e.remove()
		}
	}
}

// addrKey identifies an endpoint by its addresses. A61 ignores their order. Nearly all
// endpoints have only the first address.
type addrKey struct {
	addr netip.AddrPort
	more string
}

func keyOf(e *picker.Endpoint) addrKey {
	if !multiAddressed(e) {
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
