// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// endpoint is the live counterpart of a picker.Endpoint: its connection, and the state that
// survives snapshots (D9). It belongs to exactly one locality, whose counters count its RPCs.
//
// Picks and priorities use the embedded Connectivity. The balancer derives it from the
// connection (endpoint.observe), or a child policy reports it for all endpoints of its group
// (group.propagateState).
//
// The embedded Draining mirrors the configuration, or is set once the endpoint has been removed
// from it: the endpoint gets no new RPC or connection and does not count for its priority's
// state.
//
// The balancer's mutex guards all methods except finish, and all fields except observers and the
// counters that picks update.
type endpoint struct {
	picker.EndpointState

	loc       *locality
	conn      *conn // nil if there is no connection
	done      func(balancer.DoneInfo)
	observers atomic.Pointer[observers] // nil for most
}

func newEndpoint(loc *locality) *endpoint {
	e := &endpoint{loc: loc}
	e.observers.Store(loc.observers)
	loc.leaf.addObservers(e)
	e.Bind(loc.binding)
	e.done = e.finish
	return e
}

// finish is the pre-bound Done of every pick of the endpoint: one call per
// pick, no per-RPC state (D9).
func (e *endpoint) finish(info balancer.DoneInfo) {
	result := rpc.Result(&info)
	if o := e.observers.Load(); o != nil {
		o.onDone(&info, result)
	}
	if e.TimesRPCs() {
		if result == picker.CallFailed {
			if d := rpc.Pushback(&info); d > 0 {
				e.PushBack(d)
			}
		}
		e.FinishTimed(result)
		return
	}
	e.Finish(result)
}

// connect requests a connection to the endpoint if it has none, or if the connection went IDLE.
// A draining endpoint gets no new connection (A27-CLA-8), and keeps its connection while that
// is READY.
func (e *endpoint) connect(cfg *picker.Endpoint) {
	switch {
	case e.Draining:
	case e.conn == nil:
		c, err := newConn(e, cfg)
		if err != nil {
			return
		}
		e.conn = c
		e.loc.tally.stale = true
		e.setState(picker.Connecting)
	case e.Connectivity == picker.Idle:
		e.setState(picker.Connecting)
		e.conn.connect()
	}
}

// takeOver takes the connection and the observations of an endpoint with the same address,
// whose counters differ. derived reports whether its state was the state of its connection.
// Endpoints of child policies have the state of their group, which may differ.
func (e *endpoint) takeOver(from *endpoint, derived bool, cfg *picker.Endpoint) {
	if err, failed := from.loc.leaf.errs[from]; failed {
		from.forgetError()
		e.rememberError(err)
	}
	from.Draining = true
	if from.conn != nil {
		from.conn.moveTo(e, cfg)
	}
	e.takeObservations(from)
	if derived {
		e.Connectivity = from.Connectivity
		e.loc.changed()
	} else {
		e.resume()
	}
}

// resume sets the state of an endpoint that came from a child policy to the state of its
// connection. The priority's counts must be recomputed afterwards.
func (e *endpoint) resume() {
	e.Connectivity, e.StateSince = picker.Idle, e.loc.leaf.rt.Now()
	e.loc.changed()
	e.forgetError()
	e.ResetConnectRequest()
	c := e.conn
	if c == nil || c.child != nil {
		return
	}
	if e.Draining && c.state != picker.Ready {
		e.disconnect()
		return
	}
	if c.state == picker.Idle && !e.loc.leaf.onDemand() {
		c.connect()
	}
	if e.Connectivity = c.state; c.state == picker.Ready {
		if e.loc.leaf.checksHealth() {
			e.Connectivity = picker.Connecting
			c.checkHealth()
		} else {
			c.stopHealthWatch()
			e.onReady()
		}
	}
}

// disconnect shuts the connection down, unless a child policy owns it.
func (e *endpoint) disconnect() {
	if e.conn != nil && e.conn.child == nil {
		e.conn.shutdown()
		e.ResetConnectRequest()
	}
	e.forgetError()
	e.Connectivity = picker.Idle
	e.loc.changed()
}

// rememberError records why the endpoint cannot be connected.
func (e *endpoint) rememberError(err error) {
	l := e.loc.leaf
	if l.errs == nil {
		l.errs = map[*endpoint]error{}
	}
	l.errs[e] = err
}

// forgetError removes the recorded error.
func (e *endpoint) forgetError() { delete(e.loc.leaf.errs, e) }

// remove disconnects an endpoint that has been removed from the configuration.
func (e *endpoint) remove() {
	e.Draining = true
	e.disconnect()
}

