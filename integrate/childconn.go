// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
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
// The embedded SubConn, child and e never change. The rest is guarded by the
// balancer's mutex.
type childConn struct {
	balancer.SubConn // gRPC's

	child    *child
	e        *endpoint // whose RPCs are counted
	listener func(balancer.SubConnState)

	own  bool // the SubConn is nobody else's; otherwise it is that of the holder of e
	done bool // it was shut down
	// found is the state in which the connection was taken over, until Connect
	// is called: the child takes it for IDLE. Idle itself is none.
	found picker.Connectivity
	last  connectivity.State // as the child was told
}

// connect makes a SubConn. b.mu is held.
func (c *child) connect(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	h := &childConn{child: c, listener: opts.StateListener}
	sharable := false
	if len(addrs) == 1 {
		h.e = c.endpoints[addrs[0].Addr]
		sharable = h.e != nil && h.e.holder == nil && !h.e.manifold && addrs[0].Attributes == nil && addrs[0].ServerName == ""
	}
	if h.e == nil {
		h.e = c.strayEndpoint()
	}
	if h.listener == nil {
		h.listener = func(s balancer.SubConnState) { c.policy.UpdateSubConnState(h, s) }
	}
	if e := h.e; sharable && e.conn != nil {
		if e.raw == picker.Ready || e.raw == picker.Connecting {
			h.SubConn, h.found, e.holder = e.conn, e.raw, h
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
	e := h.e.current()
	switch {
	case e.holder == h:
		return
	case e.holder != nil:
		e.holder.own = true
	case e.conn != nil:
		e.drop(h.child.b)
	}
	e.conn, e.holder, e.raw, h.own = h.SubConn, h, connectivityOf(h.last), false
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
	} else if e := h.e.current(); e.conn == h.SubConn {
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
	h.tell(s)
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
		h.tell(balancer.SubConnState{ConnectivityState: connectivity.Ready})
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
	switch e := h.e.current(); {
	case h.own:
		b.doomed = append(b.doomed, h.SubConn.Shutdown)
	case e.holder == h:
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
	e.conn, e.holder = nil, nil
	e.loc.prio.forget()
	e.loc.prio.cluster.dirty = true
}
