// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/proberpc"
)

// modelChannel is gRPC's side of a balancer. Unlike fakeCC, it enforces gRPC's rules: a SubConn
// connects only after Connect was called while it was IDLE, moves one state at a time, and reports
// SHUTDOWN last.
type modelChannel struct {
	balancer.ClientConn // nil: no other method is called

	mu        sync.Mutex
	made      int          // SubConns so far
	conns     []*modelConn // whose SHUTDOWN was not reported, in order of creation
	picker    balancer.Picker
	state     connectivity.State
	announced int // calls of UpdateState
	actions   int // calls of any kind; a closed balancer makes no calls
	streams   int // open streams of out-of-band load reports
	// onCallback is called when the balancer makes a call without holding its mutex; it may be nil.
	onCallback func()
	// handshake runs when a connection begins to connect.
	handshake func(*modelConn)
	// backends simulates the health services of backends.
	backends *modelHealth
}

// MetricsRecorder implements balancer.ClientConn; it discards all metrics.
func (*modelChannel) MetricsRecorder() estats.MetricsRecorder {
	return estats.UnimplementedMetricsRecorder{}
}

// modelConn is a SubConn.
//
//	IDLE ─Connect→ CONNECTING → READY ─lost→ IDLE
//	                   └→ TRANSIENT_FAILURE ─back-off→ IDLE
type modelConn struct {
	balancer.SubConn // nil

	cc        *modelChannel
	id        int
	addr      string
	number    int // of the address
	listener  func(balancer.SubConnState)
	state     connectivity.State // as last announced
	asked     bool               // to connect since it became IDLE
	connects  int                // that had an effect
	shut      bool               // by the balancer
	health    func(balancer.SubConnState)
	healthy   bool                   // as announced to health
	failed    bool                   // since it was READY
	delegated bool                   // to a custom policy or pick_first, now or earlier
	target    *attributes.Attributes // of the address
	hostname  string                 // that it was connected with
	// unwatched are the services that the backend did not know, since the SubConn was READY.
	unwatched []string
}

func (cc *modelChannel) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	cc.actions++
	c := &modelConn{cc: cc, id: cc.made, addr: addrs[0].Addr, number: numberAt(addrs[0].Addr), listener: opts.StateListener, target: addrs[0].Attributes}
	cc.made++
	cc.conns = append(cc.conns, c)
	return c, nil
}

func (cc *modelChannel) UpdateState(s balancer.State) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	cc.state, cc.picker = s.ConnectivityState, s.Picker
	cc.announced++
	cc.actions++
}

func (cc *modelChannel) ResolveNow(resolver.ResolveNowOptions) {}

// seen returns the latest picker and its number.
func (cc *modelChannel) seen() (balancer.Picker, int) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	return cc.picker, cc.announced
}

// open returns the SubConns that the balancer has not shut down.
func (cc *modelChannel) open() (conns []*modelConn) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	conns = make([]*modelConn, 0, len(cc.conns))
	for _, c := range cc.conns {
		if !c.shut {
			conns = append(conns, c)
		}
	}
	return conns
}

// Connect does nothing unless the SubConn is IDLE, as gRPC has it.
func (c *modelConn) Connect() {
	c.cc.mu.Lock()
	defer c.cc.mu.Unlock()
	c.cc.actions++
	if c.state == connectivity.Idle && !c.shut && !c.asked {
		c.asked = true
		c.connects++
	}
}

func (c *modelConn) Shutdown() {
	c.cc.callBack()
	c.cc.mu.Lock()
	defer c.cc.mu.Unlock()
	c.shut = true
}

func (c *modelConn) UpdateAddresses([]resolver.Address) {
	panic("UpdateAddresses is deprecated")
}

// RegisterHealthListener keeps the listener; deliver reports SERVING to it.
func (c *modelConn) RegisterHealthListener(l func(balancer.SubConnState)) {
	c.cc.callBack()
	c.cc.mu.Lock()
	defer c.cc.mu.Unlock()
	c.health, c.healthy = l, false
}

// GetOrBuildProducer builds a producer. Load reports out of band are never answered; probes get
// random answers.
func (c *modelConn) GetOrBuildProducer(pb balancer.ProducerBuilder) (balancer.Producer, func()) {
	count := func(n int) {
		c.cc.mu.Lock()
		defer c.cc.mu.Unlock()
		c.cc.streams += n
	}
	count(1)
	p, stop := pb.Build(randomBackend{conn: c})
	return p, func() { stop(); count(-1) }
}

