// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
)

// priority is the live counterpart of a picker.Priority of one leaf. Its endpoints are
// connected by the balancer, or by the child policies of its groups.
//
// The balancer's mutex guards all fields and methods.
type priority struct {
	tally
	leaf       *leafState
	index      int // within the leaf
	cfg        *picker.Priority
	localities []*locality
	groups     []*group // by index of their first locality, nil inside for missing groups; nil unless children connect

	phaseBefore phase       // the phase to which a retired priority returns: serving or failed
	timer       *time.Timer // runs while trying, and while retired
	deadline    int64       // when timer expires, in the time of Runtime.Now
	next        int         // where the search for an endpoint to connect continues

	// results are the results of picks of each endpoint, with the localities concatenated; see
	// buildCache. It is immutable once published.
	results     []result
	connectable []*endpoint            // parallel to results if endpoints connect on demand
	state       []picker.LocalityState // for Build
}

// newPriority returns a priority of a leaf. changed is the cluster's list of tallies. The search for
// an endpoint to connect starts anywhere (A117), so that a fleet does not connect to the same one.
func newPriority(l *leafState, changed *[]*tally) *priority {
	p := &priority{leaf: l, tally: tally{changed: changed}}
	if !l.simulated {
		p.next = int(rand.Int32())
	}
	return p
}

// phase is the state of a priority in its life cycle (A56):
//
//	dormant ──activate──► trying ──READY, IDLE──► serving
//	                        │ ▲                    │   ▲
//	          failure, or   │ └────CONNECTING──────┤   │ READY, IDLE
//	          out of time   ▼                      │   │
//	                      failed ◄─────failure─────┘   │
//	                        └──────────────────────────┘
//
// A higher priority that serves retires this one, whatever its phase. It keeps its connections,
// and resumes when it is activated again, or becomes dormant after Config.RetireAfter.
type phase uint8

const (
	dormant phase = iota // no endpoint has been connected
	trying               // it has the failover time to connect
	serving              // READY or IDLE: it gets RPCs
	failed               // it has failed since it last served, or did not connect in time
	retired              // it is not needed, and keeps its connections for a limited time
)

// String returns the phase's name.
func (p phase) String() string {
	return [...]string{"dormant", "trying", "serving", "failed", "retired"}[p]
}

// activate makes the priority eligible: it starts to connect, or returns from retirement.
// Endpoints that were not connected before are connected, unless they wait for RPCs.
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

// connectEndpoints connects all endpoints that do not wait for RPCs, or makes the child
// policies connect them.
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

// afterUpdate settles the priority after an update: endpoints may have been added or removed,
// or may have brought their connections, and the policy may have changed.
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

// active reports whether the priority is in use, or has been tried.
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

