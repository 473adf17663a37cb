// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// conn is one connection: a SubConn, the state that gRPC reported last, the endpoint that it
// serves, and its owner, who decides when it connects. Its states are IDLE, CONNECTING, READY
// and TRANSIENT_FAILURE, as reported by gRPC, under either owner.
//
//	     newConn                                  childSubConn.attach
//	        │                                             │
//	        ▼             assignToChild                   ▼
//	┌───────────────┐ ─────────────────────────► ┌─────────────────┐
//	│ the balancer's│                            │ a child policy's│
//	│ child == nil  │ ◄───────────────────────── │ child != nil    │
//	└───────────────┘      releaseFromChild      └─────────────────┘
//	        │                                             │
//	        └──────────────────► shutdown ◄───────────────┘
//
// An endpoint has at most one connection of its own, endpoint.conn, which it keeps across
// updates. If the address moves to another locality, the endpoint there is a new one, and
// moveTo assigns the connection to it. A child policy may hold additional connections, which
// are closed with the child: duplicates for an endpoint, connections of endpoints with several
// addresses, and connections to addresses that the policy supplies.
//
// Changed TLS settings and hostnames take effect with the next attempt to connect (tls.go). Few
// connections have a hostname, so hostnames are kept in leafState.hosts.
//
// The balancer's mutex guards all fields and methods.
type conn struct {
	leaf     *leafState    // never changes
	sc       connector     // gRPC's SubConn, or a multiAddress; never changes
	endpoint *endpoint     // nil after shutdown
	child    *childSubConn // the owner, as its policy sees the SubConn; nil if the balancer is the owner

	state picker.Connectivity // as last reported
}

// connector creates connections.
type connector interface {
	Connect()  // needs the balancer's mutex
	Shutdown() // takes it
}

// newConn starts to connect to an endpoint, with the balancer as owner.
func newConn(e *endpoint, cfg *picker.Endpoint) (*conn, error) {
	l := e.loc.leaf
	c := &conn{leaf: l, endpoint: e, state: picker.Connecting}
	if multiAddressed(cfg) {
		c.sc = newMultiAddress(c, cfg)
		return c, nil
	}
	sc, err := l.cc.NewSubConn(c.secured(l.addressesOf(cfg), hostnameFor(cfg)), balancer.NewSubConnOptions{StateListener: c.listen})
	if err != nil { // only while the channel is closing
		return nil, err
	}
	c.sc = sc
	sc.Connect()
	return c, nil
}

// listen is the SubConn's state listener. It takes the mutex.
func (c *conn) listen(s balancer.SubConnState) {
	c.leaf.entry.do(func() {
		if c.endpoint != nil {
			c.onState(s)
		}
	})
}

// onState handles a state of the SubConn and notifies the owner.
func (c *conn) onState(s balancer.SubConnState) {
	l := c.leaf
	lost := c.state == picker.Ready && s.ConnectivityState != connectivity.Ready
	c.state = kernelState(s.ConnectivityState)
	if c.state != picker.Ready {
		c.stopHealthWatch()
	}
	c.endpoint.recordState(s, lost)
	switch e := c.endpoint; {
	case c.child != nil:
		c.child.onState(s)
	case c.leaf.delegates():
		// It waits until the new child policy, which may claim it, has been updated.
	case s.ConnectivityState == connectivity.Ready && l.checksHealth() && !c.multiAddress():
		c.checkHealth()
		e.observe(connectivity.Connecting, nil)
	default:
		e.observe(s.ConnectivityState, s.ConnectionError)
	}
	if lost { // RPCs that picked it wait for a new picker
		l.out.repick, l.out.publish = true, true
	}
}

// checkHealth lets the health listener decide whether a connected endpoint is READY (A17).
// pick_first does so itself for endpoints with several addresses.
func (c *conn) checkHealth() {
	c.stopHealthWatch()
	report := func(s balancer.SubConnState) {
		if c.endpoint != nil && c.child == nil && !c.leaf.delegates() {
			c.endpoint.observe(s.ConnectivityState, s.ConnectionError)
		}
	}
	sc := c.subConn()
	if check := c.leaf.cfg.HealthCheck; check != nil && !c.leaf.simulated { // all backends of a Simulation are healthy
		c.watchHealth(sc, check.Service, report)
		return
	}
	c.leaf.rt.Call(func() {
		gone := true
		c.leaf.entry.do(func() { gone = c.endpoint == nil })
		if gone { // the connection will be shut down
			return
		}
		sc.RegisterHealthListener(func(s balancer.SubConnState) {
			c.leaf.entry.do(func() {
				if c.leaf.watches[c] == nil { // the cluster has no health check of its own meanwhile
					report(s)
				}
			})
		})
	})
}

