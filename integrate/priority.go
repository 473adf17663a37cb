// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/picker"
)

// priority is the live side of one picker.Priority of one leaf.
//
// Its life follows A56: it starts when every higher one has failed, has the
// failover time to connect, and once a higher one is back it is deactivated:
// its connections are kept for a while in case it is needed again.
type priority struct {
	cluster    *cluster
	leaf       *leaf
	index      int // within the leaf
	cfg        *picker.Priority
	localities []*locality
	groups     []*group // by index of their first locality; nil unless children connect

	counts [4]int // endpoints by picker.Connectivity, without the drained ones
	// next is where the search for an endpoint to wake goes on.
	next int
	// started says that the endpoints were asked to connect, and have not
	// been released since.
	started bool
	// incomplete says that endpoints were added which have not been.
	incomplete bool
	// connected says that the priority was READY more recently than it was
	// in TRANSIENT_FAILURE: if it leaves READY it gets the failover time anew.
	connected bool
	failover  *time.Timer // runs while the priority may still connect in time
	retire    *time.Timer // runs while it is deactivated

	// results is what a pick of each endpoint returns, localities
	// concatenated; nil after a change. It is immutable once published.
	results  []balancer.PickResult
	sleepers []sleeper              // parallel to results if the priority is lazy
	state    []picker.LocalityState // for Build; nil after a change
}

// locality is the live side of one picker.Locality.
type locality struct {
	prio      *priority
	id        picker.LocalityID
	cfg       []picker.Endpoint
	load      *picker.Load
	taps      *taps       // of the endpoints, to begin with
	counted   bool        // the endpoints count the RPCs they have in flight
	endpoints []*endpoint // parallel to cfg
}

// connectivity aggregates the states of the priority's endpoints: as
// weighted_target over round_robin would, or by the rules of ring_hash
// (T-RING-7). Only a lazy one, or one of custom children, is ever IDLE.
func (p *priority) connectivity() picker.Connectivity {
	if p.delegates() {
		return p.groupState()
	}
	if p.lazy() {
		state, _ := p.ringState()
		return state
	}
	switch {
	case p.counts[picker.Ready] > 0:
		return picker.Ready
	case p.counts[picker.Connecting]+p.counts[picker.Idle] > 0:
		return picker.Connecting
	default:
		return picker.TransientFailure
	}
}

// serves reports whether a priority in a state gets RPCs: one that is IDLE does,
// since that is what connects it.
func serves(s picker.Connectivity) bool { return s == picker.Ready || s == picker.Idle }

// activate makes sure that all endpoints were asked to connect, if they are not
// to wait for RPCs or in the hands of children. The first time it gives them the
// failover time; a deactivated priority is just kept, and has it if it is connecting.
func (p *priority) activate() {
	if p.retire != nil {
		p.keep()
		p.observe()
	}
	if !p.started {
		p.started, p.incomplete = true, true
		p.startFailover()
	}
	if !p.incomplete {
		return
	}
	if p.tend(); !p.lazy() && !p.delegates() {
		for _, l := range p.localities {
			for i, e := range l.endpoints {
				e.connect(p.cluster.lb, &l.cfg[i])
			}
		}
	}
	p.incomplete = false
	p.forget()
	p.observe() // without endpoints it has failed already
}

// inherit settles the priority after an update: endpoints may have come with
// their connections, gone, or be new.
func (p *priority) inherit() {
	if !p.started && p.linked() {
		// Connections that moved here are kept like those of a priority that
		// was in use before.
		p.started, p.connected = true, true
		p.deactivate()
	}
	p.tend()
	if p.started && p.retire == nil {
		p.activate()
	}
	p.observe()
}

// linked reports whether an endpoint has a connection: O(endpoints).
func (p *priority) linked() bool {
	for _, l := range p.localities {
		for _, e := range l.endpoints {
			if e.linked() {
				return true
			}
		}
	}
	return false
}

// keep cancels the retirement of a deactivated priority.
func (p *priority) keep() {
	if p.retire != nil {
		p.retire.Stop()
		p.retire = nil
	}
}

// deactivate starts the time after which the connections of a priority that
// is not needed any more are closed (A56).
func (p *priority) deactivate() {
	p.stopFailover()
	if !p.started || p.retire != nil {
		return
	}
	p.after(p.cluster.lb.opts.RetireAfter, &p.retire, p.stop)
}

// after starts a timer in slot, publishing what comes of f: see lb.after.
func (p *priority) after(d time.Duration, slot **time.Timer, f func()) {
	b := p.cluster.lb
	b.after(d, slot, func() { f(); b.publishSoon() })
}

// stop closes the connections.
func (p *priority) stop() {
	p.keep()
	p.stopFailover()
	p.started, p.connected = false, false
	p.dismiss()
	for _, l := range p.localities {
		for _, e := range l.endpoints {
			e.release(p.cluster.lb)
		}
	}
	p.recount()
	p.touch()
}

func (p *priority) startFailover() {
	p.after(p.cluster.lb.opts.FailoverTimeout, &p.failover, p.cluster.choose)
}

func (p *priority) stopFailover() {
	if p.failover != nil {
		p.failover.Stop()
		p.failover = nil
	}
}

// observe runs the failover timer after a change of the endpoints' states
// (T-PRIO-1): READY, IDLE and TRANSIENT_FAILURE end it, and leaving the first two
// starts it anew.
func (p *priority) observe() {
	if !p.started {
		return
	}
	if p.lazy() && p.retire == nil {
		if _, wake := p.ringState(); wake {
			p.rouse()
		}
	}
	switch p.connectivity() {
	case picker.Ready, picker.Idle:
		p.connected = true
		p.stopFailover()
	case picker.TransientFailure:
		p.connected = false
		p.stopFailover()
	default:
		if p.connected && p.failover == nil && p.retire == nil {
			p.connected = false
			p.startFailover()
		}
	}
}

// recount counts the endpoints from scratch: O(endpoints).
func (p *priority) recount() {
	p.counts = [4]int{}
	for e := range p.endpoints {
		e.count(+1)
	}
}

// touch notes that the set of endpoints changed.
func (p *priority) touch() {
	p.incomplete = true
	p.forget()
}

// forget drops what was derived from the endpoints and their connections.
func (p *priority) forget() {
	p.results, p.sleepers, p.state = nil, nil, nil
}

// derive computes results and state if they were dropped: O(endpoints).
func (p *priority) derive() {
	if p.state != nil {
		return
	}
	n := p.size()
	if p.lazy() {
		p.sleepers = make([]sleeper, 0, n)
	}
	p.results = make([]balancer.PickResult, 0, n)
	states := make([]*picker.EndpointState, 0, n)
	p.state = make([]picker.LocalityState, 0, len(p.localities))
	for _, l := range p.localities {
		from := len(states)
		for i, e := range l.endpoints {
			p.results = append(p.results, balancer.PickResult{SubConn: e.conn, Done: e.done})
			states = append(states, &e.EndpointState)
			if p.sleepers != nil {
				p.sleepers = append(p.sleepers, sleeper{e, &l.cfg[i]})
			}
		}
		p.state = append(p.state, picker.LocalityState{Load: l.load, Endpoints: states[from:len(states):len(states)]})
	}
}
