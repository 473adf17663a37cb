// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"errors"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
)

// SubConnSize is how many bytes a SubConn of a stage takes of the heap.
const SubConnSize = 48

// A subConn connects in no time. Its state belongs to the queue.
type subConn struct {
	balancer.SubConn // nil: gRPC insists on it

	stage  *Stage
	down   bool // its address is; the text of that is not kept
	listen func(balancer.SubConnState)
	state  connectivity.State // IDLE at first
}

var errDown = errors.New("stage: this endpoint is down")

// Connect implements balancer.SubConn.
func (c *subConn) Connect() {
	c.stage.queue.add(func() {
		if c.state != connectivity.Idle {
			return
		}
		c.enter(connectivity.Connecting, nil)
		c.stage.queue.add(func() {
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

// enter changes the state, tells the policy, and then whoever waits.
func (c *subConn) enter(state connectivity.State, err error) {
	from := c.state
	c.state = state
	if c.listen != nil {
		c.listen(balancer.SubConnState{ConnectivityState: state, ConnectionError: err})
	}
	s := c.stage
	s.pulse.Add(1)
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
	c.stage.queue.add(func() {
		if c.state != connectivity.Shutdown {
			c.enter(connectivity.Shutdown, nil)
		}
	})
}

// UpdateAddresses implements balancer.SubConn.
func (c *subConn) UpdateAddresses([]resolver.Address) {}

// RegisterHealthListener implements balancer.SubConn: an endpoint that is
// READY is healthy.
func (c *subConn) RegisterHealthListener(listen func(balancer.SubConnState)) {
	if listen == nil {
		return
	}
	c.stage.queue.add(func() {
		if c.state == connectivity.Ready {
			listen(balancer.SubConnState{ConnectivityState: connectivity.Ready})
		}
	})
}

// GetOrBuildProducer implements balancer.SubConn: nothing is reported out of
// band here.
func (c *subConn) GetOrBuildProducer(balancer.ProducerBuilder) (balancer.Producer, func()) {
	return nil, func() {}
}
