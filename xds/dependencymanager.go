// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// targetKey names a target.
type targetKey struct{ listener, authority string }

// dependencyManager watches the resources that one target depends on, and puts them
// together to a configuration (A74's XdsDependencyManager).
//
// It is driven by state, not by events: whoever changes a resource notifies the
// manager, whose goroutine then evaluates everything again. However many changes come
// in the meantime, there is one evaluation, so nothing queues up and callbacks cannot
// be late, doubled or out of order. Evaluating n clusters costs O(n) map look-ups, and
// copies nothing that did not change.
//
// Everything is guarded by Client.mu.
type dependencyManager struct {
	c   *Client
	key targetKey

	watches     map[*watch]struct{}
	lingerTimer timing.Timer // runs while there are none
	closed      bool
	wake        chan struct{} // holds a token if there is something to evaluate
	// delivered is closed when everything up to the latest notification has been
	// evaluated and delivered; nil if it has been already.
	delivered chan struct{}

	// generation counts evaluations. An evaluation stamps what it uses, and sweeps
	// what has an older stamp.
	generation uint64
	deps       map[*entry]uint64
	clusters   map[string]*cluster
	leaves     map[string]*leaf

	latest *plan // the latest that is desired
	active *plan // in use, nil if none is

	// halvings is how often the largest hash ring or table is halved.
	halvings uint8

	// The latest outcome: one of the two.
	config  *picker.Config
	err     error
	outcome uint64 // its number

	journal journal // see Client.Events
	told    uint64  // the number of the outcome that it has
}

// watch is one Watcher of a target.
type watch struct {
	watcher Watcher
	seen    uint64 // number of the outcome that it was called with
}

// managerLocked returns the manager of a target, making it if there is none.
func (c *Client) managerLocked(key targetKey) *dependencyManager {
	m := c.managers[key]
	if m == nil {
		m = &dependencyManager{
			c:        c,
			key:      key,
			watches:  map[*watch]struct{}{},
			wake:     make(chan struct{}, 1),
			deps:     map[*entry]uint64{},
			clusters: map[string]*cluster{},
			leaves:   map[string]*leaf{},
		}
		c.managers[key] = m
		c.tasks.Go(m.run)
	}
	return m
}

// notifyLocked makes the manager evaluate again, and returns what is closed after that.
func (m *dependencyManager) notifyLocked() (delivered chan struct{}) {
	if m.delivered == nil {
		m.delivered = make(chan struct{})
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return m.delivered
}

// lingerLocked starts the time that a manager without watches is kept up to date.
func (m *dependencyManager) lingerLocked() {
	if m.c.opts.Linger < 0 {
		m.closeLocked()
		return
	}
	m.lingerTimer.StartLocked(m.c.opts.Linger, locker{m.c}, m.closeLocked)
}

// closeLocked ends the manager; its goroutine does the rest.
func (m *dependencyManager) closeLocked() {
	if m.closed {
		return
	}
	m.closed = true
	m.lingerTimer.StopLocked()
	clear(m.watches)
	delete(m.c.managers, m.key)
	m.generation++
	m.sweepLocked()
	m.notifyLocked()
}

// run is the manager's goroutine: it evaluates and delivers until the manager is
// closed.
func (m *dependencyManager) run() {
	for closed := false; !closed; {
		<-m.wake
		m.c.mu.Lock()
		delivered := m.delivered
		m.delivered = nil
		closed = m.closed
		if !closed {
			m.evaluateLocked()
		}
		m.c.unlock()
		for m.deliver() {
		}
		if delivered != nil {
			close(delivered)
		}
	}
}

// deliver calls one Watcher that does not have the latest outcome, and reports
// whether there was one.
func (m *dependencyManager) deliver() bool {
	m.c.mu.Lock()
	config, err := m.config, m.err
	var next *watch
	for w := range m.watches {
		if w.seen != m.outcome {
			next = w
			w.seen = m.outcome
			m.deliveringLocked()
			break
		}
	}
	m.c.unlock()
	switch {
	case next == nil:
		return false
	case err != nil:
		next.watcher.Error(err)
	default:
		next.watcher.Update(config)
	}
	return true
}

// deliveringLocked puts the first delivery of an outcome into the journal.
func (m *dependencyManager) deliveringLocked() {
	if m.told == m.outcome {
		return
	}
	m.told = m.outcome
	kind := ConfigurationDelivered
	if m.err != nil {
		kind = TargetFailed
	}
	m.journal.add(newEvent(kind, m.err))
}

// waitingLocked says what the target waits for, if that is why it has no
// configuration: the first by type and name of what nothing has been heard of.
func (m *dependencyManager) waitingLocked() error {
	if m.active != nil || m.err != nil {
		return m.err
	}
	var first *entry
	more := 0
	for e := range m.deps {
		if !e.unansweredLocked() {
			continue
		}
		if first == nil || m.optional(first) || !m.optional(e) && compareKeys(e.key, first.key) < 0 {
			first = e
		}
		more++
	}
	if first == nil {
		return nil // what there is has not been looked at yet
	}
	err := first.waitingLocked()
	if more > 1 {
		err = fmt.Errorf("%w; and for %d more", err, more-1)
	}
	return m.c.withNodeID(err)
}

// useLocked returns a resource, which the manager watches from now on.
func (m *dependencyManager) useLocked(typ resource.Type, name string) *entry {
	e := m.c.entryLocked(typ, name)
	_, watched := m.deps[e]
	m.deps[e] = m.generation
	if !watched {
		m.c.watchLocked(e, m)
	}
	return e
}

// sweepLocked drops what the latest evaluation did not use.
func (m *dependencyManager) sweepLocked() {
	for e, generation := range m.deps {
		if generation != m.generation {
			delete(m.deps, e)
			m.c.unwatchLocked(e, m)
		}
	}
	for name, c := range m.clusters {
		if c.generation != m.generation {
			delete(m.clusters, name)
		}
	}
	for name, l := range m.leaves {
		if l.generation != m.generation {
			delete(m.leaves, name)
		}
	}
}
