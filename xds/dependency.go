// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"iter"
	"slices"

	"github.com/xdslb/xdslb/xds/resource"
)

// This file tracks which clusters of a target have to be evaluated again when a resource changes.
//
//	entry ──► dependency ──► users: clusters, and the root, which stands for the plan
//	              ▲             │
//	              └── deps ─────┘
//
// A resource that changes marks its users as stale. A mark is a bit, so ten changes of the
// resources of a cluster cause one evaluation. The next evaluation of the target evaluates the
// stale clusters and reuses the values of all others. The evaluation of a cluster determines which
// resources it uses. Resources without users are released at the end.

// dependency is a resource that a target watches. It exists from its first use until
// the end of an evaluation that leaves it without users.
type dependency struct {
	entry *entry
	users users
	// used is the number of the latest evaluation of a cluster that used it.
	used uint64
}

// users are the clusters that use something. Most resources have one.
type users struct {
	first *cluster
	more  map[*cluster]struct{}
}

func (u *users) add(c *cluster) {
	switch {
	case u.first == c:
	case u.first == nil:
		u.first = c
		delete(u.more, c)
	default:
		if u.more == nil {
			u.more = map[*cluster]struct{}{}
		}
		u.more[c] = struct{}{}
	}
}

func (u *users) remove(c *cluster) {
	if u.first == c {
		u.first = nil
		return
	}
	delete(u.more, c)
}

func (u *users) none() bool { return u.first == nil && len(u.more) == 0 }

// useLocked returns a resource for the cluster that is being evaluated, and watches it.
func (m *dependencyManager) useLocked(typ resource.Type, name string) *entry {
	e := m.all.entryLocked(m.cache.entryLocked(typ, name), m.selection, !m.key.options.DropDeleted)
	m.useEntryLocked(e)
	return e
}

func (m *dependencyManager) useEntryLocked(e *entry) {
	d, _ := e.watchers[m].(*dependency)
	if d == nil {
		d = &dependency{entry: e}
		// The user is added first, since watchLocked may change the entry.
		d.users.add(m.evaluating)
		m.cache.watchLocked(e, m, d)
	}
	if d.used != m.evaluation {
		d.used = m.evaluation
		d.users.add(m.evaluating)
		m.shared.using = append(m.shared.using, d)
	}
}

// trackLocked calls f to evaluate a cluster, or the plan, which is m.root, and records the
// resources that it uses.
func (m *dependencyManager) trackLocked(c *cluster, f func()) {
	c.stale = false // changes made by f may mark it again
	m.evaluation++
	m.evaluating, m.shared.using = c, m.shared.using[:0]
	f()
	for _, d := range c.deps {
		if d.used != m.evaluation {
			m.leaveLocked(d, c)
		}
	}
	if !slices.Equal(c.deps, m.shared.using) {
		c.deps = make([]*dependency, len(m.shared.using))
		copy(c.deps, m.shared.using)
	}
	m.evaluating = nil
}

// leaveLocked removes a user of a resource.
func (m *dependencyManager) leaveLocked(d *dependency, c *cluster) {
	if d.users.remove(c); d.users.none() {
		m.unused = append(m.unused, d)
	}
}

// staleLocked marks the users of a resource that has changed.
func (m *dependencyManager) staleLocked(d *dependency) {
	if d.users.first != nil {
		m.markLocked(d.users.first)
	}
	for c := range d.users.more {
		m.markLocked(c)
	}
}

// markLocked makes the next evaluation include a cluster.
func (m *dependencyManager) markLocked(c *cluster) {
	if !c.stale {
		c.stale = true
		m.stale = append(m.stale, c)
	}
}

// sweepLocked releases leaves and resources without users. O(m.unusedLeaves and m.unused).
func (m *dependencyManager) sweepLocked() {
	for _, l := range m.unusedLeaves {
		if l.users == 0 && m.leaves[l.name] == l {
			delete(m.leaves, l.name)
		}
	}
	for _, d := range m.unused {
		if d.users.none() && d.entry.watchers[m] == d {
			m.cache.unwatchLocked(d.entry, m)
		}
	}
	m.unusedLeaves, m.unused = nil, nil
}

// forgetClusterLocked releases a cluster that no plan names any more.
func (m *dependencyManager) forgetClusterLocked(c *cluster) {
	delete(m.clusters, c.name)
	for _, d := range c.deps {
		m.leaveLocked(d, c)
	}
	m.exchangeLeavesLocked(c, nil, nil, 0)
	delete(m.refused, c)
}

// exchangeLeavesLocked replaces the leaves that a cluster uses, and the leaves that are wanted in
// their place.
func (m *dependencyManager) exchangeLeavesLocked(c *cluster, leaves, wanted []*leaf, absent int) {
	before := m.excess
	m.excess -= c.excess()
	for _, l := range leaves {
		l.uses++
		m.hashes.add(l.need, 1)
	}
	for _, l := range c.leaves {
		l.uses--
		m.hashes.add(l.need, -1)
	}
	for _, list := range [][]*leaf{leaves, wanted} {
		for _, l := range list {
			l.users++
		}
	}
	for _, list := range [][]*leaf{c.leaves, c.wanted} {
		for _, l := range list {
			if l.users--; l.users == 0 {
				m.unusedLeaves = append(m.unusedLeaves, l)
			}
		}
	}
	c.leaves, c.wanted, c.absent = leaves, wanted, absent
	if m.excess += c.excess(); m.excess < before && len(m.refused) > 0 {
		for other := range m.refused {
			m.markLocked(other)
		}
		m.notifyLocked()
	}
}

// depsLocked returns the resources that the target watches.
func (m *dependencyManager) depsLocked() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		m.evaluation++
		give := func(c *cluster) bool {
			for _, d := range c.deps {
				if d.used != m.evaluation {
					if d.used = m.evaluation; !yield(d.entry) {
						return false
					}
				}
			}
			return true
		}
		if !give(&m.root) {
			return
		}
		for _, c := range m.clusters {
			if !give(c) {
				return
			}
		}
	}
}
