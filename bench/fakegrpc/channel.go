// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fakegrpc

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
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// A Channel is one LB policy with a fake balancer.ClientConn. It must be made by New, and is
// safe for concurrent use.
type Channel struct {
	*CC[bool] // whether the address of a SubConn fails

	queue  *queue
	target resolver.Target

	activity atomic.Uint64

	// These are guarded by Mu.
	changed  sync.Cond // Now, ready, err
	policy   balancer.Balancer
	resolver resolver.Resolver
	ready    int
	failed   int
	err      error
}

// New returns a Channel without a policy. Connections to addresses for which down returns true
// fail. A nil down means that no connection fails.
func New(down func(addr string) bool) *Channel {
	if down == nil {
		down = func(string) bool { return false }
	}
	s := &Channel{queue: newQueue()}
	s.CC = NewCC[bool](func(format string, args ...any) { s.fail(fmt.Errorf(format, args...)) })
	s.Forget, s.OnCall = true, s.called
	s.OnNew = func(c *SubConn[bool], _ []resolver.Address) {
		s.activity.Add(1)
		c.Data = down(c.Addr)
	}
	s.changed.L = &s.Mu
	return s
}

// Start starts the policy with a JSON configuration, on endpoints of one address each.
func (s *Channel) Start(policy, config string, addrs []string) error {
	state := resolver.State{Endpoints: make([]resolver.Endpoint, len(addrs))}
	for i, a := range addrs {
		state.Endpoints[i].Addresses = []resolver.Address{{Addr: a}}
	}
	return s.StartState(policy, config, state)
}

// StartState is Start with a complete resolver state.
func (s *Channel) StartState(policy, config string, state resolver.State) error {
	return s.update(policy, json.RawMessage(config), state)
}

// Resolve starts the policy that an xDS resolver selects, and passes on its updates.
func (s *Channel) Resolve(b resolver.Builder, target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	s.target = resolver.Target{URL: *u}
	r, err := b.Build(s.target, &resolverConn{channel: s}, resolver.BuildOptions{MetricsRecorder: s.MetricsRecorder()})
	if err != nil {
		return err
	}
	s.Mu.Lock()
	s.resolver = r
	s.Mu.Unlock()
	return nil
}

// update passes a new state to the policy, which the first update starts.
func (s *Channel) update(policy string, config json.RawMessage, state resolver.State) error {
	b := balancer.Get(policy)
	if b == nil {
		return fmt.Errorf("fakegrpc: LB policy %q is not registered", policy)
	}
	var parsed serviceconfig.LoadBalancingConfig
	if p, ok := b.(balancer.ConfigParser); ok {
		var err error
		if parsed, err = p.ParseConfig(config); err != nil {
			return fmt.Errorf("fakegrpc: configuration of %s: %w", policy, err)
		}
	}
	s.queue.add(func() {
		s.activity.Add(1)
		if s.policy == nil {
			s.policy = b.Build(s, balancer.BuildOptions{Target: s.target, DialCreds: insecure.NewCredentials()})
		}
		// ErrBadResolverState requests another resolution; not supported here.
		if err := s.policy.UpdateClientConnState(balancer.ClientConnState{ResolverState: state, BalancerConfig: parsed}); err != nil && !errors.Is(err, balancer.ErrBadResolverState) {
			s.fail(err)
		}
	})
	return nil
}

func (s *Channel) fail(err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.changed.Broadcast()
}

// Wait returns the picker once ready SubConns are READY, failed SubConns have failed, and the
// queue is empty. Policies with goroutines of their own also need Activity. It returns an error
// if the policy or the resolver fails, or ctx is done.
func (s *Channel) Wait(ctx context.Context, ready, failed int) (balancer.Picker, error) {
	stop := context.AfterFunc(ctx, func() { s.fail(ctx.Err()) })
	defer stop()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for s.err == nil && (s.ready < ready || s.failed < failed || s.Now.ConnectivityState != connectivity.Ready && ready > 0 || s.Now.Picker == nil) {
		s.changed.Wait()
	}
	if s.err != nil {
		return nil, fmt.Errorf("fakegrpc: %d of %d are READY and %d of %d failed: %w", s.ready, ready, s.failed, failed, s.err)
	}
	settled := make(chan struct{})
	s.Mu.Unlock()
	s.queue.add(func() { close(settled) })
	<-settled
	s.Mu.Lock()
	return s.Now.Picker, nil
}

// Picker returns the policy's latest picker, or nil before the first.
func (s *Channel) Picker() balancer.Picker {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Now.Picker
}

// Activity returns a counter of calls to and from the policy. Once it no longer changes, the
// policy is idle, including its own goroutines.
func (s *Channel) Activity() uint64 { return s.activity.Load() }

// Close closes the resolver and the policy.
func (s *Channel) Close() {
	s.Mu.Lock()
	r := s.resolver
	s.Mu.Unlock()
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

// called moves a SubConn as the policy wants it. A READY endpoint is healthy.
func (s *Channel) called(c *SubConn[bool], method string) {
	s.queue.add(func() {
		switch method {
		case "Connect":
			if c.State == connectivity.Idle && s.move(c, c.Step) {
				s.queue.add(func() { s.move(c, c.Step) })
			}
		case "Shutdown":
			s.move(c, func(bool) bool { return c.finish() })
		default:
			c.Serve()
		}
	})
}

// move moves a SubConn and then notifies Wait.
func (s *Channel) move(c *SubConn[bool], step func(up bool) bool) (moved bool) {
	from := c.State
	moved = step(!c.Data)
	s.activity.Add(1)
	s.Mu.Lock()
	s.ready += count(c.State == connectivity.Ready) - count(from == connectivity.Ready)
	s.failed += count(c.State == connectivity.TransientFailure) - count(from == connectivity.TransientFailure)
	s.Mu.Unlock()
	s.changed.Broadcast()
	return moved
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// UpdateState implements balancer.ClientConn.
func (s *Channel) UpdateState(state balancer.State) {
	s.activity.Add(1)
	s.CC.UpdateState(state)
	s.changed.Broadcast()
}

// Target implements balancer.ClientConn.
func (s *Channel) Target() string { return s.target.URL.String() }
