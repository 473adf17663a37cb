// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"time"

	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
)

// priority is the live side of one picker.Priority of one leaf. Its endpoints are
// connected by the balancer, or by the child policies of its groups.
//
// The balancer's mutex guards all fields and methods.
type priority struct {
	tally
	leaf       *common
	index      int // within the leaf
	cfg        *picker.Priority
	localities []*locality
	groups     []*group // by index of their first locality, nil inside for missing groups; nil unless children connect

	phaseBefore phase       // that a retired priority goes back to: serving or failed
	timer       *time.Timer // runs while trying, and while retired
	deadline    int64       // when timer is due, as of Runtime.Now
	next        int         // where the search for an endpoint to connect goes on

	// results are the results of picks of each endpoint, with the localities concatenated; see
	// buildCache. It is immutable once published.
	results     []result
	connectable []*endpoint            // parallel to results if the endpoints connect on demand
	state       []picker.LocalityState // for Build
}

// newPriority returns a priority of a leaf. changed is the cluster's list of tallies.
func newPriority(l *common, changed *[]*tally) *priority {
	return &priority{leaf: l, tally: tally{changed: changed}}
}

// phase is where a priority is in its life (A56):
//
//	dormant ──activate──► trying ──READY, IDLE──► serving
//	                        │ ▲                    │   ▲
//	          failure, or   │ └────CONNECTING──────┤   │ READY, IDLE
//	          out of time   ▼                      │   │
//	                      failed ◄─────failure─────┘   │
//	                        └──────────────────────────┘
//
// A higher priority that serves retires this one, whatever it is in. It keeps its
// connections, and resumes when it is activated again, or is dormant after
// Config.RetireAfter.
type phase uint8

const (
	dormant phase = iota // no endpoint was asked to connect
	trying               // it has the failover time to connect
	serving              // READY or IDLE: it gets RPCs
	failed               // it has failed since it last served, or not connected in time
	retired              // it is not needed, and keeps its connections for a while
)

// String returns the phase's name.
func (p phase) String() string {
	return [...]string{"dormant", "trying", "serving", "failed", "retired"}[p]
}

// activate makes the priority one that may be used: it starts to connect, or comes
// back from retirement. Endpoints that were not asked to connect are, if they are
// not to wait for RPCs.
func (p *priority) activate() {
	switch p.phase {
	case dormant:
		p.needsConnect = true
		p.enter(trying)
	case retired:
		p.enter(p.phaseBefore)
		p.observe()
	}
	if p.needsConnect {
		p.connectEndpoints()
		p.observe() // without endpoints it has failed already
	}
}

// connectEndpoints asks all endpoints to connect that are not to wait for RPCs, or
// has child policies do so.
func (p *priority) connectEndpoints() {
	p.needsConnect = false
	if p.leaf.delegates() {
		p.syncGroups()
	} else if !p.leaf.onDemand() {
		for _, l := range p.localities {
			for i, e := range l.endpoints {
				e.connect(l.cfg.At(i))
			}
		}
	}
	p.stale = true
}

// afterUpdate settles the priority after an update: endpoints may have come with
// their connections, gone, or be new, and the policy may be another.
func (p *priority) afterUpdate() {
	if p.phase == dormant && p.hasConn() {
		// Connections that moved here are kept like connections of a priority that was in use
		// before.
		p.enter(serving)
		p.retire()
	}
	switch {
	case !p.leaf.delegates():
		p.closeGroups()
		if p.needsConnect && p.active() {
			p.connectEndpoints()
		}
	case p.phase != dormant:
		p.needsConnect = false
		p.syncGroups()
	}
	p.observe()
}

// active reports whether the priority is in use, or was tried.
func (p *priority) active() bool { return p.phase != dormant && p.phase != retired }

// hasConn reports whether an endpoint has a connection: O(endpoints).
func (p *priority) hasConn() bool {
	for e := range p.endpoints {
		if e.conn != nil {
			return true
		}
	}
	return false
}

