// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// A Stage is one LB policy and the cardboard around it. New makes one; any
// number of goroutines may use it.
type Stage struct {
	balancer.ClientConn // nil: gRPC insists on it, for methods to come

	queue  *queue
	down   func(addr string) bool
	target resolver.Target

	pulse atomic.Uint64

	mu       sync.Mutex
	changed  sync.Cond // state, ready, err
	policy   balancer.Balancer
	resolver resolver.Resolver
	state    balancer.State
	ready    int
	failed   int
	err      error
}

// New returns an empty stage, on which connections to the addresses that down
// names fail. A nil down names none.
func New(down func(addr string) bool) *Stage {
	if down == nil {
		down = func(string) bool { return false }
	}
	s := &Stage{queue: newQueue(), down: down}
	s.changed.L = &s.mu
	return s
}

// Play starts the policy with a configuration in JSON, on endpoints of one
// address each.
func (s *Stage) Play(policy, config string, addrs []string) error {
	state := resolver.State{Endpoints: make([]resolver.Endpoint, len(addrs))}
	for i, a := range addrs {
		state.Endpoints[i].Addresses = []resolver.Address{{Addr: a}}
	}
	return s.PlayState(policy, config, state)
}

// PlayState is Play with all that a resolver can say.
func (s *Stage) PlayState(policy, config string, state resolver.State) error {
	return s.update(policy, json.RawMessage(config), state)
}

// Resolve starts the policy that an xDS resolver names, and keeps it up to
// date.
func (s *Stage) Resolve(b resolver.Builder, target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	s.target = resolver.Target{URL: *u}
	r, err := b.Build(s.target, &resolverConn{stage: s}, resolver.BuildOptions{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.resolver = r
	s.mu.Unlock()
	return nil
}

// update gives the policy a new state, and starts it if it is the first.
func (s *Stage) update(policy string, config json.RawMessage, state resolver.State) error {
	b := balancer.Get(policy)
	if b == nil {
		return fmt.Errorf("stage: LB policy %q is not registered", policy)
	}
	var parsed serviceconfig.LoadBalancingConfig
	if p, ok := b.(balancer.ConfigParser); ok {
		var err error
		if parsed, err = p.ParseConfig(config); err != nil {
			return fmt.Errorf("stage: configuration of %s: %w", policy, err)
		}
	}
	s.queue.add(func() {
		s.pulse.Add(1)
		if s.policy == nil {
			s.policy = b.Build(s, balancer.BuildOptions{Target: s.target, DialCreds: insecure.NewCredentials()})
		}
		// Policies ask for another resolution by an error; nobody here has one.
		if err := s.policy.UpdateClientConnState(balancer.ClientConnState{ResolverState: state, BalancerConfig: parsed}); err != nil && !errors.Is(err, balancer.ErrBadResolverState) {
			s.fail(err)
		}
	})
	return nil
}

func (s *Stage) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.changed.Broadcast()
}

// Wait returns the picker as soon as so many SubConns are READY, so many have
// failed, and nothing more is queued for the policy; see Pulse for policies
// that have goroutines of their own. It fails when the policy or the resolver
// does, or ctx is done.
func (s *Stage) Wait(ctx context.Context, ready, failed int) (balancer.Picker, error) {
	stop := context.AfterFunc(ctx, func() { s.fail(ctx.Err()) })
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && (s.ready < ready || s.failed < failed || s.state.ConnectivityState != connectivity.Ready && ready > 0 || s.state.Picker == nil) {
		s.changed.Wait()
	}
	if s.err != nil {
		return nil, fmt.Errorf("stage: %d of %d are READY and %d of %d failed: %w", s.ready, ready, s.failed, failed, s.err)
	}
	settled := make(chan struct{})
	s.mu.Unlock()
	s.queue.add(func() { close(settled) })
	<-settled
	s.mu.Lock()
	return s.state.Picker, nil
}

// Picker returns the policy's latest picker, nil if there is none.
func (s *Stage) Picker() balancer.Picker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Picker
}

// Pulse returns a number that changes with whatever happens on the stage. Once it
// does not any more the policy has settled, be it on its own goroutines.
func (s *Stage) Pulse() uint64 { return s.pulse.Load() }

// Close ends the play.
func (s *Stage) Close() {
	s.mu.Lock()
	r := s.resolver
	s.mu.Unlock()
	if r != nil {
		r.Close()
	}
	closed := make(chan struct{})
	s.queue.add(func() {
		if s.policy != nil {
			s.policy.Close()
		}
		close(closed)
	})
	<-closed
	s.queue.close()
}

// NewSubConn implements balancer.ClientConn.
func (s *Stage) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	s.pulse.Add(1)
	if len(addrs) == 0 {
		return nil, errors.New("stage: a SubConn without an address")
	}
	return &subConn{stage: s, down: s.down(addrs[0].Addr), listen: opts.StateListener}, nil
}

// UpdateState implements balancer.ClientConn.
func (s *Stage) UpdateState(state balancer.State) {
	s.pulse.Add(1)
	s.mu.Lock()
	s.state = state
	s.mu.Unlock()
	s.changed.Broadcast()
}

// ResolveNow implements balancer.ClientConn.
func (s *Stage) ResolveNow(resolver.ResolveNowOptions) {}

// Target implements balancer.ClientConn.
func (s *Stage) Target() string { return s.target.URL.String() }

// MetricsRecorder implements balancer.ClientConn.
func (s *Stage) MetricsRecorder() stats.MetricsRecorder { return noMetrics{} }

type noMetrics struct {
	stats.UnimplementedMetricsRecorder
}
