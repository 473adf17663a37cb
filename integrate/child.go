// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// child is a balancer of grpc-go's registry that picks the endpoints of a group
// (A52, D10), and the ClientConn that it sees.
//
// It is called without the balancer's mutex, as it may call back at once, and
// one call at a time, in the order of lb.later. Its calls may come from
// anywhere. Close of a balancer need not shut its SubConns down; ours does it for
// it.
//
// All fields but policy are guarded by the balancer's mutex. policy is only
// touched by calls of lb.later.
type child struct {
	balancer.ClientConn // the channel's

	b      *lb
	group  *group
	name   string
	policy balancer.Balancer // nil before the first update

	endpoints map[string]*endpoint // by address
	conns     map[*childConn]struct{}
	stray     *endpoint // counts what is picked of other addresses; nil while there is none
	state     balancer.State
	closed    bool
	// unsettled says that the child has not said, since it got its latest
	// list, what it makes of it: it may still ask for connections that there are.
	unsettled bool
}

var errClosed = errors.New("xdslb: the LB policy is closed")

func newChild(g *group, name string) *child {
	b := g.prio.cluster.lb
	return &child{
		ClientConn: b.cc,
		b:          b,
		group:      g,
		name:       name,
		conns:      map[*childConn]struct{}{},
		state: balancer.State{
			ConnectivityState: connectivity.Connecting,
			Picker:            base.NewErrPicker(balancer.ErrNoSubConnAvailable),
		},
	}
}

// update gives the child another list of endpoints and configuration. b.mu is
// held; list is called later.
func (c *child) update(endpoints map[string]*endpoint, config []byte, list func() resolver.State) {
	c.endpoints, c.unsettled = endpoints, true
	c.rebind()
	c.b.later = append(c.b.later, func() {
		c.b.lock()
		closed := c.closed
		c.b.unlock()
		if closed {
			return
		}
		parsed, err := c.prepare(config)
		if err == nil {
			err = c.policy.UpdateClientConnState(balancer.ClientConnState{ResolverState: list(), BalancerConfig: parsed})
		}
		if err != nil {
			logger.Warningf("xdslb: LB policy %q: %v", c.name, err)
		}
		c.b.lock()
		defer c.b.unlock()
		if c.policy == nil {
			c.accept(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: base.NewErrPicker(err)})
		}
		c.settle()
	})
}

// prepare builds the child if it is not, and parses its configuration, which
// was found valid when the resource was accepted.
func (c *child) prepare(config []byte) (parsed serviceconfig.LoadBalancingConfig, err error) {
	builder := balancer.Get(c.name)
	if builder == nil {
		return nil, errors.New("no such balancer is registered")
	}
	if parser, ok := builder.(balancer.ConfigParser); ok {
		if parsed, err = parser.ParseConfig(config); err != nil {
			return nil, err
		}
	}
	if c.policy == nil {
		if p := builder.Build(c, c.b.build); p != nil {
			c.policy = p
		} else {
			return nil, errors.New("it could not be built")
		}
	}
	return parsed, nil
}

// exitIdle asks the child to connect. b.mu is held.
func (c *child) exitIdle() {
	c.b.later = append(c.b.later, func() {
		if c.policy != nil {
			c.policy.ExitIdle()
		}
	})
}

// close ends the child and, once it has ended, its connections. b.mu is held.
func (c *child) close() {
	c.closed = true
	c.b.later = append(c.b.later, func() {
		if c.policy != nil {
			c.policy.Close()
		}
		c.b.lock()
		defer c.b.unlock()
		for h := range c.conns {
			h.drop()
		}
	})
}

// UpdateState implements balancer.ClientConn.
func (c *child) UpdateState(s balancer.State) {
	c.b.lock()
	defer c.b.unlock()
	c.accept(s)
}

func (c *child) accept(s balancer.State) {
	if c.b.closed || c.closed {
		return
	}
	c.state = s
	c.group.heard(c)
	c.settle()
}

// settle lets go of connections that were there before the child, or came with
// endpoints from elsewhere, once the child has had the chance to ask for them.
func (c *child) settle() {
	if !c.unsettled || c.closed || c.group.current != c || c.state.ConnectivityState == connectivity.Connecting {
		return
	}
	c.unsettled = false
	for _, e := range c.endpoints {
		if e.conn != nil && e.holder() == nil {
			e.drop(c.b)
		}
	}
	c.b.publishSoon()
}

// ResolveNow implements balancer.ClientConn.
func (c *child) ResolveNow(o resolver.ResolveNowOptions) { c.b.cc.ResolveNow(o) }

// RemoveSubConn implements balancer.ClientConn.
func (c *child) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

// UpdateAddresses implements balancer.ClientConn.
func (c *child) UpdateAddresses(sc balancer.SubConn, addrs []resolver.Address) {
	sc.UpdateAddresses(addrs)
}

// NewSubConn implements balancer.ClientConn.
func (c *child) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	c.b.lock()
	defer c.b.unlock()
	if c.b.closed || c.closed {
		return nil, errClosed
	}
	return c.connect(addrs, opts)
}