// enter moves the priority to a phase, and starts the timer of that.
func (p *priority) enter(to phase) {
	serial.Halt(&p.timer)
	p.phase = to
	switch to {
	case trying:
		p.await(p.leaf.opts.FailoverTimeout, p.giveUp)
	case retired:
		p.await(p.leaf.opts.RetireAfter, func() {
			p.stop()
			p.note(phased)
		})
	}
}

// await starts the timer of the priority's phase.
func (p *priority) await(d time.Duration, f func()) {
	p.deadline = p.leaf.rt.Now() + int64(d)
	p.leaf.entry.after(d, &p.timer, f)
}

// giveUp ends the failover time of a priority that is being tried.
func (p *priority) giveUp() {
	p.phase = failed
	p.note(phased)
}

// retire starts the time after which the connections of a priority that is not
// needed any more are closed (A56).
func (p *priority) retire() {
	if !p.active() {
		return
	}
	p.phaseBefore = failed
	if p.phase == serving {
		p.phaseBefore = serving
	}
	p.enter(retired)
}

// stop shuts the connections down.
func (p *priority) stop() {
	p.enter(dormant)
	for g := range p.liveGroups {
		g.close()
	}
	p.groups = nil
	for e := range p.endpoints {
		e.disconnect()
	}
	p.recount()
	p.invalidate()
}

// observe handles a change of the endpoints' states (T-PRIO-1): READY, IDLE and
// TRANSIENT_FAILURE stop the failover timer, and a priority that served and is connecting again
// restarts it.
func (p *priority) observe() {
	if p.phase == dormant {
		return
	}
	if p.leaf.onDemand() && p.active() {
		if _, wake := p.onDemandState(); wake {
			p.connectOneIdle()
		}
	}
	next := p.phase
	if next == retired {
		next = p.phaseBefore
	}
	switch s := p.connectivity(); {
	case takesRPCs(s):
		next = serving
	case s == picker.TransientFailure:
		next = failed
	case next == serving && p.phase != retired:
		next = trying
	}
	switch {
	case p.phase == retired:
		p.phaseBefore = next
	case p.phase != next:
		p.enter(next)
	}
}

// close ends a priority that is in no configuration any more; its endpoints are
// left, with connections of the balancer's own.
func (p *priority) close() {
	p.place = -1
	p.closeGroups()
	p.enter(dormant)
}

// recount counts the endpoints from scratch: O(endpoints).
func (p *priority) recount() {
	p.counts = [4]int{}
	for e := range p.endpoints {
		e.count(+1)
	}
}

// endpoints visits the endpoints of all localities.
func (p *priority) endpoints(yield func(*endpoint) bool) {
	for _, l := range p.localities {
		for _, e := range l.endpoints {
			if !yield(e) {
				return
			}
		}
	}
}

// size is how many endpoints the priority has.
func (p *priority) size() int {
	n := 0
	for _, l := range p.localities {
		n += len(l.endpoints)
	}
	return n
}

// connectOneIdle connects an endpoint that is IDLE, or has the children do so. The
// search goes on where the last one ended, so that n endpoints which fail one after
// the other cost O(n).
func (p *priority) connectOneIdle() {
	for g := range p.liveGroups {
		if g.state == picker.Idle {
			g.current.exitIdle()
		}
	}
	if p.leaf.delegates() {
		return
	}
	n := p.size()
	for range n {
		l, i := p.at(p.next % n)
		p.next = (p.next + 1) % n
		if e := l.endpoints[i]; e.Connectivity == picker.Idle && !e.Draining {
			e.connect(l.cfg.At(i))
			return
		}
	}
}

// at returns the place of the i-th endpoint, localities concatenated:
// O(localities).
func (p *priority) at(i int) (*locality, int) {
	for _, l := range p.localities {
		if i < len(l.endpoints) {
			return l, i
		}
		i -= len(l.endpoints)
	}
	panic("xdslb: no such endpoint")
}
