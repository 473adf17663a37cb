// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
)

// endpoint is the live side of one picker.Endpoint: its SubConn, and the state
// that survives snapshots (D9). It belongs to exactly one locality, whose
// counters its RPCs go to.
//
// All fields but the embedded counters and taps are guarded by the balancer's
// mutex.
type endpoint struct {
	picker.EndpointState

	loc   *locality
	conn  balancer.SubConn // nil while there is none
	done  func(balancer.DoneInfo)
	taps  atomic.Pointer[taps] // nil for most
	bonds *bonds               // nil for most
	// draining mirrors the configuration: the endpoint gets no new RPC or
	// connection and does not count for its priority's state.
	draining bool
	manifold bool                // a child was told of several addresses
	raw      picker.Connectivity // of conn, as gRPC has reported it last
	roused   atomic.Bool         // an RPC has asked for the connection: see sleeper
}

func newEndpoint(loc *locality) *endpoint {
	e := &endpoint{loc: loc}
	e.taps.Store(loc.taps)
	loc.prio.leaf.tap(e)
	e.Bind(loc.load, loc.prio.leaf.breaker.Breaker)
	if loc.counted {
		e.CountInFlight()
	}
	e.done = e.finish
	return e
}

// finish is the pre-bound Done of every pick of the endpoint: one call per
// pick, no per-RPC state (D9). gRPC reports a pick whose connection had gone
// before it was used with an empty DoneInfo, and an RPC whose connection went
// before its message was sent without the error. No RPC succeeds without an
// answer, though.
func (e *endpoint) finish(info balancer.DoneInfo) {
	result := picker.CallVoid
	switch {
	case info.Err != nil:
		result = picker.CallFailed
	case info.BytesReceived:
		result = picker.CallOK
	case info.BytesSent:
		result = picker.CallFailed
	}
	if t := e.taps.Load(); t != nil {
		t.note(&info, result)
	}
	e.Finish(result)
}

// connect asks for a connection to the endpoint if it was not asked for yet, or
// went IDLE since. An endpoint that is drained gets no new one (A27-CLA-8).
func (e *endpoint) connect(b *lb, cfg *picker.Endpoint) {
	if e.draining {
		return
	}
	if e.linked() {
		if e.Connectivity == picker.Idle {
			e.set(picker.Connecting)
			e.reconnect(b)
		}
		return
	}
	e.loc.prio.forget()
	if cfg.Extra != nil && len(cfg.Extra.Addrs) > 0 {
		e.bond().multi = newMultiHomed(b, e, cfg)
		e.set(picker.Connecting)
		return
	}
	var sc balancer.SubConn
	sc, err := b.cc.NewSubConn(
		[]resolver.Address{b.dial(cfg.Addr)},
		balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) { e.onConnState(sc, s) }},
	)
	if err != nil { // only while the channel is closing
		return
	}
	e.conn, e.raw = sc, picker.Connecting
	e.set(picker.Connecting)
	sc.Connect()
}

// reconnect connects an endpoint anew whose connection is IDLE.
func (e *endpoint) reconnect(b *lb) {
	if m := e.multi(); m != nil {
		b.later = append(b.later, func() { m.child.ExitIdle() })
	} else {
		e.conn.Connect()
	}
}

// linked reports whether the endpoint was asked to connect.
func (e *endpoint) linked() bool { return e.conn != nil || e.multi() != nil }

// adopt takes over the connection of an endpoint with the same address, whose
// counters were others.
func (e *endpoint) adopt(from *endpoint) {
	e.conn, from.conn = from.conn, nil
	e.raw = from.raw
	e.Connectivity = from.Connectivity
	from.bequeath(e)
	e.inherit(from)
}

// release hands the connection to the balancer, which closes it once no
// published snapshot refers to it.
func (e *endpoint) release(b *lb) {
	switch {
	case e.holder() != nil: // who shuts it down
		e.Connectivity = picker.Idle
		return
	case e.multi() != nil:
		b.doomed = append(b.doomed, e.multi().close)
	case e.conn != nil:
		b.doomed = append(b.doomed, e.conn.Shutdown)
	}
	e.hush()
	e.conn = nil
	if e.bonds != nil {
		e.bonds.multi = nil
	}
	e.Connectivity = picker.Idle
	e.roused.Store(false)
}

