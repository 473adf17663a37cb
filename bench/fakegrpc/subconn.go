// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fakegrpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// SubConnSize is the size in bytes of a Channel's SubConn on the heap, with the text of an IPv4 address.
const SubConnSize = 96 + 16

// A SubConn connects only after Connect was called while it was IDLE, moves one state at a time,
// and reports SHUTDOWN last:
//
//	IDLE ─Connect→ CONNECTING → READY ─lost→ IDLE
//	                   └→ TRANSIENT_FAILURE ─backoff→ IDLE
//
// One goroutine at a time may move it.
type SubConn[T any] struct {
	balancer.SubConn // nil

	Addr     string
	State    connectivity.State // as last announced
	Connects int                // calls of Connect that had an effect
	Unserved bool               // hold back what Serve would report
	Data     T

	cc       *CC[T]
	id       int
	listener func(balancer.SubConnState)
	health   func(balancer.SubConnState)
	asked    bool // to connect since it became IDLE
	shut     bool // by the policy
	served   bool // as announced to health
}

// call makes a method's change, and reports a call after Shutdown.
func (c *SubConn[T]) call(method string, change func()) {
	c.cc.Mu.Lock()
	c.cc.Calls++
	shut := c.shut
	change()
	c.cc.Mu.Unlock()
	if shut {
		c.cc.errorf("the policy calls %s of %v after Shutdown", method, c)
	}
	c.cc.OnCall(c, method)
}

// Connect implements balancer.SubConn. As in gRPC, it does nothing unless the SubConn is IDLE.
func (c *SubConn[T]) Connect() {
	c.call("Connect", func() {
		if c.State == connectivity.Idle && !c.shut && !c.asked {
			c.asked = true
			c.Connects++
		}
	})
}

// Shutdown implements balancer.SubConn.
func (c *SubConn[T]) Shutdown() {
	c.call("Shutdown", func() {
		if !c.shut {
			c.shut, c.cc.due = true, true
			c.cc.Closed++
		}
		if c.cc.latest[c.Addr] == c {
			delete(c.cc.latest, c.Addr)
		}
	})
}

// UpdateAddresses implements balancer.SubConn.
func (c *SubConn[T]) UpdateAddresses([]resolver.Address) {
	c.cc.errorf("the policy calls UpdateAddresses of %v, which is deprecated", c)
}

// RegisterHealthListener implements balancer.SubConn. As in gRPC, a listener replaces the earlier
// one, and is ignored if the SubConn has ceased to be READY.
func (c *SubConn[T]) RegisterHealthListener(l func(balancer.SubConnState)) {
	c.call("RegisterHealthListener", func() {
		if c.health, c.served = nil, false; c.State == connectivity.Ready {
			c.health, c.cc.due = l, true
		}
	})
}

// GetOrBuildProducer implements balancer.SubConn. It builds a producer at each call.
func (c *SubConn[T]) GetOrBuildProducer(pb balancer.ProducerBuilder) (balancer.Producer, func()) {
	count := func(open, opened int) {
		c.cc.Mu.Lock()
		defer c.cc.Mu.Unlock()
		c.cc.Streams += open
		c.cc.Streamed += opened
	}
	count(1, 1)
	p, stop := pb.Build(c.cc.Backend(c))
	return p, func() { stop(); count(-1, 0) }
}

// Silent is a connection to a server that never answers.
type Silent struct{ grpc.ClientConnInterface }

// NewStream waits until ctx is done.
func (Silent) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// Invoke waits until ctx is done.
func (Silent) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// Wanted reports whether Connect was called since the SubConn is IDLE.
func (c *SubConn[T]) Wanted() bool {
	c.cc.Mu.Lock()
	defer c.cc.Mu.Unlock()
	return c.asked
}

// IsShut reports whether the policy has shut the SubConn down.
func (c *SubConn[T]) IsShut() bool {
	c.cc.Mu.Lock()
	defer c.cc.Mu.Unlock()
	return c.shut
}

// TakesRPCs reports whether an RPC that picked the SubConn can use it.
func (c *SubConn[T]) TakesRPCs() bool { return c.State == connectivity.Ready && !c.IsShut() }

// Served reports whether the health listener was told READY.
func (c *SubConn[T]) Served() bool {
	c.cc.Mu.Lock()
	defer c.cc.Mu.Unlock()
	return c.served
}

// Step moves the SubConn to its next state, and reports whether there is one. up is the result of
// a connection attempt.
func (c *SubConn[T]) Step(up bool) (moved bool) {
	if c.IsShut() {
		return false
	}
	switch c.State {
	case connectivity.Idle:
		if !c.Wanted() {
			return false
		}
		c.announce(connectivity.Connecting)
	case connectivity.Connecting:
		if up {
			c.announce(connectivity.Ready)
		} else {
			c.announce(connectivity.TransientFailure)
		}
	default:
		c.announce(connectivity.Idle)
	}
	return true
}

// To moves the SubConn step by step to a state.
func (c *SubConn[T]) To(s connectivity.State) {
	for c.State != s && c.Toward(s) {
	}
}

// Toward makes the next step to a state. It is an error if there is none, since the policy has not
// called Connect, or has called Shutdown.
func (c *SubConn[T]) Toward(s connectivity.State) bool {
	moved := c.Step(s != connectivity.TransientFailure)
	if !moved {
		c.cc.errorf("%v cannot become %v: the policy has not called Connect, or has called Shutdown", c, s)
	}
	return moved
}

// announce moves the SubConn to a state and calls its listener.
func (c *SubConn[T]) announce(to connectivity.State) {
	c.cc.Mu.Lock()
	c.State, c.asked = to, false
	if to != connectivity.Ready {
		c.health, c.served = nil, false
	}
	c.cc.Mu.Unlock()
	c.cc.OnMove(c)
	s := balancer.SubConnState{ConnectivityState: to}
	if to == connectivity.TransientFailure {
		s.ConnectionError = c.cc.Refused
	}
	if c.listener != nil {
		c.listener(s)
	}
}

// finish reports SHUTDOWN, after a connection attempt under way has succeeded.
func (c *SubConn[T]) finish() bool {
	if !c.IsShut() || c.State == connectivity.Shutdown {
		return false
	}
	if c.State == connectivity.Connecting {
		c.announce(connectivity.Ready)
	}
	c.announce(connectivity.Shutdown)
	return true
}

// Serve reports READY to the health listener, once, and returns whether it did.
func (c *SubConn[T]) Serve() bool {
	c.cc.Mu.Lock()
	l := c.health
	due := l != nil && !c.served && !c.Unserved && !c.shut && c.State == connectivity.Ready
	c.served = c.served || due
	c.cc.Mu.Unlock()
	if due {
		l(balancer.SubConnState{ConnectivityState: connectivity.Ready})
	}
	return due
}

func (c *SubConn[T]) String() string {
	if c == nil {
		return "no conn"
	}
	s := fmt.Sprintf("conn %d to %s (%v", c.id, c.cc.NameOf(c.Addr), c.State)
	if c.Wanted() {
		s += ", asked to connect"
	}
	if c.IsShut() {
		s += ", shut down"
	}
	return s + ")"
}
