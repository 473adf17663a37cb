// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

// A Simulation is a balancer without a channel: its SubConns connect to nothing, and are in the
// states that the caller specifies. SubConns report their states in the order in which they
// were asked to connect, on the goroutine of the caller, and no timer has to expire. So the
// same configuration and states lead to the same result.
type Simulation struct {
	*Balancer
	states map[netip.AddrPort]connectivity.State // of endpoints by their first address; all endpoints not listed are READY

	mu         sync.Mutex
	events     []func()                      // due; guarded by mu
	of         map[string]connectivity.State // by address, of all addresses that are not READY
	connecting map[*priority]bool            // whose child policies were asked to connect
	drains     bool                          // the current SubConn belongs to a draining endpoint; guarded by the mutex
}

// simulatedAge is how long endpoints have been READY: longer than any slow start.
const simulatedAge = 1000 * time.Hour

// Simulate applies a configuration, and returns once all endpoints have their states.
func Simulate(cfg *picker.Config, opts *Options, states map[netip.AddrPort]connectivity.State) (*Simulation, error) {
	creds, err := xdstls.NewCredentials(insecure.NewCredentials())
	if err != nil {
		return nil, err
	}
	s := &Simulation{states: states, of: map[string]connectivity.State{}, connecting: map[*priority]bool{}}
	s.Balancer = newBalancer(&simulatedChannel{s: s}, balancer.BuildOptions{DialCreds: creds})
	s.simulated = true
	s.setOptions(opts)
	s.clock = picker.NewExactClock(func() int64 { return 1 }) // RPCs take no time
	s.setStates(cfg)
	s.Update(cfg)
	for s.deliver() || s.advance() {
	}
	s.age()
	return s, nil
}

// setStates sets the states of all addresses of the configuration's endpoints.
func (s *Simulation) setStates(cfg *picker.Config) {
	for _, c := range cfg.Clusters {
		for _, l := range c.Leaves {
			for _, p := range l.Priorities {
				for _, loc := range p.Localities {
					for _, e := range loc.Endpoints.All() {
						if state, ok := s.states[e.Addr]; ok {
							for _, a := range addressesOf(e) {
								s.of[a] = state
							}
						}
					}
				}
			}
		}
	}
}

// stateOf returns the state of an address.
func (s *Simulation) stateOf(addr string) connectivity.State {
	if state, ok := s.of[addr]; ok {
		return state
	}
	return connectivity.Ready
}

// after queues an event of a SubConn.
func (s *Simulation) after(event func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, event)
}

// deliver delivers the events that are due, and reports whether there were any.
func (s *Simulation) deliver() bool {
	s.finishCallbacks()
	s.mu.Lock()
	events := s.events
	s.events = nil
	s.mu.Unlock()
	for _, event := range events {
		event()
	}
	return len(events) > 0
}

// finishCallbacks waits until the balancer has called its child policies.
func (s *Simulation) finishCallbacks() {
	for {
		done := make(chan struct{})
		s.lock()
		s.rt.Call(func() { close(done) })
		s.unlock()
		<-done
		s.lock()
		idle := s.rt.Idle()
		s.unlock()
		if idle {
			return
		}
	}
}

// advance simulates the next RPCs and timers, and reports whether anything is left to do: it
// connects endpoints that connect on demand, and expires the failover timer of a priority that
// is neither READY nor IDLE.
func (s *Simulation) advance() bool {
	s.lock()
	defer s.unlock()
	for _, c := range s.list.all {
		for _, p := range c.priorities {
			if p.active() && s.connectAll(p) {
				s.collectChange(c)
				return true
			}
		}
	}
	for _, c := range s.list.all {
		for _, p := range c.priorities {
			if p.phase == trying && !takesRPCs(p.connectivity()) {
				serial.Halt(&p.timer)
				p.onFailoverTimeout()
				s.collectChange(c)
				return true
			}
		}
	}
	return false
}

