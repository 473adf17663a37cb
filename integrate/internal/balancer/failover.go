// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// This file has a cluster's reaction to its priorities, and its choice among them (A56).

// handleMarks handles the marks of an event and returns the change that follows from them. Marks
// made meanwhile belong to priorities that selectPriority activates, and selectPriority has taken them into
// account.
func (c *cluster) handleMarks(f *eventContext) (ch change) {
	used, growing := c.inUse, true
	var seen mark
	for _, t := range c.changed[:len(c.changed):len(c.changed)] {
		if t.place < 0 {
			continue
		}
		p, m := c.priorities[t.place], t.marks
		seen |= m
		switch {
		case m&(grew|states) != 0:
			p.observe()
			ch |= c.selectPriority()
			if p == c.inUse || f.sessions {
				ch |= render | announce
			}
			growing = growing && p == c.inUse
		case m&phased != 0:
			ch |= c.selectPriority()
		}
		if m&pickers != 0 && p == c.inUse {
			ch |= wake
		}
		if m&connError != 0 {
			c.awaitFailure(p.leaf)
		}
	}
	switch seen & (grew | states | phased) {
	case 0:
	case grew:
		if growing && c.inUse == used && c.onlyGrows() {
			ch |= grown
			break
		}
		fallthrough
	default:
		ch |= publish
	}
	if ch&(grown|publish) != 0 && c.shouldPublishNow(f.slow) {
		ch |= urgent
	}
	if c.clearMarks()&picks != 0 {
		ch |= render | publish
	}
	return ch
}

// eventContext is the state of the balancer that a cluster reads to handle an event.
type eventContext struct {
	sessions bool // a route has session affinity
	slow     bool // publications take long
}

// selectPriority selects the priority to use. It follows A56, except that while A56's choice is still
// connecting, the previous priority stays in use if it is READY, or a higher READY priority is
// used. Therefore an update that adds a new priority at the top moves no traffic away from
// READY endpoints.
//
// Priorities below the chosen one are retired.
func (c *cluster) selectPriority() (ch change) {
	i := c.choosePriority()
	chosen := i >= 0 && takesRPCs(c.priorities[i].connectivity())
	if prev := c.inUse; !chosen && prev != nil && prev.connectivity() == picker.Ready {
		i = slices.IndexFunc(c.priorities, func(p *priority) bool { return p.connectivity() == picker.Ready })
		c.priorities[i].activate() // an update may have moved it up
	}
	var inUse *priority
	if i >= 0 {
		inUse = c.priorities[i]
	}
	if chosen {
		for _, p := range c.priorities[i+1:] {
			p.retire()
		}
	}
	if inUse != c.inUse {
		c.rec.recordPriority(c.cfg.Name, slices.Index(c.priorities, c.inUse), i, c.inUse.unreachable)
		c.inUse = inUse
		ch = render
	}
	return ch
}

// choosePriority returns the index of the first priority that is READY or IDLE or still has
// time to connect, activating dormant priorities on the way (A56's ChoosePriority). If there is
// no such priority it returns the first that is connecting, or else the last; -1 if there are
// no priorities.
func (c *cluster) choosePriority() int {
	for i, p := range c.priorities {
		p.activate()
		if p.phase == trying || takesRPCs(p.connectivity()) {
			return i
		}
	}
	for i, p := range c.priorities {
		if p.connectivity() == picker.Connecting {
			return i
		}
	}
	return len(c.priorities) - 1
}

// immediatePublishReady is the number of READY endpoints up to which each new one is published without a
// pause: a channel that is starting spreads its first RPCs over all of a few backends.
const immediatePublishReady = 8

// shouldPublishNow reports whether RPCs benefit enough from the changes to publish at once: the first
// endpoint can be picked, or the number of endpoints is small and has grown, unless
// publications are slow.
func (c *cluster) shouldPublishNow(slow bool) bool {
	if !c.serving && takesRPCs(c.status()) {
		return true
	}
	if c.inUse == nil || slow {
		return false
	}
	n := c.inUse.counts[picker.Ready]
	return n > c.ready && n <= immediatePublishReady
}

// onlyGrows reports whether a further READY endpoint of the priority in use only adds to the
// endpoints to pick from.
func (c *cluster) onlyGrows() bool {
	return c.serving && !c.mayQueueWhileReady()
}

// failureTextDelay limits how often a cluster is published whose endpoints all fail with
// different errors.
const failureTextDelay = time.Second

// awaitFailure publishes the latest connection error of a leaf for failing RPCs, after a delay
// if the state of the cluster does not change with it.
func (c *cluster) awaitFailure(l *leafState) {
	if c.failureTimer != nil || c.inUse == nil || c.inUse.leaf != l {
		return
	}
	c.entry.after(failureTextDelay, &c.failureTimer, func() {
		if c.inUse != nil && c.status() == picker.TransientFailure {
			c.inUse.note(picks)
		}
	})
}
