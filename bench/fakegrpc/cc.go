// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fakegrpc

import (
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
)

// A CC is gRPC's side of an LB policy. The test moves its SubConns from state to state.
// Calls that package balancer does not allow are errors. It must be made by NewCC.
//
// T is what the test keeps for each SubConn.
type CC[T any] struct {
	balancer.ClientConn // nil: gRPC requires embedding, for future methods

	// OnNew runs before the policy gets a SubConn.
	OnNew func(*SubConn[T], []resolver.Address)
	// OnCall runs at the end of a call of Connect, Shutdown or RegisterHealthListener, whose name
	// it gets. OnMove runs when a SubConn has entered a state that the policy does not know yet.
	OnCall func(c *SubConn[T], method string)
	OnMove func(*SubConn[T])
	// Backend returns the connection to the server of a SubConn. It is Silent by default.
	Backend func(*SubConn[T]) grpc.ClientConnInterface
	// NameOf returns what errors call an address, which is itself by default.
	NameOf func(addr string) string
	// Refused is the error of connection attempts that fail.
	Refused error
	// Forget means that the test never asks for SubConns, so that each needs SubConnSize bytes.
	Forget bool

	Mu         sync.Mutex
	Now        balancer.State // latest
	Announced, // calls of UpdateState
	Calls, // of any kind
	Opened, // SubConns
	Closed, // of them
	Streams, // producers now
	Streamed int // producers so far

	due    bool // Deliver may have something to do
	errorf func(format string, args ...any)
	conns  []*SubConn[T]          // whose SHUTDOWN was not reported, in order of creation
	latest map[string]*SubConn[T] // by address; not shut down
}

// NewCC returns a CC that reports errors to a test.
func NewCC[T any](errorf func(format string, args ...any)) *CC[T] {
	return &CC[T]{
		OnNew: func(*SubConn[T], []resolver.Address) {}, OnCall: func(*SubConn[T], string) {}, OnMove: func(*SubConn[T]) {},
		Backend: func(*SubConn[T]) grpc.ClientConnInterface { return Silent{} },
		NameOf:  func(addr string) string { return addr },
		Refused: errors.New("connection refused"), errorf: errorf, latest: map[string]*SubConn[T]{},
	}
}

// NewSubConn implements balancer.ClientConn. The SubConn is of type *SubConn[T].
func (cc *CC[T]) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if len(addrs) == 0 {
		return nil, errors.New("fakegrpc: SubConn without an address")
	}
	c := &SubConn[T]{cc: cc, Addr: addrs[0].Addr, listener: opts.StateListener}
	cc.OnNew(c, addrs)
	cc.Mu.Lock()
	defer cc.Mu.Unlock()
	cc.Calls++
	c.id = cc.Opened
	cc.Opened++
	if !cc.Forget {
		cc.conns = append(cc.conns, c)
		cc.latest[c.Addr] = c
	}
	return c, nil
}

// UpdateState implements balancer.ClientConn.
func (cc *CC[T]) UpdateState(s balancer.State) {
	if s.Picker == nil || s.ConnectivityState == connectivity.Shutdown {
		cc.errorf("the policy calls UpdateState with %v and picker %v", s.ConnectivityState, s.Picker)
	}
	cc.Mu.Lock()
	defer cc.Mu.Unlock()
	cc.Now = s
	cc.Announced++
	cc.Calls++
}

// ResolveNow implements balancer.ClientConn.
func (cc *CC[T]) ResolveNow(resolver.ResolveNowOptions) {}

// MetricsRecorder implements balancer.ClientConn. It discards all metrics.
func (cc *CC[T]) MetricsRecorder() stats.MetricsRecorder {
	return stats.UnimplementedMetricsRecorder{}
}

// Seen returns the latest picker and its number.
func (cc *CC[T]) Seen() (balancer.Picker, int) {
	cc.Mu.Lock()
	defer cc.Mu.Unlock()
	return cc.Now.Picker, cc.Announced
}

// Open returns the SubConns that the policy has not shut down, in order of creation.
func (cc *CC[T]) Open() []*SubConn[T] {
	cc.Mu.Lock()
	defer cc.Mu.Unlock()
	conns := make([]*SubConn[T], 0, len(cc.conns))
	for _, c := range cc.conns {
		if !c.shut {
			conns = append(conns, c)
		}
	}
	return conns
}

// Find returns the SubConn to an address that was made last, or nil if there is none, or it was
// shut down.
func (cc *CC[T]) Find(addr string) *SubConn[T] {
	cc.Mu.Lock()
	defer cc.Mu.Unlock()
	return cc.latest[addr]
}

// Deliver makes the calls that gRPC makes soon after a call of the policy: it reports SHUTDOWN,
// and READY to health listeners. It returns whether there were any. A state that was on its way
// at Shutdown is still delivered.
func (cc *CC[T]) Deliver() (any bool) {
	cc.Mu.Lock()
	if !cc.due {
		cc.Mu.Unlock()
		return false
	}
	cc.due = false
	conns := slices.Clone(cc.conns)
	cc.Mu.Unlock()
	for _, c := range conns {
		any = c.finish() || any
	}
	for _, c := range conns {
		any = c.Serve() || any
	}
	cc.Mu.Lock()
	defer cc.Mu.Unlock()
	cc.conns = slices.DeleteFunc(cc.conns, func(c *SubConn[T]) bool { return c.State == connectivity.Shutdown })
	return any
}
