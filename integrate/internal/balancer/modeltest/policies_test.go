// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/picker"
)

// This file has random LB policies, and custom policies.

// randomPolicy draws any policy.
func randomPolicy(rng *rand.Rand) picker.Policy {
	p := picker.Policy{Flat: rng.IntN(2) == 0}
	custom := func(name string) {
		p.Kind, p.Custom = picker.PolicyCustom, &picker.CustomPolicy{Name: name, Config: json.RawMessage(`{}`)}
	}
	switch rng.IntN(21) {
	case 0, 1:
		p.Kind = picker.PolicyEDF
	case 2:
		p.Kind = picker.PolicyRoundRobin
	case 20:
		p.Kind = picker.PolicyRandom
	case 3:
		p.Kind, p.Least = picker.PolicyLeastRequest, &picker.LeastRequest{Choices: 2}
	case 4, 5:
		p.Kind, p.Flat, p.Ring = picker.PolicyRingHash, true, &picker.RingPolicy{MinSize: 64, MaxSize: 64}
	case 6:
		p.Kind, p.Flat, p.Ring = picker.PolicyMaglev, true, &picker.RingPolicy{MinSize: 251}
	case 7:
		p.Kind, p.WRR = picker.PolicyClientWRR, &picker.ClientWRR{Blackout: time.Second, Expiration: time.Minute, UpdatePeriod: time.Second}
		p.WRR.OutOfBand, p.WRR.OOBPeriod = rng.IntN(2) == 0, time.Second
	case 8, 9:
		p.Kind, p.First = picker.PolicyPickFirst, &picker.PickFirst{Shuffle: rng.IntN(2) == 0}
	case 10:
		custom("round_robin")
	case 11:
		custom(string(immediate))
	case 12:
		custom(string(delaysState))
	case 13:
		custom(string(delaysConns))
	case 14:
		custom(string(failing))
	case 15, 16:
		p.Kind, p.Latency = picker.PolicyLeastLatency, &picker.LeastLatency{Decay: time.Duration(1+rng.IntN(10)) * time.Second}
	case 17, 18:
		p.Kind, p.Prequal = picker.PolicyPrequal, &picker.Prequal{
			PoolSize: 2 + rng.Uint32N(15), MaxAge: time.Second, ProbesPerRPC: 3, RemovePerRPC: 1, HotQuantile: .84,
			ProbeTimeout: 100 * time.Millisecond, MaxProbesPerSecond: 1 + rng.Uint32N(1000), Synchronous: []uint32{0, 0, 2, 3}[rng.IntN(4)],
		}
	default:
		custom(string(needsAll))
	}
	if (p.Hashes() || !p.Flat && p.Kind <= picker.PolicyRoundRobin) && rng.IntN(4) == 0 {
		p.SlowStart = &picker.SlowStart{Window: 5 * time.Second, Aggression: 1, MinWeightPercent: 10}
	}
	byZones(rng, &p)
	if rng.IntN(8) == 0 {
		p.Subset = uint32(1 + rng.IntN(4))
	}
	return p
}

// byZones adds zone-aware routing now and then, if the policy supports it.
func byZones(rng *rand.Rand, p *picker.Policy) {
	switch {
	case rng.IntN(3) > 0:
	case !delegates(p) && !p.Hashes():
		p.ZoneAware = &picker.ZoneAware{Enabled: []float64{.5, 1}[rng.IntN(2)], MinEndpoints: uint64(rng.IntN(4)), ForceLocal: uint32(rng.IntN(2)) * 2}
	}
}

// origin returns the origin of RPCs for a policy: an unknown fleet, or one with a few clients in
// each zone.
func origin(p *picker.Policy, clients uint32) *picker.Origin {
	if p.ZoneAware == nil {
		return nil
	}
	o := &picker.Origin{Locality: picker.LocalityID{Zone: "0"}}
	switch {
	case clients == 0:
	case clients == 1:
		o.Err = errors.New("there is no fleet")
	default:
		o.Fleet = []picker.ZoneSize{{ID: o.Locality, Endpoints: clients, Weight: 1}, {ID: picker.LocalityID{Zone: "1"}, Endpoints: 3, Weight: 2}}
	}
	return o
}

// policyText is a short text of a policy.
type policyText picker.Policy

func (p *policyText) String() string {
	names := []string{"EDF", "round robin", "ring hash", "Maglev", "least request", "client WRR", "pick_first", "custom", "least latency", "prequal", "random"}
	s := names[p.Kind]
	if p.Custom != nil {
		s += " " + p.Custom.Name
	}
	if p.Flat {
		s += ", flat"
	}
	if p.Subset > 0 {
		s += fmt.Sprintf(", subset of %d", p.Subset)
	}
	if p.SlowStart != nil {
		s += ", slow start"
	}
	if p.ZoneAware != nil {
		s += ", zone-aware"
	}
	return s
}

// behavior is the behavior of a custom policy (A52). All connect to every address and pick among
// the READY ones in turn; policies of users are worse.
type behavior string

const (
	immediate   behavior = "xdslb_model.immediate"   // updates its state at once
	delaysState behavior = "xdslb_model.delaysstate" // updates its state a second late
	delaysConns behavior = "xdslb_model.delaysconns" // makes its SubConns two seconds late
	failing     behavior = "xdslb_model.failing"     // rejects its configuration, and is in TRANSIENT_FAILURE
	needsAll    behavior = "xdslb_model.needsall"    // is in TRANSIENT_FAILURE until all SubConns are READY, and picks READY ones meanwhile
)

const (
	stateDelay = time.Second
	connDelay  = 2 * time.Second
)

func init() {
	for _, m := range []behavior{immediate, delaysState, delaysConns, failing, needsAll} {
		balancer.Register(m)
	}
}

func (m behavior) Name() string { return string(m) }

func (m behavior) ParseConfig(json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return struct {
		serviceconfig.LoadBalancingConfig
	}{}, nil
}

func (m behavior) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	p := &modelPolicy{behavior: m, cc: cc, conns: map[string]*policyConn{}}
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

// livePolicies is the number of custom policies that were built and not closed.
var livePolicies atomic.Int64

// modelPolicy is a custom policy. It calls the ClientConn while it holds its mutex, which policies
// may do.
type modelPolicy struct {
	behavior
	cc balancer.ClientConn

	mu     sync.Mutex
	addrs  []string
	conns  map[string]*policyConn
	timer  *time.Timer // runs while a call is put off
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
	switch p.behavior {
	case failing:
		p.report()
		return balancer.ErrBadResolverState
	case delaysConns:
		p.putOff(connDelay, p.sync)
	default:
		p.sync()
	}
	return nil
}

// putOff calls f after a while, once.
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

// report updates the state, at once or late according to the behavior.
func (p *modelPolicy) report() {
	if p.behavior == delaysState {
		p.putOff(stateDelay, p.tell)
	} else {
		p.tell()
	}
}

func (p *modelPolicy) tell() {
	picker := &modelPolicyPicker{}
	state := connectivity.TransientFailure
	for _, a := range p.addrs {
		switch c := p.conns[a]; {
		case c == nil: // not made yet
			state = connectivity.Connecting
		case c.state == connectivity.Ready:
			picker.ready = append(picker.ready, c.SubConn)
		case c.state != connectivity.TransientFailure:
			state = connectivity.Connecting
		}
	}
	switch {
	case p.behavior == failing:
		state, picker.ready = connectivity.TransientFailure, nil
	case p.behavior == needsAll && len(picker.ready) < len(p.addrs):
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
		return balancer.PickResult{}, errors.New("no connection is READY")
	default:
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
}
