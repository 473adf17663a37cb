// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

// A watcher wants a resource, and hears of its changes: a dependencyManager, or the entry of
// an assignment that wants its collections (see assignment).
type watcher interface {
	// onChangeLocked follows a change of e, which the watcher knows as d.
	onChangeLocked(e *entry, d *dependency)
	// targetsLocked visits the targets that are behind the watcher, perhaps more than once.
	targetsLocked(visit func(*dependencyManager))
}

func (m *dependencyManager) onChangeLocked(_ *entry, d *dependency) {
	m.staleLocked(d)
	delivered := m.notifyLocked()
	if m.c.affected != nil {
		m.c.affected[m] = delivered
	}
}

func (m *dependencyManager) targetsLocked(visit func(*dependencyManager)) { visit(m) }

// changedLocked tells the watchers that e has changed.
func (c *Client) changedLocked(e *entry) {
	for w, d := range e.watchers {
		w.onChangeLocked(e, d)
	}
}

// targetsLocked visits the targets that depend on e.
func (e *entry) targetsLocked(visit func(*dependencyManager)) {
	for w := range e.watchers {
		w.targetsLocked(visit)
	}
}
