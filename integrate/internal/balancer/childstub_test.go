// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
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
	onPick func() // runs within a pick
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
	for _, e := range state.ResolverState.Endpoints {
		for _, a := range e.Addresses {
			s.addrs = append(s.addrs, a.Addr)
		}
	}
	var gone []balancer.SubConn
	for a, sc := range s.conns {
		if !slices.Contains(s.addrs, a) {
			gone = append(gone, sc)
			delete(s.conns, a)
			delete(s.states, a)
		}
	}
	lazy := s.lazy && s.idled == 0
	s.mu.Unlock()
	for _, sc := range gone {
		sc.Shutdown()
	}
	if !lazy {
		s.openAll()
	}
	s.report()
	return nil
}

// openAll makes SubConns to the addresses that have none.
func (s *stub) openAll() {
	s.mu.Lock()
	fresh := slices.DeleteFunc(slices.Clone(s.addrs), func(a string) bool { return s.conns[a] != nil })
	s.mu.Unlock()
	for _, a := range fresh {
		s.open(a)
	}
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
	if s.onPick != nil {
		s.onPick()
	}
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
	s.mu.Unlock()
	s.openAll()
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

// TestCustomErrors: gRPC gets the errors of a child's picker: statuses are final, other errors fail
// RPCs that do not wait, and RPCs that wait are picked again when there is another picker, also one
// in the same state.
func TestCustomErrors(t *testing.T) {
	built()
	b, cc := newTestLB(t, Config{})
	b.set(configOf(customOf(false, stubA, `{}`, prio(eps(1)))))
	s := one(t)
	s.mute = true
	drop, plain := status.Error(codes.ResourceExhausted, "dropped"), errors.New("no")
	for _, state := range []connectivity.State{ready, failure, ready} {
		for _, err := range []error{drop, plain, balancer.ErrNoSubConnAvailable} {
			reportState(s, state, err)
			b.flush()
			if _, got := b.pick(); !errors.Is(got, err) {
				t.Errorf("%v: Pick() error = %v, want %v", state, got, err)
			}
		}
	}
	if k := breakerOf(b).InFlight(); k != 0 {
		t.Errorf("%d RPCs in flight, want none", k)
	}
	before := cc.Announced
	reportState(s, ready, plain)
	if cc.Announced != before+1 {
		t.Errorf("RPCs that waited were woken %d times, want once", cc.Announced-before)
	}
	reportState(s, ready, plain)
	if cc.Announced != before+1 {
		t.Error("gRPC was called although no RPC waits")
	}
	if cc.Now.ConnectivityState != ready {
		t.Errorf("the channel is %v, want READY", cc.Now.ConnectivityState)
	}
	before = cc.Announced
	b.to(cc.conn(t, 1), ready)
	b.to(cc.conn(t, 1), idle)
	b.flush()
	if cc.Announced != before+1 {
		t.Error("gRPC got no new picker after the loss of a connection that picked RPCs wait for")
	}
}

// TestPolicyRejectionLogged checks that the log has a line when a child policy rejects its
// configuration, and one when it accepts a later one.
func TestPolicyRejectionLogged(t *testing.T) {
	built()
	book := &kit.Logs{}
	b, _ := newTestLB(t, Config{Logger: slog.New(book)})
	b.set(configOf(customOf(false, stubA, `{}`, prio(eps(1)))))
	b.set(configOf(customOf(false, stubA, `{"N": "no number"}`, prio(eps(1)))))
	book.WantOne(t, "WARN "+msgPolicyRejects, "policy="+stubA, "error=")
	if found := book.With(msgPolicyAccepts); len(found) > 0 {
		t.Errorf("before the configuration is accepted: %q", found)
	}
	b.set(configOf(customOf(false, stubA, `{"N": 1}`, prio(eps(1)))))
	book.WantOne(t, "INFO "+msgPolicyAccepts, "policy="+stubA)
}

// TestCustomNotCompiled: RPCs of a cluster that cannot be compiled fail with the reason unless they are
// wait-for-ready, whatever the state of the child policy, until an update corrects the cluster.
func TestCustomNotCompiled(t *testing.T) {
	for _, state := range []connectivity.State{connecting, ready, failure} {
		built()
		b, cc := newTestLB(t, Config{})
		good, bad := customOf(false, stubA, `{}`, prio(eps(1))), customOf(false, stubA, `{}`, prio(eps(1)))
		bad.Leaves[0].Drops = []picker.Drop{{Category: "x", PerMillion: 1e6 + 1}}
		b.set(configOf(good))
		b.to(cc.conn(t, 1), state)
		b.set(configOf(bad))
		b.flush()
		_, err := b.pick()
		if _, final := status.FromError(err); final || err == nil || !strings.Contains(err.Error(), `drop category "x"`) {
			t.Errorf("child policy in %v: Pick() error = %v, want the reason, for which wait-for-ready RPCs wait", state, err)
		}
		before := cc.Announced
		b.set(configOf(good))
		b.to(cc.conn(t, 1), ready)
		b.flush()
		if addr, err := b.pick(); err != nil || cc.Announced == before {
			t.Errorf("child policy in %v: after the correction Pick() = %q, %v, and gRPC has %d new pickers", state, addr, err, cc.Announced-before)
		}
	}
}

// TestCustomUnregistered: a policy that is not in gRPC's registry fails the
// cluster with an error that names it; the resource should have been refused.
func TestCustomUnregistered(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	b.set(configOf(customOf(false, "xdslb_test.None", `{}`, prio(eps(1)))))
	b.flush()
	if _, err := b.pick(); err == nil || !strings.Contains(err.Error(), "no such balancer") {
		t.Errorf("Pick() error = %v, want one with \"no such balancer\"", err)
	}
}
