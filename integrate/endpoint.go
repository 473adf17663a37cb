// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
)

// endpoint is the live side of one picker.Endpoint: its SubConn, and the state
// that survives snapshots (D9). It belongs to exactly one locality, whose
// counters its RPCs go to.
//
// All fields but the embedded counters are guarded by the balancer's mutex.
type endpoint struct {
	picker.EndpointState

	loc  *locality
	conn balancer.SubConn // nil while the endpoint has not been asked to connect
	done func(balancer.DoneInfo)
	// heir is the endpoint that took the connection over when an update moved
	// the address to another locality; the listener of conn follows it.
	heir *endpoint
	// draining mirrors the configuration: the endpoint gets no new RPC and
	// does not count for its priority's state.
	draining bool
}

func newEndpoint(loc *locality) *endpoint {
	e := &endpoint{loc: loc}
	e.Bind(loc.load, loc.prio.leaf.breaker.Breaker)
	e.done = e.finish
	return e
}

// finish is the pre-bound Done of every pick of the endpoint: one call per
// pick, no per-RPC state (D9). gRPC reports a pick whose connection had gone
// before it was used with an empty DoneInfo.
func (e *endpoint) finish(info balancer.DoneInfo) {
	switch {
	case info.Err != nil:
		e.Finish(picker.CallFailed)
	case info.BytesReceived || info.BytesSent:
		e.Finish(picker.CallOK)
	default:
		e.Finish(picker.CallVoid)
	}
}

// connect asks for a connection to the endpoint if it has none yet. An
// endpoint that is drained gets no new one (A27-CLA-8).
func (e *endpoint) connect(b *lb, cfg *picker.Endpoint) {
	if e.conn != nil || e.draining {
		return
	}
	sc, err := b.cc.NewSubConn(
		[]resolver.Address{{Addr: cfg.Addr.String(), ServerName: ""}},
		balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) { b.onConnState(e, s) }},
	)
	if err != nil { // only while the channel is closing
		return
	}
	e.conn = sc
	e.set(picker.Connecting)
	sc.Connect()
}

// adopt takes over the connection of an endpoint with the same address, whose
// counters were others.
func (e *endpoint) adopt(from *endpoint) {
	e.conn, from.conn = from.conn, nil
	e.Connectivity = from.Connectivity
	from.heir = e
}

// release hands the connection to the balancer, which closes it once no
// published snapshot refers to it.
func (e *endpoint) release(b *lb) {
	if e.conn != nil {
		b.doomed = append(b.doomed, e.conn)
		e.conn = nil
	}
	e.Connectivity = picker.Idle
}

// set moves the endpoint to a state and keeps its priority's counts.
func (e *endpoint) set(to picker.Connectivity) {
	if e.Connectivity == to {
		return
	}
	if !e.draining {
		counts := &e.loc.prio.counts
		counts[e.Connectivity]--
		counts[to]++
	}
	e.Connectivity = to
}

// onConnState is the state listener of an endpoint's SubConn.
//
// TRANSIENT_FAILURE is sticky: until the connection is READY again its
// attempts do not count as CONNECTING, so that a set of dead endpoints reads
// as failed and the next priority gets its turn (T-LOC-1, A62).
func (b *lb) onConnState(e *endpoint, s balancer.SubConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for e.heir != nil {
		e = e.heir
	}
	if b.closed || e.conn == nil {
		return
	}
	was := e.Connectivity
	switch s.ConnectivityState {
	case connectivity.Ready:
		e.set(picker.Ready)
	case connectivity.TransientFailure:
		e.set(picker.TransientFailure)
		e.loc.prio.leaf.lastErr = s.ConnectionError
	case connectivity.Idle:
		// The connection was lost, or its back-off is over.
		e.conn.Connect()
		fallthrough
	case connectivity.Connecting:
		if was != picker.TransientFailure {
			e.set(picker.Connecting)
		}
	default:
		return
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