// retire releases an endpoint that is in no configuration any more.
func (e *endpoint) retire(b *lb) {
	e.draining = true
	e.release(b)
}

// set moves the endpoint to a state and keeps its priority's counts.
func (e *endpoint) set(to picker.Connectivity) {
	if e.Connectivity == to {
		return
	}
	e.count(-1)
	e.Connectivity = to
	e.count(+1)
	if to == picker.Idle {
		e.roused.Store(false)
	}
	if to == picker.Ready {
		e.arrive()
	} else {
		e.hush()
	}
}

// count adds the endpoint, or takes it away, n being +1 or -1, among those of
// its priority.
func (e *endpoint) count(n int) {
	if !e.draining {
		e.loc.prio.counts[e.standing()] += n
	}
}

// standing is what the endpoint counts as: one that is connected and ejected has
// failed (A50).
func (e *endpoint) standing() picker.Connectivity {
	if e.Ejected && e.Connectivity == picker.Ready {
		return picker.TransientFailure
	}
	return e.Connectivity
}

// onConnState is the state listener of an endpoint's SubConn.
func (e *endpoint) onConnState(sc balancer.SubConn, s balancer.SubConnState) {
	b := e.loc.prio.cluster.lb
	b.lock()
	defer b.unlock()
	if e = e.current(); !b.closed && e.conn == sc {
		b.onState(e, s)
	}
}

// onState takes note of a state of the endpoint's connection.
func (b *lb) onState(e *endpoint, s balancer.SubConnState) {
	e.raw = connectivityOf(s.ConnectivityState)
	if e.loc.prio.delegates() || e.holder() != nil {
		if h := e.holder(); h != nil {
			h.hear(s)
		}
		return
	}
	if s.ConnectivityState == connectivity.Ready && b.checksHealth() {
		// Connected is not enough; the listener says when it is READY.
		conn := e.conn
		b.later = append(b.later, func() {
			conn.RegisterHealthListener(func(s balancer.SubConnState) { b.onHealth(e, conn, s) })
		})
		s.ConnectivityState = connectivity.Connecting
	}
	b.observe(e, s.ConnectivityState, s.ConnectionError)
}

// checksHealth reports whether connections are READY only once gRPC's health
// listener says so. Without xDS the service config, which is the user's, says
// whether that asks the backend.
func (b *lb) checksHealth() bool { return b.standalone || b.opts.HealthCheckService != "" }

// onHealth takes note of a connection's health (A17).
func (b *lb) onHealth(e *endpoint, conn balancer.SubConn, s balancer.SubConnState) {
	b.lock()
	defer b.unlock()
	if e = e.current(); !b.closed && e.conn == conn {
		b.observe(e, s.ConnectivityState, s.ConnectionError)
	}
}

// observe takes note of an endpoint's connectivity.
//
// TRANSIENT_FAILURE is sticky: until the connection is READY again its
// attempts do not count as CONNECTING, so that a set of dead endpoints reads
// as failed and the next priority gets its turn (T-LOC-1, A62).
func (b *lb) observe(e *endpoint, s connectivity.State, err error) {
	was := e.Connectivity
	switch s {
	case connectivity.Ready:
		e.set(picker.Ready)
	case connectivity.TransientFailure:
		e.set(picker.TransientFailure)
		e.loc.prio.leaf.lastErr = err
	case connectivity.Idle: // the connection was lost, or its back-off is over
		if was != picker.TransientFailure && e.loc.prio.lazy() {
			e.set(picker.Idle)
			break
		}
		e.reconnect(b)
		fallthrough
	case connectivity.Connecting:
		if was != picker.TransientFailure {
			e.set(picker.Connecting)
		}
	}
	if e.Connectivity == was {
		return
	}
	if was == picker.Ready {
		b.stranded = true
	}
	e.loc.prio.cluster.onChange(e.loc.prio)
	b.publishSoon()
}
