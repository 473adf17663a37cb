// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// manner is how a custom policy (A52) of the random model behaves. All connect to
// every address and pick among the READY ones in turn; users write worse ones.
type manner string

const (
	prompt    manner = "xdslb_model.prompt"    // says at once what there is
	tardy     manner = "xdslb_model.tardy"     // says it a second late
	late      manner = "xdslb_model.late"      // makes its SubConns two seconds late
	failing   manner = "xdslb_model.failing"   // refuses its configuration, and says TRANSIENT_FAILURE
	desperate manner = "xdslb_model.desperate" // says TRANSIENT_FAILURE until all are READY, and picks what there is
)

const (
	tardiness = time.Second
	lateness  = 2 * time.Second
)

func init() {
	for _, m := range []manner{prompt, tardy, late, failing, desperate} {
		balancer.Register(m)
	}
}

func (m manner) Name() string { return string(m) }

func (m manner) ParseConfig(json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return struct {
		serviceconfig.LoadBalancingConfig
	}{}, nil
}

func (m manner) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	p := &modelPolicy{manner: m, cc: cc, conns: map[string]*policyConn{}}
	livePolicies.Add(1)
	return p
}

// policyGate delays calls of the model's policies until it is closed; nil does not.
var policyGate atomic.Pointer[chan struct{}]

// holdPolicies delays calls of policies until resume is called.
func holdPolicies() (resume func()) {
	gate := make(chan struct{})
	policyGate.Store(&gate)
	return func() {
		policyGate.Store(nil)
		close(gate)
	}
}

// awaitGate waits until policies may be called.
func awaitGate() {
	if gate := policyGate.Load(); gate != nil {
		<-*gate
	}
}

// livePolicies is how many of the model's policies were built and not closed.
var livePolicies atomic.Int64

// modelPolicy is a custom policy. It calls the ClientConn with its own mutex held,
// which policies may do.
type modelPolicy struct {
	manner
	cc balancer.ClientConn

	mu     sync.Mutex
	addrs  []string
	conns  map[string]*policyConn
	timer  *time.Timer // runs while something is put off
	closed bool
}

type policyConn struct {
	balancer.SubConn
	state connectivity.State
}

func (p *modelPolicy) UpdateClientConnState(s balancer.ClientConnState) error {
	awaitGate()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addrs = nil
	for _, e := range s.ResolverState.Endpoints {
		for _, a := range e.Addresses {
			p.addrs = append(p.addrs, a.Addr)
		}
	}
	switch p.manner {
	case failing:
		p.report()
		return balancer.ErrBadResolverState
	case late:
		p.putOff(lateness, p.sync)
	default:
		p.sync()
	}
	return nil
}

// putOff does something after a while, once.
func (p *modelPolicy) putOff(d time.Duration, f func()) {
	if p.timer != nil {
		return
	}
	p.timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.timer = nil; !p.closed {
			f()
		}
	})
}

// sync makes and shuts down SubConns until there is one for each address.
func (p *modelPolicy) sync() {
	for a, c := range p.conns {
		if !slices.Contains(p.addrs, a) {
			delete(p.conns, a)
			c.Shutdown()
		}
	}
	for _, a := range p.addrs {
		if p.conns[a] == nil {
			p.open(a)
		}
	}
	p.report()
}

func (p *modelPolicy) open(a string) {
	c := &policyConn{state: connectivity.Connecting}
	sc, err := p.cc.NewSubConn([]resolver.Address{{Addr: a}}, balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closed || p.conns[a] != c {
			return
		}
		if c.state = s.ConnectivityState; c.state == connectivity.Idle {
			c.Connect()
		}
		p.report()
	}})
	if err != nil {
		return
	}
	c.SubConn = sc
	p.conns[a] = c
	sc.Connect()
}

// report tells the ClientConn what there is, when it is the policy's manner.
func (p *modelPolicy) report() {
	if p.manner == tardy {
		p.putOff(tardiness, p.tell)
	} else {
		p.tell()
	}
}

func (p *modelPolicy) tell() {
	picker := &modelPolicyPicker{}
	state := connectivity.TransientFailure
	for _, a := range p.addrs {
		switch c := p.conns[a]; {
		case c == nil: // it is not there yet
			state = connectivity.Connecting
		case c.state == connectivity.Ready:
			picker.ready = append(picker.ready, c.SubConn)
		case c.state != connectivity.TransientFailure:
			state = connectivity.Connecting
		}
	}
	switch {
	case p.manner == failing:
		state, picker.ready = connectivity.TransientFailure, nil
	case p.manner == desperate && len(picker.ready) < len(p.addrs):
		state = connectivity.TransientFailure
	case len(picker.ready) > 0:
		state = connectivity.Ready
	}
	picker.state = state
	p.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: picker})
}

func (p *modelPolicy) ResolverError(error) {}

func (p *modelPolicy) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

func (p *modelPolicy) ExitIdle() {}

// Close leaves the SubConns open, as gRPC allows.
func (p *modelPolicy) Close() {
	awaitGate()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		panic("the policy is closed twice")
	}
	p.closed = true
	livePolicies.Add(-1)
}

type modelPolicyPicker struct {
	state connectivity.State
	ready []balancer.SubConn
	next  atomic.Uint32
}

func (p *modelPolicyPicker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	switch {
	case len(p.ready) > 0:
		return balancer.PickResult{SubConn: p.ready[int(p.next.Add(1))%len(p.ready)], Done: func(balancer.DoneInfo) {}}, nil
	case p.state == connectivity.TransientFailure:
		return balancer.PickResult{}, errors.New("all is lost")
	default:
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
}