// connectAll connects the endpoints of a priority that wait for an RPC, and draining endpoints,
// which were connected before they drained. It reports whether there were any.
func (s *Simulation) connectAll(p *priority) (found bool) {
	if p.leaf.delegates() {
		found = p.connectivity() == picker.Idle && !s.connecting[p]
		if found {
			s.connecting[p] = true
			p.connectOneIdle()
		}
		return found
	}
	for _, l := range p.localities {
		for i, e := range l.endpoints {
			cfg := l.cfg.At(i)
			state := s.stateOf(picker.AddrText(cfg.Addr))
			if e.conn != nil || state == connectivity.Idle || e.Draining && state != connectivity.Ready {
				continue
			}
			s.drains = e.Draining
			if c, err := newConn(e, cfg); err == nil {
				e.conn = c
				p.stale = true
				e.setState(picker.Connecting)
				found = true
			}
			s.drains = false
		}
	}
	return found
}

// age lets time pass, so that endpoints have been in their states for a long time.
func (s *Simulation) age() {
	s.lock()
	defer s.unlock()
	for _, c := range s.list.all {
		for _, p := range c.priorities {
			for _, l := range p.localities {
				for _, e := range l.endpoints {
					e.StateSince = 0
				}
				l.changed()
			}
		}
		s.list.mark(c)
	}
	s.rt.Advance(simulatedAge)
	s.publish()
}

// Config returns the configuration in use.
func (s *Simulation) Config() *picker.Config { return s.picker.current.Load().Config }

// inspect returns the status of the balancer.
func (s *Simulation) Inspect(target string) *report.TargetStatus {
	status := &report.TargetStatus{Time: time.Now(), Target: target}
	Status(s.Balancer, status, true)
	status.Watched = time.Time{} // there are no RPCs to count
	return status
}

// simulatedChannel implements the part of gRPC's channel that the balancer uses.
type simulatedChannel struct {
	balancer.ClientConn // for methods that gRPC may add in the future
	s                   *Simulation
}

// NewSubConn implements balancer.ClientConn.
func (c *simulatedChannel) NewSubConn(addrs []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	return &simulatedSubConn{s: c.s, addr: addrs[0].Addr, listener: o.StateListener}, nil
}

// UpdateState, ResolveNow, Target and MetricsRecorder implement balancer.ClientConn.
func (c *simulatedChannel) UpdateState(balancer.State)            {}
func (c *simulatedChannel) ResolveNow(resolver.ResolveNowOptions) {}
func (c *simulatedChannel) Target() string                        { return "" }
func (c *simulatedChannel) MetricsRecorder() estats.MetricsRecorder {
	return estats.UnimplementedMetricsRecorder{}
}

// simulatedSubConn is a SubConn that connects to nothing.
type simulatedSubConn struct {
	balancer.SubConn // for methods that gRPC may add in the future
	s                *Simulation
	addr             string
	listener         func(balancer.SubConnState)
}

// Connect implements balancer.SubConn.
func (sc *simulatedSubConn) Connect() {
	connected := sc.s.drains // otherwise CONNECTING would end the connection
	sc.s.after(func() {
		if !connected {
			sc.listener(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
		}
		if state := sc.s.stateOf(sc.addr); state != connectivity.Connecting && state != connectivity.Idle {
			sc.listener(balancer.SubConnState{ConnectivityState: state})
		}
	})
}

// RegisterHealthListener implements balancer.SubConn.
func (sc *simulatedSubConn) RegisterHealthListener(l func(balancer.SubConnState)) {
	sc.s.after(func() { l(balancer.SubConnState{ConnectivityState: connectivity.Ready}) })
}

// GetOrBuildProducer implements balancer.SubConn. Producers get no response.
func (sc *simulatedSubConn) GetOrBuildProducer(b balancer.ProducerBuilder) (balancer.Producer, func()) {
	return b.Build(noAnswer{})
}

// Shutdown implements balancer.SubConn.
func (sc *simulatedSubConn) Shutdown() {}

// noAnswer is a connection to a server that never responds.
type noAnswer struct{}

// Invoke implements grpc.ClientConnInterface.
func (noAnswer) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// NewStream implements grpc.ClientConnInterface.
func (noAnswer) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}
