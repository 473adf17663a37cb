// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
)

// childSubConn is a SubConn as a child policy sees it. The endpoint of a pick is found from its
// SubConn by a type assertion.
//
// The first childSubConn that is made for an endpoint with one address gets the endpoint's
// existing connection if that is usable, so that connections survive a change of policy and a
// move between localities. All further childSubConns have a connection of their own: those of a
// second child while the policy is switched, of endpoints with several addresses, and
// duplicates for the same address.
//
// A connection is taken away if its endpoint leaves the group. The policy sees a lost
// connection. If it connects again, it gets a connection if the endpoint has returned, and
// TRANSIENT_FAILURE otherwise.
//
// Picks read conn, endpoint and ready. The balancer's mutex guards the rest.
type childSubConn struct {
	balancer.SubConn // of its first connection; all its methods are overridden below

	child    *child
	addrs    []resolver.Address
	opts     balancer.NewSubConnOptions
	conn     atomic.Pointer[conn]     // nil if not connected
	endpoint atomic.Pointer[endpoint] // that counts the picks
	ready    atomic.Bool              // conn is READY

	// inherited is set if conn was connected, or connecting, before the policy requested it:
	// the policy considers it IDLE, and gets no states until it calls Connect.
	inherited     bool
	notifiedMoved bool // the policy was notified that no connection is available
	shutDown      bool // by the policy, or when the child is closed
}

// newSubConn makes a SubConn for the child.
func (c *child) newSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	h := &childSubConn{child: c, addrs: addrs, opts: opts}
	if h.opts.StateListener == nil {
		h.opts.StateListener = func(s balancer.SubConnState) { c.policy.UpdateSubConnState(h, s) }
	}
	e := h.target().endpoint
	if e == nil {
		e = c.unknownAddress()
	}
	h.endpoint.Store(e)
	if err := h.attach(); err != nil {
		return nil, err
	}
	h.SubConn = h.conn.Load().subConn()
	c.conns[h] = struct{}{}
	return h, nil
}

// target returns the target of the SubConn in the child's latest list of endpoints.
func (h *childSubConn) target() target {
	if len(h.addrs) != 1 {
		return target{}
	}
	t := h.child.targets[h.addrs[0].Addr]
	t.exclusive = t.exclusive && h.addrs[0].Attributes == nil && h.addrs[0].ServerName == ""
	return t
}

// retarget assigns the connection to the endpoint that has its address now.
func (h *childSubConn) retarget() {
	t := h.target()
	if t.endpoint == nil {
		return
	}
	h.onReturn()
	if old := h.endpoint.Load(); old != t.endpoint {
		h.endpoint.Store(t.endpoint)
		if c := h.conn.Load(); c != nil {
			if old.conn == c {
				old.conn = nil
			}
			c.endpoint = t.endpoint
		}
	}
	if t.exclusive && t.endpoint.conn == nil {
		h.becomeOwn()
	}
}

// unknownAddress returns the endpoint that counts RPCs to addresses without an endpoint.
func (c *child) unknownAddress() *endpoint {
	if c.unknown == nil {
		c.unknown = newEndpoint(c.owner.home())
	}
	return c.unknown
}

// attach gives the SubConn a connection: the endpoint's if it is owned by the balancer and
// usable, otherwise a new one.
func (h *childSubConn) attach() error {
	e, t := h.endpoint.Load(), h.target()
	exclusive := t.exclusive && t.endpoint == e
	if own := e.conn; exclusive && own != nil && own.child == nil {
		if own.state == picker.Ready || own.state == picker.Connecting {
			own.assignToChild(h)
			h.inherited = true
			return nil
		}
		own.shutdown()
		h.child.leaf.out.publish = true
	}
	c := &conn{leaf: h.child.leaf, endpoint: e, child: h, state: picker.Idle}
	opts := h.opts
	opts.StateListener = c.listen
	sc, err := c.leaf.cc.NewSubConn(c.secured(h.addrs, h.child.hostnameOf), opts)
	if err != nil {
		return err
	}
	c.sc = sc
	h.conn.Store(c)
	if exclusive && e.conn == nil {
		e.conn = c
	}
	return nil
}

// becomeOwn makes the connection the endpoint's own, replacing the previous one. It is used for
// the connection that pick_first selected.
func (h *childSubConn) becomeOwn() {
	e, c := h.endpoint.Load(), h.conn.Load()
	if c == nil || e.conn == c {
		return
	}
	if e.conn != nil && e.conn.child == nil {
		e.conn.shutdown()
	}
	e.conn = c
}

// onState handles a state of the connection.
func (h *childSubConn) onState(s balancer.SubConnState) {
	if ready := s.ConnectivityState == connectivity.Ready; h.ready.Swap(ready) != ready && ready {
		h.child.leaf.out.wake = true // the child's picker may still return it
	}
	if h.shutDown || s.ConnectivityState == connectivity.Shutdown {
		return
	}
	if h.inherited {
		h.inherited = s.ConnectivityState != connectivity.Idle
		return
	}
	if s.ConnectivityState == connectivity.Ready && h.endpoint.Load().Ejected {
		s = ejection
	}
	h.notify(s)
}

