// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/picker"
)

// The names of the stub LB policies.
const (
	stubA = "xdslb_test.A"
	stubB = "xdslb_test.B"
)

func init() {
	balancer.Register(stubBuilder(stubA))
	balancer.Register(stubBuilder(stubB))
}

// stub is a custom LB policy as users write them: it connects to all addresses
// and picks among the READY ones in turn. Tests can make it behave otherwise
// and look inside.
type stub struct {
	cc   balancer.ClientConn
	name string

	mu     sync.Mutex
	state  balancer.ClientConnState
	addrs  []string
	conns  map[string]balancer.SubConn
	states map[string]connectivity.State
	lazy   bool // reports IDLE until ExitIdle
	mute   bool // reports nothing
	busy   bool // within a call
	idled  int  // calls of ExitIdle
	picks  int
	dones  int
	closed bool
}

type stubBuilder string

type stubConfig struct {
	serviceconfig.LoadBalancingConfig `json:"-"`

	N    int
	Lazy bool
}

// stubs are the stubs that were built since the last call of built.
var stubs struct {
	mu    sync.Mutex
	built []*stub
}

// built returns the stubs that were built since it was last called.
func built() []*stub {
	stubs.mu.Lock()
	defer stubs.mu.Unlock()
	s := stubs.built
	stubs.built = nil
	return s
}

func (n stubBuilder) Name() string { return string(n) }

func (n stubBuilder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	s := &stub{cc: cc, name: string(n), conns: map[string]balancer.SubConn{}, states: map[string]connectivity.State{}}
	stubs.mu.Lock()
	defer stubs.mu.Unlock()
	stubs.built = append(stubs.built, s)
	return s
}

func (stubBuilder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	var c stubConfig
	if err := json.Unmarshal(js, &c); err != nil {
		return nil, err
	}
	if c.N < 0 {
		return nil, errors.New("N is negative")
	}
	return c, nil
}

// enter panics if two calls overlap, which a balancer may rely on not to happen.
func (s *stub) enter() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy || s.closed {
		panic("stub: concurrent call, or call after Close")
	}
	s.busy = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy = false
	}
}

func (s *stub) UpdateClientConnState(state balancer.ClientConnState) error {
	defer s.enter()()
	s.mu.Lock()
	s.state, s.addrs = state, nil
	s.lazy = state.BalancerConfig.(stubConfig).Lazy
	var fresh, gone []string
	for _, e := range state.ResolverState.Endpoints {
		for _, a := range e.Addresses {
			s.addrs = append(s.addrs, a.Addr)
			if s.conns[a.Addr] == nil {
				fresh = append(fresh, a.Addr)
			}
		}
	}
	for a := range s.conns {
		if !slices.Contains(s.addrs, a) {
			gone = append(gone, a)
		}
	}
	lazy := s.lazy && s.idled == 0
	s.mu.Unlock()
	for _, a := range gone {
		s.mu.Lock()
		sc := s.conns[a]
		delete(s.conns, a)
		delete(s.states, a)
		s.mu.Unlock()
		sc.Shutdown()
	}
	if !lazy {
		for _, a := range fresh {
			s.open(a)
		}
	}
	s.report()
	return nil
}

func (s *stub) open(a string) {
	var sc balancer.SubConn
	sc, err := s.cc.NewSubConn([]resolver.Address{{Addr: a}}, balancer.NewSubConnOptions{StateListener: func(st balancer.SubConnState) {
		if st.ConnectivityState == connectivity.Shutdown {
			return
		}
		defer s.enter()()
		s.mu.Lock()
		current := s.conns[a] == sc
		if current {
			s.states[a] = st.ConnectivityState
		}
		s.mu.Unlock()
		if current {
			if st.ConnectivityState == connectivity.Idle {
				sc.Connect()
			}
			s.report()
		}
	}})
	if err != nil {
		return
	}
	s.mu.Lock()
	s.conns[a], s.states[a] = sc, connectivity.Connecting
	s.mu.Unlock()
	sc.Connect()
}

// report updates the state of the ClientConn.
func (s *stub) report() {
	s.mu.Lock()
	if s.mute {
		s.mu.Unlock()
		return
	}
	var up []string
	state := connectivity.TransientFailure
	for _, a := range s.addrs {
		switch s.states[a] {
		case connectivity.Ready:
			up = append(up, a)
		case connectivity.Connecting, connectivity.Idle:
			state = connectivity.Connecting
		}
	}
	if len(up) > 0 {
		state = connectivity.Ready
	}
	if s.lazy && len(s.conns) == 0 {
		state = connectivity.Idle
	}
	s.mu.Unlock()
	s.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: &stubPicker{s: s, state: state, up: up}})
}

// stubPicker picks in turn.
type stubPicker struct {
	s     *stub
	state connectivity.State
	up    []string
}

func (p *stubPicker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	switch p.state {
	case connectivity.TransientFailure:
		return balancer.PickResult{}, errors.New("stub: all is lost")
	case connectivity.Ready:
	default:
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	a := p.up[s.picks%len(p.up)]
	s.picks++
	return balancer.PickResult{SubConn: s.conns[a], Done: func(balancer.DoneInfo) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dones++
	}}, nil
}

func (s *stub) ResolverError(error) {}

func (s *stub) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

func (s *stub) ExitIdle() {
	defer s.enter()()
	s.mu.Lock()
	s.idled++
	addrs := slices.Clone(s.addrs)
	s.mu.Unlock()
	for _, a := range addrs {
		s.mu.Lock()
		have := s.conns[a] != nil
		s.mu.Unlock()
		if !have {
			s.open(a)
		}
	}
	s.report()
}

// Close leaves the SubConns open, as gRPC allows.
func (s *stub) Close() {
	defer s.enter()()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// customOf is clusterOf with a custom policy.
func customOf(flat bool, name, config string, prios ...picker.Priority) *picker.Cluster {
	c := clusterOf("c", prios...)
	c.Leaves[0].Policy = picker.Policy{
		Kind: picker.PolicyCustom, Flat: flat,
		Custom: &picker.CustomPolicy{Name: name, Config: json.RawMessage(config)},
	}
	return c
}

// one returns the only stub that was built.
func one(t *testing.T) *stub {
	t.Helper()
	s := built()
	if len(s) != 1 {
		t.Fatalf("%d children were built, want 1", len(s))
	}
	return s[0]
}
