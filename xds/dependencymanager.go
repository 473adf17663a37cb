// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/internal/timing"
)

// targetKey names a target.
type targetKey struct{ listener, authority string }

// dependencyManager watches the resources that one target depends on, and puts them
// together to a configuration (A74's XdsDependencyManager).
//
// It is driven by state, not by events: whoever changes a resource marks what was made
// of it as stale (see dependency.go) and notifies the manager, whose goroutine then
// evaluates what is stale. However many changes come in the meantime, there is one
// evaluation, so nothing queues up and callbacks cannot be late, doubled or out of order.
// An evaluation costs O(what changed), and one copy of n pointers if one of n clusters
// has a new value; one after which other routes are in use costs O(n).
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

	clusters map[string]*cluster // of want and active
	leaves   map[string]*leaf    // of clusters
	root     cluster             // uses what the plans are made of

	stale   []*cluster // marked since they were looked at; those that are held count
	looking *cluster   // is being looked at
	look    uint64     // its number

	// What may have lost its last user since sweepLocked.
	unused       []*dependency
	unusedLeaves []*leaf

	latest *plan // the latest that was desired
	want   *plan // is desired; nil if there is no such plan
	active *plan // in use, nil if none is

	hashes   hashNeeds // of leaves
	halvings uint8     // how often the largest hash ring or table is halved

	// The latest outcome: one of the two.
	config    *picker.Config
	err       error
	outcome   uint64     // its number
	published *plan      // that config is of
	looked    []*cluster // looked at since config was made or found to be up to date
	received  arrival    // of the latest of what config is of

	journal eventlog.Journal // see Client.Events
	told    uint64           // the number of the outcome that it has
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
	m.setPlanLocked(&m.want, nil)
	m.setPlanLocked(&m.active, nil)
	m.lookLocked(&m.root, func() {})
	m.sweepLocked()
	m.notifyLocked()
}

// run is the manager's goroutine: it evaluates and delivers until the manager is
// closed.
func (m *dependencyManager) run() {
	for closed := false; !closed; {
		<-m.wake
		m.c.mu.Lock()
		select {
		case <-m.wake: // came while waiting for the mutex
		default:
		}
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
	kind := eventlog.ConfigurationDelivered
	if m.err != nil {
		kind = eventlog.TargetFailed
	}
	m.journal.Add(newEvent(kind, m.err))
}

// waitingLocked says what the target waits for, if that is why it has no
// configuration: the first by type and name of what nothing has been heard of.
func (m *dependencyManager) waitingLocked() error {
	if m.active != nil || m.err != nil {
		return m.err
	}
	var first *entry
	more := 0
	for e := range m.depsLocked() {
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
