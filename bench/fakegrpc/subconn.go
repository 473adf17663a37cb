// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fakegrpc

import (
	"errors"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
)

// SubConnSize is the size in bytes of a Channel's SubConn on the heap.
const SubConnSize = 48

// A subConn connects immediately. Only calls on the queue access its state.
type subConn struct {
	balancer.SubConn // nil: gRPC requires embedding

	channel *Channel
	down    bool // the address fails to connect
	listen  func(balancer.SubConnState)
	state   connectivity.State // IDLE at first
}

var errDown = errors.New("fakegrpc: this endpoint is down")

// Connect implements balancer.SubConn.
func (c *subConn) Connect() {
	c.channel.queue.add(func() {
		if c.state != connectivity.Idle {
			return
		}
		c.enter(connectivity.Connecting, nil)
		c.channel.queue.add(func() {
			if c.state != connectivity.Connecting {
				return
			}
			if c.down {
				c.enter(connectivity.TransientFailure, errDown)
			} else {
				c.enter(connectivity.Ready, nil)
			}
		})
	})
}

// enter changes the state, and notifies first the policy and then Wait.
func (c *subConn) enter(state connectivity.State, err error) {
	from := c.state
	c.state = state
	if c.listen != nil {
		c.listen(balancer.SubConnState{ConnectivityState: state, ConnectionError: err})
	}
	s := c.channel
	s.activity.Add(1)
	s.mu.Lock()
	s.ready += count(state == connectivity.Ready) - count(from == connectivity.Ready)
	s.failed += count(state == connectivity.TransientFailure) - count(from == connectivity.TransientFailure)
	s.mu.Unlock()
	s.changed.Broadcast()
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Shutdown implements balancer.SubConn.
func (c *subConn) Shutdown() {
	c.channel.queue.add(func() {
		if c.state != connectivity.Shutdown {
			c.enter(connectivity.Shutdown, nil)
		}
	})
}

// UpdateAddresses implements balancer.SubConn.
func (c *subConn) UpdateAddresses([]resolver.Address) {}

// RegisterHealthListener implements balancer.SubConn. A READY endpoint is healthy.
func (c *subConn) RegisterHealthListener(listen func(balancer.SubConnState)) {
	if listen == nil {
		return
	}
	c.channel.queue.add(func() {
		if c.state == connectivity.Ready {
			listen(balancer.SubConnState{ConnectivityState: connectivity.Ready})
		}
	})
}

// GetOrBuildProducer implements balancer.SubConn. There are no out-of-band load reports.
func (c *subConn) GetOrBuildProducer(balancer.ProducerBuilder) (balancer.Producer, func()) {
	return nil, func() {}
}
