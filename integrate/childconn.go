// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
)

// childConn is a SubConn as a child sees it. A pick's SubConn leads back to the
// endpoint by a type assertion.
//
// The first SubConn that is made for an endpoint with one address holds the
// endpoint's own connection, endpoint.conn: the one that the endpoint came with
// if it is of use, so that connections survive a change of policy and a move
// between localities. Others have one for themselves: those of a second child
// while the policy is switched, of endpoints with several addresses, and second
// ones to the same address.
//
// Picks read the embedded SubConn, which never changes, and at. The rest is
// guarded by the balancer's mutex.
type childConn struct {
	balancer.SubConn // gRPC's

	child    *child
	addr     string
	at       atomic.Pointer[endpoint] // that picks count for
	listener func(balancer.SubConnState)

	own  bool // the SubConn is nobody else's; otherwise it is that of the holder of at
	done bool // it was shut down
	// found is the state in which the connection was taken over, until Connect
	// is called: the child takes it for IDLE. Idle itself is none.
	found picker.Connectivity
	last  connectivity.State // as the child was told
}

// connect makes a SubConn. b.mu is held.
func (c *child) connect(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	h := &childConn{child: c, listener: opts.StateListener}
	var e *endpoint
	sharable := false
	if len(addrs) == 1 {
		h.addr = addrs[0].Addr
		e = c.endpoints[h.addr]
		sharable = e != nil && e.holder() == nil && !e.manifold && addrs[0].Attributes == nil && addrs[0].ServerName == ""
	}
	if e == nil {
		e = c.strayEndpoint()
	}
	h.at.Store(e)
	if h.listener == nil {
		h.listener = func(s balancer.SubConnState) { c.policy.UpdateSubConnState(h, s) }
	}
	if sharable && e.conn != nil {
		if e.raw == picker.Ready || e.raw == picker.Connecting {
			h.SubConn, h.found, e.bond().holder = e.conn, e.raw, h
			c.conns[h] = struct{}{}
			return h, nil
		}
		e.drop(c.b)
	}
	opts.StateListener = h.onState
	sc, err := c.b.cc.NewSubConn(addrs, opts)
	if err != nil {
		return nil, err
	}
	h.SubConn, h.own = sc, true
	if sharable {
		h.hold()
	}
	c.conns[h] = struct{}{}
	return h, nil
}

func (c *child) strayEndpoint() *endpoint {
	if c.stray == nil {
		c.stray = newEndpoint(c.group.localities[0])
	}
	return c.stray
}

// hold makes the SubConn the connection of its endpoint.
func (h *childConn) hold() {
	e := h.at.Load().current()
	switch {
	case e.holder() == h:
		return
	case e.holder() != nil:
		e.holder().own = true
	case e.conn != nil && e.conn != h.SubConn:
		e.drop(h.child.b)
	}
	if e.conn != h.SubConn {
		e.conn, e.raw = h.SubConn, connectivityOf(h.last)
	}
	e.bond().holder, h.own = h, false
}

// rebind makes the child's SubConns those of the endpoints that have their
// addresses now: an endpoint of the same group that moved to another locality
// is another one.
func (c *child) rebind() {
	for h := range c.conns {
		e, old := c.endpoints[h.addr], h.at.Load().current()
		if e == nil {
			continue
		}
		h.at.Store(e)
		if e != old && old.holder() == h {
			old.conn, h.own = nil, true
			old.unhold()
		}
		if e.holder() == nil && (e.conn == h.SubConn || h.own && e.conn == nil && !e.manifold) {
			h.hold()
		}
	}
}

// onState is the listener of a SubConn that was made for the child. It may
// have passed on to others with the endpoint.
func (h *childConn) onState(s balancer.SubConnState) {
	b := h.child.b
	b.lock()
	defer b.unlock()
	if b.closed {
		return
	}
	if h.own {
		h.hear(s)
	} else if e := h.at.Load().current(); e.conn == h.SubConn {
		b.onState(e, s)
	}
}

// hear tells the child. b.mu is held.
func (h *childConn) hear(s balancer.SubConnState) {
	if h.done || s.ConnectivityState == connectivity.Shutdown {
		return
	}
	if h.found != picker.Idle {
		h.found = connectivityOf(s.ConnectivityState)
		return
	}
	if h.last == connectivity.Ready {
		h.child.b.stranded = true
		h.child.b.publishSoon()
	}
	if s.ConnectivityState == connectivity.Ready && h.ejected() {
		s = ejection
	}
	h.tell(s)
}

// ejection is what a child hears of a READY connection whose endpoint is ejected.
var ejection = balancer.SubConnState{
	ConnectivityState: connectivity.TransientFailure,
	ConnectionError:   errors.New("ejected by outlier detection"),
}

// ejected reports whether outlier detection has ejected the endpoint (A50).
func (h *childConn) ejected() bool { return !h.own && h.at.Load().current().Ejected }

// tellEjection tells the child, if one holds the connection, that outlier
// detection has ejected the endpoint, or let it return.
func (e *endpoint) tellEjection() {
	h := e.holder()
	if h == nil || e.raw != picker.Ready || h.found != picker.Idle {
		return
	}
	if e.Ejected {
		h.tell(ejection)
	} else {
		h.tell(balancer.SubConnState{ConnectivityState: connectivity.Ready})
	}
}

func (h *childConn) tell(s balancer.SubConnState) {
	h.last = s.ConnectivityState
	h.child.b.later = append(h.child.b.later, func() { h.listener(s) })
}

// Connect implements balancer.SubConn.
func (h *childConn) Connect() {
	b := h.child.b
	b.lock()
	defer b.unlock()
	switch h.found {
	case picker.Ready:
		h.found = picker.Idle
		h.hear(balancer.SubConnState{ConnectivityState: connectivity.Ready})
	case picker.Connecting:
		h.tell(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
	default:
		h.SubConn.Connect()
	}
	h.found = picker.Idle
}

// Shutdown implements balancer.SubConn.
func (h *childConn) Shutdown() {
	h.child.b.lock()
	defer h.child.b.unlock()
	h.drop()
}

// drop lets go of the connection, and tells the child that it is shut down.
func (h *childConn) drop() {
	if h.done {
		return
	}
	h.done = true
	b := h.child.b
	delete(h.child.conns, h)
	switch e := h.at.Load().current(); {
	case h.own:
		b.doomed = append(b.doomed, h.SubConn.Shutdown)
	case e.holder() == h:
		e.drop(b)
	}
	if !h.child.closed {
		h.tell(balancer.SubConnState{ConnectivityState: connectivity.Shutdown})
	}
	if b.closed {
		b.closeDoomed()
	} else {
		b.publishSoon()
	}
}

// drop closes the endpoint's connection once no published snapshot leads to it.
func (e *endpoint) drop(b *lb) {
	b.doomed = append(b.doomed, e.conn.Shutdown)
	e.conn = nil
	e.unhold()
	e.loc.prio.forget()
	e.loc.prio.cluster.dirty = true
}