// setState changes the endpoint's state and updates its priority's counts.
func (e *endpoint) setState(to picker.Connectivity) {
	if e.Connectivity == to {
		return
	}
	was := e.Connectivity
	e.count(-1)
	e.Connectivity, e.StateSince = to, e.loc.leaf.rt.Now()
	e.Cold = to == picker.TransientFailure || e.Cold && was != picker.Ready // its server may have restarted
	e.loc.changed()
	e.count(+1)
	if to == picker.Ready {
		e.loc.tally.note(grew)
	} else {
		e.loc.tally.note(states)
	}
	if was == picker.TransientFailure {
		e.forgetError()
	}
	if to == picker.Idle {
		e.ResetConnectRequest()
	}
	if to == picker.Ready {
		e.onReady()
		return
	}
	e.stopOOB()
	if was == picker.Ready { // RPCs may have picked it, and wait for a new picker
		e.loc.leaf.out.repick = true
	}
}

// count adds the endpoint to the counts of its priority, or removes it, n being +1 or -1.
func (e *endpoint) count(n int) {
	if !e.Draining {
		e.loc.tally.counts[e.effectiveState()] += n
	}
}

// recordState adds an event to the event log if the endpoint's connection was lost, or if an
// attempt to connect failed.
func (e *endpoint) recordState(s balancer.SubConnState, lost bool) {
	kind := eventlog.ConnectionLost
	if !lost {
		if s.ConnectivityState != connectivity.TransientFailure {
			return
		}
		kind = eventlog.ConnectionFailed
	}
	l := e.loc.leaf
	l.rec.recordConnection(kind, l.cluster, l.name, e.addr, s.ConnectionError)
}

// addr returns the endpoint's first address, or "" if it is not in the configuration any more:
// O(endpoints of the locality).
func (e *endpoint) addr() string {
	if i := slices.Index(e.loc.endpoints, e); i >= 0 {
		return picker.AddrText(e.loc.cfg.At(i).Addr)
	}
	return ""
}

// effectiveState returns the state that the endpoint counts as. A connected endpoint that is
// ejected counts as failed (A50).
func (e *endpoint) effectiveState() picker.Connectivity {
	if e.Ejected && e.Connectivity == picker.Ready {
		return picker.TransientFailure
	}
	return e.Connectivity
}

// observe updates the connectivity of an endpoint whose connection the balancer owns.
//
// TRANSIENT_FAILURE is sticky: until the connection is READY again its attempts do not count as
// CONNECTING, so that a set of unreachable endpoints counts as failed and the next priority is
// tried (T-LOC-1, A62).
func (e *endpoint) observe(s connectivity.State, err error) {
	was := e.Connectivity
	switch {
	case s == connectivity.Ready:
		e.setState(picker.Ready)
	case e.Draining:
		if e.disconnect(); was != e.Connectivity {
			e.loc.tally.note(states)
		}
	case s == connectivity.TransientFailure:
		e.setState(picker.TransientFailure)
		e.rememberError(err)
		e.loc.leaf.noteError(e.loc.tally, err)
	case s == connectivity.Idle && was != picker.TransientFailure && e.loc.leaf.onDemand():
		e.setState(picker.Idle)
	default:
		if s == connectivity.Idle { // the connection was lost, or its backoff has ended
			e.conn.connect()
		}
		if was != picker.TransientFailure {
			e.setState(picker.Connecting)
		}
	}
}

// configure applies a change of the endpoint's configuration.
func (e *endpoint) configure(changes *eventlog.Changes, was, cfg *picker.Endpoint) {
	noteEndpoint(changes, was, cfg)
	drained := e.Draining
	e.Draining = cfg.Health == picker.Draining
	switch {
	case drained && !e.Draining && e.conn == nil:
		e.loc.tally.needsConnect = true // it has not been connected
	case e.Draining && e.conn != nil && e.conn.child == nil && e.conn.state != picker.Ready:
		e.disconnect()
	}
	if hostname(was) != hostname(cfg) {
		e.renameConn(cfg)
	}
	if !multiAddressed(cfg) || e.conn == nil || was.Addr == cfg.Addr && slices.Equal(was.Extra.Addrs, cfg.Extra.Addrs) {
		return
	}
	if m, ok := e.conn.sc.(*multiAddress); ok {
		m.update(cfg) // in another order
	}
}

// Endpoints of some priorities are not connected before they are needed, since the hash of an RPC
// selects the endpoint (A42, A61).

// requestConnect connects an endpoint that was picked for an RPC. Of the RPCs that pick the
// same endpoint, only the first after it became IDLE costs more than a load. RPCs never take
// the mutex.
func requestConnect(e *endpoint) {
	if e.RequestConnect() {
		go e.loc.leaf.entry.do(e.connectRequested)
	}
}

// connectRequested connects the endpoint, unless it has left its locality or no longer waits
// for RPCs.
func (e *endpoint) connectRequested() {
	l, i := e.loc, slices.Index(e.loc.endpoints, e)
	if i < 0 || l.tally.phase == dormant || l.leaf.delegates() {
		e.ResetConnectRequest()
		return
	}
	if e.connect(l.cfg.At(i)); e.Connectivity == picker.Idle { // it is draining
		e.ResetConnectRequest()
	}
}
