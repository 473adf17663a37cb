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

// multiHomed connects an endpoint that has several addresses through gRPC's
// own pick_first, which brings Happy Eyeballs along (A61). Endpoints with one
// address, which is nearly all, own their SubConn and do without.
//
// The child is called without the balancer's mutex, since it calls back at
// once; order among the calls is kept by lb.later.
type multiHomed struct {
	balancer.ClientConn // the channel's
	b                   *lb
	e                   *endpoint // as of its creation; see endpoint.current
	child               balancer.Balancer
}

// newMultiHomed starts connecting e. b.mu is held.
func newMultiHomed(b *lb, e *endpoint, cfg *picker.Endpoint) *multiHomed {
	m := &multiHomed{ClientConn: b.cc, b: b, e: e}
	addrs := []resolver.Address{b.dial(cfg.Addr)}
	for _, a := range cfg.Extra.Addrs {
		addrs = append(addrs, b.dial(a))
	}
	state := balancer.ClientConnState{ResolverState: resolver.State{Endpoints: []resolver.Endpoint{{Addresses: addrs}}}}
	if b.checksHealth() {
		state.ResolverState = pickfirst.EnableHealthListener(state.ResolverState)
	}
	b.later = append(b.later, func() {
		m.child = balancer.Get(pickfirst.Name).Build(m, balancer.BuildOptions{})
		_ = m.child.UpdateClientConnState(state) // fails only for an empty list
	})
	return m
}

// close closes the child. b.mu is not held.
func (m *multiHomed) close() {
	m.b.lock()
	defer m.b.unlock()
	m.b.later = append(m.b.later, func() { m.child.Close() })
}

// UpdateState implements balancer.ClientConn for the child.
func (m *multiHomed) UpdateState(s balancer.State) {
	m.b.lock()
	defer m.b.unlock()
	e := m.e.current()
	if m.b.closed || e.multi() != m {
		return
	}
	// Only these states' pickers are asked: that of IDLE would call back.
	var res balancer.PickResult
	var err error
	if s.ConnectivityState == connectivity.Ready || s.ConnectivityState == connectivity.TransientFailure {
		res, err = s.Picker.Pick(balancer.PickInfo{})
	}
	if s.ConnectivityState == connectivity.Ready && err == nil {
		if e.conn != res.SubConn {
			e.conn = res.SubConn
			e.loc.prio.forget()
			e.loc.prio.cluster.dirty = true
		}
	}
	m.b.observe(e, s.ConnectivityState, err)
}