// ejection is the state reported to a child for a READY connection whose endpoint is ejected.
var ejection = balancer.SubConnState{
	ConnectivityState: connectivity.TransientFailure,
	ConnectionError:   errors.New("ejected by outlier detection"),
}

// onEjection is called when outlier detection ejects the endpoint, or lets it return (A50).
func (h *childSubConn) onEjection() {
	if !h.inherited && h.ready.Load() {
		h.onState(balancer.SubConnState{ConnectivityState: connectivity.Ready})
	}
}

// failedBefore is the state reported to a child for an inherited connection that failed before
// the child called Connect.
var failedBefore = balancer.SubConnState{
	ConnectivityState: connectivity.TransientFailure,
	ConnectionError:   errors.New("the connection failed before Connect was called"),
}

// moved is the state reported to a child for an endpoint that has left the group.
var moved = balancer.SubConnState{
	ConnectivityState: connectivity.TransientFailure,
	ConnectionError:   errors.New("the endpoint has moved to another locality or priority"),
}

// onReturn is called when the endpoint returns to the group.
func (h *childSubConn) onReturn() {
	if h.notifiedMoved {
		h.notifiedMoved = false
		h.notify(balancer.SubConnState{ConnectivityState: connectivity.Idle})
	}
}

// onLost handles the loss of the connection to an endpoint that has moved. The child is
// notified after it has received the list of endpoints that the same update may bring, since it
// shuts down unneeded SubConns then; a child that is being replaced gets no list.
func (h *childSubConn) onLost() {
	l := h.child.leaf
	h.conn.Store(nil)
	h.ready.Store(false)
	h.inherited = false
	l.rt.Call(func() {
		l.entry.do(func() {
			if h.conn.Load() == nil && !h.shutDown && !h.child.closed {
				h.notify(balancer.SubConnState{ConnectivityState: connectivity.Idle})
			}
		})
	})
}

// notify reports a state to the child, unless the child is closed first.
func (h *childSubConn) notify(s balancer.SubConnState) {
	l := h.child.leaf
	l.rt.Call(func() {
		closed := true
		l.entry.do(func() { closed = h.child.closed })
		if !closed {
			h.opts.StateListener(s)
		}
	})
}

// Connect implements balancer.SubConn.
func (h *childSubConn) Connect() { h.child.leaf.entry.do(h.connect) }

func (h *childSubConn) connect() {
	switch {
	case h.shutDown || h.child.closed:
		return
	case h.conn.Load() != nil:
	case h.target().endpoint == nil:
		h.notifiedMoved = true
		h.notify(moved)
		return
	case h.attach() != nil:
		return
	}
	c, inherited := h.conn.Load(), h.inherited
	h.inherited = false
	switch {
	case inherited && c.state == picker.Ready:
		h.onState(balancer.SubConnState{ConnectivityState: connectivity.Ready})
	case inherited && c.state == picker.Connecting:
		h.notify(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
	case inherited && c.state == picker.TransientFailure:
		h.notify(failedBefore) // IDLE follows when the backoff ends
	default:
		c.sc.Connect()
	}
}

// Shutdown implements balancer.SubConn.
func (h *childSubConn) Shutdown() {
	l := h.child.leaf
	l.entry.end(func() {
		h.shutdown()
		l.out.publish = true
	})
}

func (h *childSubConn) shutdown() {
	if h.shutDown {
		return
	}
	if c := h.conn.Load(); c != nil {
		c.shutdown()
	}
	h.conn.Store(nil)
	h.ready.Store(false)
	delete(h.child.conns, h)
	if !h.child.closed {
		h.notify(balancer.SubConnState{ConnectivityState: connectivity.Shutdown})
	}
	h.shutDown = true
}

// UpdateAddresses implements balancer.SubConn.
func (h *childSubConn) UpdateAddresses(addrs []resolver.Address) {
	h.child.leaf.entry.do(func() {
		h.addrs = addrs
		if c := h.conn.Load(); c != nil {
			c.subConn().UpdateAddresses(c.secured(addrs, h.child.hostnameOf))
		}
	})
}

// GetOrBuildProducer implements balancer.SubConn.
func (h *childSubConn) GetOrBuildProducer(b balancer.ProducerBuilder) (balancer.Producer, func()) {
	if sc := h.conn.Load().subConn(); sc != nil {
		return sc.GetOrBuildProducer(b)
	}
	return h.SubConn.GetOrBuildProducer(b)
}

// RegisterHealthListener implements balancer.SubConn.
func (h *childSubConn) RegisterHealthListener(listener func(balancer.SubConnState)) {
	if sc := h.conn.Load().subConn(); sc != nil {
		sc.RegisterHealthListener(listener)
	}
}