// connect reconnects after the SubConn went IDLE.
func (c *conn) connect() {
	c.state = picker.Connecting
	c.sc.Connect()
}

// assignToChild transfers a connection from the balancer to a child policy.
func (c *conn) assignToChild(h *childSubConn) {
	c.stopHealthWatch()
	c.child = h
	h.conn.Store(c)
	h.ready.Store(c.state == picker.Ready)
}

// releaseFromChild takes a connection back from its child policy. The policy sees it as lost, so that
// it does not pick it any more.
func (c *conn) releaseFromChild() {
	h := c.child
	c.child = nil
	h.onLost()
}

// moveTo assigns the connection to e, a new endpoint with the same addresses. A child policy
// keeps the connection if e is in its group, and loses it otherwise, unless pick_first has
// selected it among several addresses.
func (c *conn) moveTo(e *endpoint, cfg *picker.Endpoint) {
	stays := c.child != nil && c.child.child.owner.covers(e.loc)
	if c.child != nil && !stays && multiAddressed(cfg) {
		return
	}
	c.endpoint.conn = nil
	c.endpoint, e.conn = e, c
	switch {
	case stays:
		c.child.endpoint.Store(e)
	case c.child != nil:
		c.releaseFromChild()
	}
}

// shutdown closes the connection once no published snapshot uses it. If it was its endpoint's
// own, the endpoint has no connection afterwards.
func (c *conn) shutdown() {
	if e := c.endpoint; e.conn == c {
		e.conn = nil
		e.stopOOB()
		e.loc.tally.note(picks)
	}
	c.endpoint, c.child = nil, nil
	l := c.leaf
	c.stopHealthWatch()
	delete(l.hosts, c)
	l.out.closing = append(l.out.closing, c.sc.Shutdown)
}

// multiAddress reports whether the endpoint has several addresses, among which
// pick_first chooses.
func (c *conn) multiAddress() bool {
	_, ok := c.sc.(*multiAddress)
	return ok
}

// subConn returns the SubConn that picks use, or nil if it does not exist yet.
func (c *conn) subConn() balancer.SubConn {
	if c == nil {
		return nil
	}
	if m, ok := c.sc.(*multiAddress); ok {
		return m.chosen
	}
	return c.sc.(balancer.SubConn)
}

// multiAddress implements the SubConn of an endpoint that has several addresses: gRPC's own
// pick_first chooses among them, by Happy Eyeballs (A61). Endpoints with one address, which is
// nearly all of them, do not need it.
//
// pick_first is called without the balancer's mutex, since it calls back immediately;
// Runtime.Call keeps the calls in order.
type multiAddress struct {
	balancer.ClientConn // the channel's, as pick_first sees it

	conn      *conn
	pickFirst balancer.Balancer // touched by calls of Runtime.Call only
	chosen    balancer.SubConn  // nil until an address has been READY
}

// newMultiAddress starts connecting.
func newMultiAddress(c *conn, cfg *picker.Endpoint) *multiAddress {
	m := &multiAddress{ClientConn: c.leaf.cc, conn: c}
	c.leaf.rt.Call(func() {
		m.pickFirst = balancer.Get(pickfirst.Name).Build(m, balancer.BuildOptions{})
	})
	m.update(cfg)
	return m
}

// update passes the addresses to pick_first, in their order.
func (m *multiAddress) update(cfg *picker.Endpoint) {
	state := balancer.ClientConnState{ResolverState: resolver.State{
		Endpoints: []resolver.Endpoint{{Addresses: m.conn.secured(m.conn.leaf.addressesOf(cfg), hostnameFor(cfg))}},
	}}
	if m.conn.leaf.checksHealth() {
		state.ResolverState = pickfirst.EnableHealthListener(state.ResolverState)
	}
	m.conn.leaf.rt.Call(func() {
		_ = m.pickFirst.UpdateClientConnState(state) // fails only for an empty list
	})
}

// Connect implements connector: pick_first starts over.
func (m *multiAddress) Connect() {
	m.conn.leaf.rt.Call(func() { m.pickFirst.ExitIdle() })
}

// Shutdown implements connector.
func (m *multiAddress) Shutdown() {
	l := m.conn.leaf
	l.entry.end(func() { l.rt.Call(func() { m.pickFirst.Close() }) })
}

// UpdateState implements balancer.ClientConn.
func (m *multiAddress) UpdateState(s balancer.State) {
	m.conn.leaf.entry.do(func() { m.onState(s) })
}