// randomBackend is a connection to a server that answers probes at random.
type randomBackend struct {
	silent
	conn *modelConn
}

func (m randomBackend) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	switch rand.IntN(8) {
	case 0:
		return status.Error(codes.Unimplemented, "unknown service")
	case 1:
		return m.silent.Invoke(ctx, method, in, out, opts...)
	}
	*out.(*proberpc.Report) = proberpc.Report{
		InFlight: rand.Uint32N(5), LatencyNs: rand.Uint64N(1e9), FailingPPM: rand.Uint32N(1_000_001),
		Weight: rand.Float64(), GoingAway: rand.IntN(8) == 0,
	}
	return nil
}

// takesRPCs reports whether an RPC that picked the SubConn can use it.
func (c *modelConn) takesRPCs() bool { return c.state == connectivity.Ready && !c.closed() }

// isHealthy reports whether the health listener was told SERVING.
func (c *modelConn) isHealthy() bool {
	c.cc.mu.Lock()
	defer c.cc.mu.Unlock()
	return c.healthy
}

func (c *modelConn) closed() bool {
	c.cc.mu.Lock()
	defer c.cc.mu.Unlock()
	return c.shut
}

// down reports whether the endpoint is in TRANSIENT_FAILURE, which lasts until it is READY (A62).
// Of a connection that another policy had before, the balancer knows only the state.
func (c *modelConn) down() bool {
	return c.state == connectivity.TransientFailure || c.failed && !c.delegated
}

// step moves the SubConn to its next state, if there is one. up is the result of a connection
// attempt.
func (c *modelConn) step(up bool) (moved bool) {
	if c.closed() {
		return false
	}
	switch c.state {
	case connectivity.Idle:
		if !c.wanted() {
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

// announce moves the SubConn to a state and calls its listener.
func (c *modelConn) announce(to connectivity.State) {
	c.cc.mu.Lock()
	switch to {
	case connectivity.TransientFailure:
		c.failed = true
	case connectivity.Ready:
		c.failed = false
	}
	c.state, c.asked = to, false
	if to != connectivity.Ready {
		c.health, c.healthy = nil, false
	}
	c.cc.mu.Unlock()
	if to != connectivity.Ready && c.cc.backends != nil {
		if c.cc.backends.end(c) {
			synctest.Wait() // gRPC may report the end of streams first
		}
		c.unwatched = nil
	}
	if to == connectivity.Connecting && c.cc.handshake != nil {
		c.cc.handshake(c)
	}
	s := balancer.SubConnState{ConnectivityState: to}
	if to == connectivity.TransientFailure {
		s.ConnectionError = errors.New("connection refused")
	}
	c.listener(s)
}

// deliver makes the calls that gRPC makes soon after a call of the balancer, and reports whether
// there were any. A state that was on its way at Shutdown is still delivered.
func (cc *modelChannel) deliver() (any bool) {
	shut, healthy := cc.due()
	for _, c := range shut {
		if c.state == connectivity.Connecting {
			c.announce(connectivity.Ready)
		}
		c.announce(connectivity.Shutdown)
	}
	for _, listener := range healthy {
		listener(balancer.SubConnState{ConnectivityState: connectivity.Ready})
	}
	return len(shut)+len(healthy) > 0
}

// due returns the SubConns whose SHUTDOWN is to be reported, and the health listeners that are to
// be told SERVING.
func (cc *modelChannel) due() (shut []*modelConn, healthy []func(balancer.SubConnState)) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	for _, c := range cc.conns {
		switch {
		case c.shut:
			shut = append(shut, c)
		case c.health != nil && !c.healthy && c.state == connectivity.Ready:
			c.healthy = true
			healthy = append(healthy, c.health)
		}
	}
	if shut != nil {
		cc.conns = slices.DeleteFunc(cc.conns, func(c *modelConn) bool { return c.shut })
	}
	return shut, healthy
}

// wanted reports whether Connect was called.
func (c *modelConn) wanted() bool {
	c.cc.mu.Lock()
	defer c.cc.mu.Unlock()
	return c.asked
}

func (c *modelConn) String() string {
	if c == nil {
		return "no conn"
	}
	s := fmt.Sprintf("conn %d to %d (%v", c.id, c.number, c.state)
	if c.wanted() {
		s += ", asked to connect"
	}
	if c.closed() {
		s += ", shut down"
	}
	return s + ")"
}
