// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
)

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
	e := m.conn.target()
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