func (m *multiAddress) onState(s balancer.State) {
	e := m.conn.endpoint
	if e == nil {
		return
	}
	// Only the pickers of these states are called: the picker of IDLE would call back.
	var err error
	if s.ConnectivityState == connectivity.Ready || s.ConnectivityState == connectivity.TransientFailure {
		var res balancer.PickResult
		res, err = s.Picker.Pick(balancer.PickInfo{})
		if err == nil && res.SubConn != m.chosen {
			m.chosen = res.SubConn
			e.loc.tally.note(picks)
		}
	}
	m.conn.onState(balancer.SubConnState{ConnectivityState: s.ConnectivityState, ConnectionError: err})
}

// This file watches the health of backends (A17) for clusters that configure it by health_checks.
// gRPC's own watches use one service name for a channel, Config.HealthCheckService, which applies
// to the other clusters.

// A healthWatch watches the health service of a connection's backend, from the time at which the
// connection is READY until it is lost, shut down, or given to a child policy, or the cluster's
// health check changes. It has one goroutine. The balancer's mutex guards leafState.watches.
type healthWatch struct {
	service string
	cancel  context.CancelFunc
}

// watchHealth starts a healthWatch. report runs with the mutex held, for each change of health while
// the watch is in force.
func (c *conn) watchHealth(sc balancer.SubConn, service string, report func(balancer.SubConnState)) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &healthWatch{service, cancel}
	if c.leaf.watches == nil {
		c.leaf.watches = map[*conn]*healthWatch{}
	}
	c.leaf.watches[c] = w
	producer, release := sc.GetOrBuildProducer(probeProducer)
	go func() {
		defer release()
		w.run(ctx, producer.(*probeConn).cc, func(s balancer.SubConnState) {
			c.leaf.entry.do(func() {
				if c.leaf.watches[c] == w {
					report(s)
				}
			})
		})
	}()
}

// stopHealthWatch ends the connection's healthWatch, if there is one.
func (c *conn) stopHealthWatch() {
	if w := c.leaf.watches[c]; w != nil {
		delete(c.leaf.watches, c)
		w.cancel()
	}
}

// lossDelay is how long gRPC may take to report the loss of a connection after the end of its
// streams. The end of the health stream itself only counts if the connection remains: an endpoint
// that reconnects is CONNECTING, and a failed one would stay in TRANSIENT_FAILURE (A17).
const lossDelay = 100 * time.Millisecond

// run keeps a stream to the health service open. A backend without health service is healthy (A17).
func (w *healthWatch) run(ctx context.Context, cc grpc.ClientConnInterface, report func(balancer.SubConnState)) {
	for failed := 0; ctx.Err() == nil; failed++ {
		if failed > 0 && rpc.Pause(ctx, watchBackoff(failed)) != nil {
			return
		}
		answered, err := w.stream(ctx, cc, report)
		switch {
		case ctx.Err() != nil:
			return
		case status.Code(err) == codes.Unimplemented:
			report(balancer.SubConnState{ConnectivityState: connectivity.Ready})
			return
		case answered:
			failed = -1 // no backoff
		}
		if rpc.Pause(ctx, lossDelay) != nil {
			return
		}
		report(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure,
			ConnectionError: fmt.Errorf("health check of service %q failed: %w", w.service, err)})
	}
}

// stream reports the answers of one stream, until its end. answered reports whether there was one.
func (w *healthWatch) stream(ctx context.Context, cc grpc.ClientConnInterface, report func(balancer.SubConnState)) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := healthpb.NewHealthClient(cc).Watch(ctx, &healthpb.HealthCheckRequest{Service: w.service})
	if err != nil {
		return false, err
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return answered, err
		}
		answered = true
		if m.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			report(balancer.SubConnState{ConnectivityState: connectivity.Ready})
			continue
		}
		report(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure,
			ConnectionError: fmt.Errorf("health check of service %q: the backend reports %v", w.service, m.GetStatus())})
	}
}

// watchBackoff returns the time before another stream after some that failed: 1 s, growing by 60 %
// up to 2 min, with jitter, as for connections.
func watchBackoff(failed int) time.Duration {
	return rpc.Jitter(time.Duration(min(math.Pow(1.6, float64(failed-1)), 120) * float64(time.Second)))
}

// sameHealthCheck reports whether two leaves have the same health check.
func sameHealthCheck(a, b *picker.Leaf) bool {
	if a.HealthCheck == nil || b.HealthCheck == nil {
		return a.HealthCheck == b.HealthCheck
	}
	return *a.HealthCheck == *b.HealthCheck
}