// enter moves the priority to a phase, and starts the phase's timer.
func (p *priority) enter(to phase) {
	serial.Halt(&p.timer)
	p.phase = to
	switch to {
	case trying:
		p.await(p.leaf.opts.FailoverTimeout, p.onFailoverTimeout)
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

// onFailoverTimeout handles the end of the failover time of a priority that is being tried.
func (p *priority) onFailoverTimeout() {
	p.enter(failed)
	p.note(phased)
}

// retire starts the timer that closes the connections of a priority that is not needed any more
// (A56).
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

// close removes a priority from the configuration; its endpoints remain, with connections owned
// by the balancer.
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

// size returns the number of endpoints.
func (p *priority) size() int {
	n := 0
	for _, l := range p.localities {
		n += len(l.endpoints)
	}
	return n
}

// connectOneIdle connects an IDLE endpoint, or has the children connect. The search continues
// where the last one ended, so that n endpoints which fail one after the other cost O(n).
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

// kernelState converts a gRPC state to the kernel's.
func kernelState(s connectivity.State) picker.Connectivity {
	switch s {
	case connectivity.Ready:
		return picker.Ready
	case connectivity.Idle:
		return picker.Idle
	case connectivity.Connecting:
		return picker.Connecting
	default:
		return picker.TransientFailure
	}
}

// grpcState converts a kernel state to gRPC's.
func grpcState(s picker.Connectivity) connectivity.State {
	return [...]connectivity.State{
		picker.Idle: connectivity.Idle, picker.Connecting: connectivity.Connecting,
		picker.Ready: connectivity.Ready, picker.TransientFailure: connectivity.TransientFailure,
	}[s]
}

// stateName returns gRPC's name of a state.
func stateName(s picker.Connectivity) string {
	return grpcState(s).String()
}

// ejected returns the number of ejected endpoints: O(endpoints).
func (p *priority) ejected() (n int) {
	for e := range p.endpoints {
		if e.Ejected {
			n++
		}
	}
	return n
}

// empty reports whether the priority has no endpoints.
func (p *priority) empty() bool { return p.counts == [4]int{} }

// failureDetails returns the details of a priority without an endpoint to pick, and the reason code:
// it has no endpoints, or none is reachable, or TLS failed. O(endpoints).
func (p *priority) failureDetails() (msg, reason string) {
	if p.empty() {
		return whyLeafEmpty(p.leaf.cfg), ReasonNoEndpoints
	}
	reason = ReasonUnreachable
	if note := p.leaf.cfg.ResolutionNote; note != nil {
		msg += fmt.Sprintf(" (%v)", note)
	}
	if n := p.ejected(); n > 0 {
		msg += fmt.Sprintf("; %d of its endpoints are ejected as outliers", n)
	}
	if err := p.leaf.lastErr; err != nil {
		msg += fmt.Sprintf("; latest connection error: %v", err)
		if strings.Contains(err.Error(), "authentication handshake failed") { // gRPC's text
			reason = ReasonTLS
		}
	}
	return msg, reason
}

// shortfall returns what the priority lacks to get RPCs.
func (p *priority) shortfall() string {
	if p.empty() {
		return fmt.Sprintf("no targets to pick from in priority %d", p.index)
	}
	return fmt.Sprintf("no endpoint of priority %d is reachable", p.index)
}

// unreachable returns why RPCs leave the priority.
func (p *priority) unreachable() string {
	about, _ := p.failureDetails()
	return p.shortfall() + about
}

// connectivity aggregates the states of the priority's endpoints, as weighted_target over
// round_robin does, or by the rules of ring_hash (T-RING-7). Only a priority that connects on
// demand, or has custom children, is ever IDLE.
func (p *priority) connectivity() picker.Connectivity {
	if p.leaf.delegates() {
		return p.groupState()
	}
	if p.leaf.onDemand() {
		state, _ := p.onDemandState()
		return state
	}
	switch {
	case p.counts[picker.Ready] > 0:
		return picker.Ready
	case p.counts[picker.Ready]+p.counts[picker.Connecting]+p.counts[picker.Idle] > 0:
		return picker.Connecting
	default:
		return picker.TransientFailure
	}
}

// takesRPCs reports whether a priority in a state gets RPCs. An IDLE priority does, because
// RPCs make it connect.
func takesRPCs(s picker.Connectivity) bool { return s == picker.Ready || s == picker.Idle }

// groupState aggregates the groups' states as weighted_target does. A group that does not exist
// yet counts as connecting.
func (p *priority) groupState() picker.Connectivity {
	var has [4]bool
	for i, l := range p.localities {
		switch {
		case i < len(p.groups) && p.groups[i] != nil:
			has[p.groups[i].state] = true
		case l.usable() && !(p.leaf.cfg.Policy.Flat && len(p.groups) > 0 && p.groups[0] != nil):
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

// onDemandState returns the state of a priority that connects on demand, and whether the
// priority must connect an endpoint itself to recover (T-RING-7), since it may get no RPCs.
func (p *priority) onDemandState() (state picker.Connectivity, connectOne bool) {
	return picker.RingState(p.counts[picker.Idle], p.counts[picker.Connecting], p.counts[picker.Ready], p.counts[picker.TransientFailure])
}
