// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/overlay"
)

// dependencyManager watches the resources that one target depends on, and assembles its
// configuration from them (A74's XdsDependencyManager).
//
// It is driven by state, not by events: a change of a resource marks the clusters that use it
// as stale (see dependency.go) and notifies the manager, whose goroutine then evaluates the
// stale clusters. Changes that arrive earlier share one evaluation, so nothing is queued, and
// callbacks cannot be late, repeated or out of order. An evaluation takes O(changes), and a
// copy of n pointers if one of n clusters has a new value; O(n) if other routes take effect.
//
// It uses the cache and core, and has no reference to servers. All fields are guarded by
// core.mu.
type dependencyManager struct {
	core   *core
	cache  *cache
	all    *patches
	shared *shared
	key    targetKey

	// The overlay that the target uses, and its patches for the target, or nil.
	overlay   *overlay.Overlay
	selection *overlay.Selection
	unwatch   func() // of the source of the overlay; nil without one

	watches     map[*watch]struct{}
	lingerTimer timing.Timer // runs while the target has no watchers
	closed      bool
	wake        chan struct{} // holds a token if an evaluation is due
	// delivered is closed when all changes so far have been evaluated and delivered; nil if they
	// have been.
	delivered chan struct{}

	clusters map[string]*cluster // of want and active
	leaves   map[string]*leaf    // of clusters
	root     cluster             // stands for the plans: uses Listener and RouteConfigurations

	stale      []*cluster // marked since their last evaluation, including clusters without a plan
	evaluating *cluster   // the one that is being evaluated
	evaluation uint64     // its number

	// Candidates for removal by sweepLocked: each may have lost its last user.
	unused       []*dependency
	unusedLeaves []*leaf

	latest   *plan       // the latest that was wanted
	compared *comparison // for the next one; nil unless it is large
	want     *plan       // the wanted plan, or nil
	active   *plan       // the plan in use, or nil

	excess  int                   // the sum of cluster.excess
	refused map[*cluster]struct{} // clusters that exceed maxLeaves

	hashes   hashNeeds // of leaves
	halvings uint8     // how often the largest hash ring or table is halved

	// The latest outcome: config or err.
	config    *picker.Config
	err       error
	outcome   uint64      // its number
	published *plan       // the plan of config
	evaluated []*cluster  // evaluated since config was made or found to be up to date
	received  receiveTime // the latest one of the parts of config

	journal  eventlog.Journal // see View.Events
	recorded uint64           // the number of the outcome that it has
}

func newDependencyManager(core *core, cache *cache, all *patches, shared *shared, key targetKey) *dependencyManager {
	return &dependencyManager{
		core:     core,
		cache:    cache,
		all:      all,
		shared:   shared,
		key:      key,
		watches:  map[*watch]struct{}{},
		wake:     make(chan struct{}, 1),
		clusters: map[string]*cluster{},
		leaves:   map[string]*leaf{},
		refused:  map[*cluster]struct{}{},
	}
}

// watchOverlayLocked has the target evaluated when its overlay changes.
func (m *dependencyManager) watchOverlayLocked() {
	source := m.key.view.source
	if source == nil {
		return
	}
	if m.core.overlaid++; m.core.overlaid == 1 {
		m.core.firstOverlays++
	}
	m.unwatch = source.Watch(func() {
		m.core.mu.Lock()
		defer m.core.unlock()
		m.notifyLocked()
	})
}

// selectLocked marks all clusters if the overlay has changed: each may have other patches.
func (m *dependencyManager) selectLocked() {
	source := m.key.view.source
	if source == nil || source.Overlay() == m.overlay {
		return
	}
	o := source.Overlay()
	m.overlay, m.selection = o, o.Select(m.key.view.target)
	for _, c := range m.clusters {
		m.markLocked(c)
	}
}

// unpatchedLocked returns the reason if patches cannot be applied to a resource, since no server can send
// its bytes again; otherwise nil.
func (m *dependencyManager) unpatchedLocked() error {
	if m.selection == nil {
		return nil
	}
	for e := range m.depsLocked() {
		if p := e.patchedLocked(); p != nil && p.noBytes != nil {
			return p.noBytes
		}
	}
	return nil
}

// onChangeLocked implements watcher. data is the dependency on the entry.
func (m *dependencyManager) onChangeLocked(_ *entry, data any) {
	m.staleLocked(data.(*dependency))
	m.notifyLocked()
}

// targetsLocked implements watcher.
func (m *dependencyManager) targetsLocked(visit func(target)) { visit(m) }

// recordLocked implements target.
func (m *dependencyManager) recordLocked(e *eventlog.Event) { m.journal.Add(e) }

// pendingLocked implements target.
func (m *dependencyManager) pendingLocked() chan struct{} { return m.delivered }

// notifyLocked schedules an evaluation.
func (m *dependencyManager) notifyLocked() {
	if m.delivered == nil {
		m.delivered = make(chan struct{})
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// closeLocked ends the manager. Its goroutine ends after that.
func (m *dependencyManager) closeLocked() {
	m.closed = true
	if m.unwatch != nil {
		m.unwatch()
	}
	m.lingerTimer.StopLocked()
	clear(m.watches)
	m.setPlanLocked(&m.want, nil)
	m.setPlanLocked(&m.active, nil)
	m.trackLocked(&m.root, func() {})
	m.sweepLocked()
	m.notifyLocked()
}

// run is the goroutine of the manager. It evaluates and delivers until the manager is closed.
func (m *dependencyManager) run() {
	for closed := false; !closed; {
		<-m.wake
		m.core.mu.Lock()
		select {
		case <-m.wake: // added while waiting for the mutex
		default:
		}
		delivered := m.delivered
		m.delivered = nil
		closed = m.closed
		for !closed {
			m.evaluateLocked()
			large := m.compared
			if large == nil || large.done {
				break
			}
			m.core.unlock()
			large.run()
			m.core.mu.Lock()
			closed = m.closed
		}
		m.core.unlock()
		for m.deliver() {
		}
		if delivered != nil {
			close(delivered)
		}
	}
}

// deliver calls one Watcher that does not have the latest outcome, and reports whether there was
// one.
func (m *dependencyManager) deliver() bool {
	m.core.mu.Lock()
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
	m.core.unlock()
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

// deliveringLocked records the first delivery of an outcome in the journal.
func (m *dependencyManager) deliveringLocked() {
	if m.recorded == m.outcome {
		return
	}
	m.recorded = m.outcome
	kind := eventlog.ConfigurationDelivered
	if m.err != nil {
		kind = eventlog.TargetFailed
	}
	m.journal.Add(newEvent(kind, nil, m.err))
}

// waitingLocked returns the error of the target, or describes what it waits for if it has no
// configuration yet: the first resource without an answer, by type and name.
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
		return nil // the evaluation is still due
	}
	err := first.waitingLocked()
	if more > 1 {
		err = fmt.Errorf("%w; and for %d more", err, more-1)
	}
	return m.core.withNodeID(err)
}
