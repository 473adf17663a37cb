// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
)

// multiAddress stands for the SubConn of an endpoint that has several addresses:
// gRPC's own pick_first chooses among them, by Happy Eyeballs (A61). Endpoints with
// one address, which is nearly all, do without.
//
// pick_first is called without the balancer's mutex, since it calls back at
// once; Runtime.Call keeps the calls in order.
type multiAddress struct {
	balancer.ClientConn // the channel's, as pick_first sees it

	b         *lb
	conn      *conn
	pickFirst balancer.Balancer // touched by calls of Runtime.Call only
	chosen    balancer.SubConn  // nil until an address was READY
}

// newMultiAddress starts connecting.
func newMultiAddress(b *lb, c *conn, cfg *picker.Endpoint) *multiAddress {
	m := &multiAddress{ClientConn: b.cc, b: b, conn: c}
	b.rt.Call(func() {
		m.pickFirst = balancer.Get(pickfirst.Name).Build(m, balancer.BuildOptions{})
	})
	m.update(cfg)
	return m
}

// update tells pick_first the addresses, in their order.
func (m *multiAddress) update(cfg *picker.Endpoint) {
	state := balancer.ClientConnState{ResolverState: resolver.State{
		Endpoints: []resolver.Endpoint{{Addresses: m.conn.secured(m.b.addressesOf(cfg), hostnameFor(cfg))}},
	}}
	if m.b.checksHealth() {
		state.ResolverState = pickfirst.EnableHealthListener(state.ResolverState)
	}
	m.b.rt.Call(func() {
		_ = m.pickFirst.UpdateClientConnState(state) // fails only for an empty list
	})
}

// Connect implements connector: pick_first starts over.
func (m *multiAddress) Connect() {
	m.b.rt.Call(func() { m.pickFirst.ExitIdle() })
}

// Shutdown implements connector.
func (m *multiAddress) Shutdown() {
	m.b.lock()
	defer m.b.unlock()
	m.b.rt.Call(func() { m.pickFirst.Close() })
}

// UpdateState implements balancer.ClientConn.
func (m *multiAddress) UpdateState(s balancer.State) {
	m.b.lock()
	defer m.b.unlock()
	e := m.conn.target()
	if m.b.rt.Closed() || e == nil {
		return
	}
	// Only these states' pickers are asked: that of IDLE would call back.
	var err error
	if s.ConnectivityState == connectivity.Ready || s.ConnectivityState == connectivity.TransientFailure {
		var res balancer.PickResult
		res, err = s.Picker.Pick(balancer.PickInfo{})
		if err == nil && res.SubConn != m.chosen {
			m.chosen = res.SubConn
			e.loc.prio.clearCache()
			e.loc.prio.cluster.setDirty()
		}
	}
	m.conn.onState(balancer.SubConnState{ConnectivityState: s.ConnectivityState, ConnectionError: err})
}
