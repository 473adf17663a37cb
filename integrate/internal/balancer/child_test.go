// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/ringhash"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// breakerOf returns the circuit breaker of the only cluster.
func breakerOf(b *testLB) *picker.Breaker { return b.clusters["c"].leaves[0].breaker.Breaker }

// TestCustomSeesEndpoints: a custom policy sees the endpoints of its group except drained ones,
// with locality, weights, host name and metadata; one child for each locality under wrr_locality
// (A52-W-1, A52-W-3), one for all without.
func TestCustomSeesEndpoints(t *testing.T) {
	list := eps(1, 2, 3)
	list[0].Weight = 3
	list[0].Extra = &picker.EndpointExtra{Hostname: "one.example", HashKey: "k1", Metadata: picker.Metadata{"f": {"x": true}}}
	list[2].Health = picker.Draining
	p := prio(list, eps(4))
	p.Localities[0].Weight, p.Localities[1].Weight = 1, 2
	for _, flat := range []bool{false, true} {
		built()
		b, _ := newTestLB(t, Config{})
		b.set(configOf(customOf(flat, stubA, `{"N":1}`, p)))
		children := built()
		want := [][]int{{1, 2}, {4}}
		if flat {
			want = [][]int{{1, 2, 4}}
		}
		if len(children) != len(want) {
			t.Fatalf("flat %v: %d children, want %d", flat, len(children), len(want))
		}
		for i, s := range children {
			var addrs []string
			for _, n := range want[i] {
				addrs = append(addrs, addr(n).String())
			}
			if !slices.Equal(s.addrs, addrs) || s.state.BalancerConfig.(stubConfig).N != 1 {
				t.Errorf("flat %v: child %d has %v, want %v", flat, i, s.addrs, addrs)
			}
			if got := len(s.state.ResolverState.Addresses); got != len(addrs) {
				t.Errorf("flat %v: child %d has %d addresses, want %d", flat, i, got, len(addrs))
			}
		}
		e := children[0].state.ResolverState.Endpoints[0]
		want0 := &EndpointInfo{
			Locality: picker.LocalityID{Zone: "0"}, LocalityWeight: 1, Weight: 3,
			Hostname: "one.example", Metadata: list[0].Extra.Metadata,
		}
		if info := EndpointInfoOf(e); !want0.Equal(info) {
			t.Errorf("flat %v: EndpointInfoOf() = %+v, want %+v", flat, info, want0)
		}
		if info := EndpointInfoOf(resolver.Endpoint{Attributes: children[0].state.ResolverState.Addresses[0].BalancerAttributes}); !want0.Equal(info) {
			t.Errorf("flat %v: the address has %+v, want %+v", flat, info, want0)
		}
		if k := ringhash.HashKey(e); k != "k1" {
			t.Errorf("flat %v: hash key %q, want k1", flat, k)
		}
		share := (uint64(1<<31) / 3) * (uint64(3<<31) / 5) >> 31 // A113: 1 of 3, 3 of 5
		if w := weight.FromEndpoint(e).Weight; uint64(w) != share {
			t.Errorf("flat %v: weight %d, want %d", flat, w, share)
		}
	}
}

// TestCustomPicks: RPCs are drawn by locality weight, picked by the child, and
// counted at breaker, child and endpoint.
func TestCustomPicks(t *testing.T) {
	built()
	b, cc := newTestLB(t, Config{})
	p := prio(eps(1, 2), eps(3))
	p.Localities[1].Weight = 3
	b.set(configOf(customOf(false, stubA, `{}`, p)))
	children := built()
	wantPick(t, b)
	b.to(cc.conn(t, 1), ready)
	wantPick(t, b, 1)
	b.ready(t, 2, 3)
	const n = 4000
	got := b.shares(t, n)
	for i, share := range []float64{1. / 8, 1. / 8, 3. / 4} {
		if k := float64(got[i+1]); k < n*share*0.8 || k > n*share*1.2 {
			t.Errorf("endpoint %d got %.0f of %d picks, want %.0f", i+1, k, n, n*share)
		}
	}
	for i, s := range children {
		if s.picks == 0 || s.dones != s.picks {
			t.Errorf("child %d: %d picks, %d ended", i, s.picks, s.dones)
		}
	}
	if k := breakerOf(b).InFlight(); k != 0 {
		t.Errorf("%d RPCs in flight after all have ended", k)
	}
	b.to(cc.conn(t, 3), failure)
	wantPick(t, b, 1, 2)
	if cc.duplicate != "" {
		t.Errorf("%s was connected twice", cc.duplicate)
	}
}

// TestCustomUpdateInPlace: a change of the configuration, of endpoints or of weights is passed to
// the existing child, and connections stay (A52-W-4). An update without a change is not passed on.
func TestCustomUpdateInPlace(t *testing.T) {
	built()
	b, cc := newTestLB(t, Config{})
	same := prio(eps(1, 2))
	b.set(configOf(customOf(false, stubA, `{"N":1}`, same)))
	s := one(t)
	b.to(cc.conn(t, 1), ready)
	b.set(configOf(customOf(false, stubA, `{"N":2}`, same)))
	if n := s.state.BalancerConfig.(stubConfig).N; n != 2 {
		t.Errorf("N = %d after the update, want 2", n)
	}
	s.state = balancer.ClientConnState{}
	b.set(configOf(customOf(false, stubA, `{"N":2}`, same)))
	if s.state.BalancerConfig != nil {
		t.Error("the child was updated although nothing had changed")
	}
	p := prio(nil, nil)
	p.Localities[0].Weight, p.Localities[0].Endpoints = 7, same.Localities[0].Endpoints
	b.set(configOf(customOf(false, stubA, `{"N":2}`, p)))
	if w := EndpointInfoOf(s.state.ResolverState.Endpoints[0]).LocalityWeight; w != 7 {
		t.Errorf("locality weight %d, want 7", w)
	}
	b.set(configOf(customOf(false, stubA, `{"N":2}`, prio(eps(1, 3)))))
	b.flush()
	if cc.has(2) || !cc.has(3) || cc.Opened != 3 || cc.Closed != 1 {
		t.Errorf("opened %d, closed %d; want 3, 1", cc.Opened, cc.Closed)
	}
	wantPick(t, b, 1)
	if more := built(); len(more) != 0 || s.closed {
		t.Error("the child was replaced")
	}
}

// TestCustomGracefulSwitch: another policy takes over once it is READY, or the
// old one is not; the third makes the second superfluous.
func TestCustomGracefulSwitch(t *testing.T) {
	built()
	list := eps(1)
	b, cc := connected(t, customOf(false, stubA, `{}`, prio(list)), 1)
	a := one(t)
	first := cc.conn(t, 1)
	wantPick(t, b, 1)

	b.set(configOf(customOf(false, stubB, `{}`, prio(list))))
	next := one(t)
	second := cc.conn(t, 1)
	if second == first {
		t.Fatal("the next child has no connection of its own")
	}
	wantPick(t, b, 1)
	if a.closed || next.picks > 0 {
		t.Fatal("the next child took over before it was READY")
	}
	b.set(configOf(customOf(false, stubA, `{}`, prio(list))))
	third := one(t)
	if !next.closed || a.closed {
		t.Fatal("a child that never served was not replaced")
	}
	b.to(cc.conn(t, 1), ready)
	wantPick(t, b, 1)
	b.flush()
	if !a.closed || third.picks == 0 || !first.IsShut() || !second.IsShut() {
		t.Error("the child that is READY did not take over, or left connections behind")
	}

	b.to(cc.conn(t, 1), connecting) // not READY: no reason to wait for the next
	b.set(configOf(customOf(false, stubB, `{}`, prio(list))))
	fourth := one(t)
	if !third.closed {
		t.Error("a child that is not READY was kept")
	}
	b.to(cc.conn(t, 1), ready)
	wantPick(t, b, 1)
	if fourth.picks == 0 {
		t.Error("the last child does not serve")
	}
	b.flush()
	if open := len(cc.Open()); open != 1 || cc.Opened-cc.Closed != 1 {
		t.Errorf("%d connections are open, want 1", cc.Opened-cc.Closed)
	}
	if k := breakerOf(b).InFlight(); k != 0 {
		t.Errorf("%d RPCs in flight after all have ended", k)
	}
}

// TestPolicyChangeKeepsConnections: connections survive a change from a policy
// that the snapshot has to a child's and back, and one between pick_first and a
// custom policy.
func TestPolicyChangeKeepsConnections(t *testing.T) {
	built()
	list := eps(1, 2)
	b, cc := connected(t, clusterOf("c", prio(list)), 1)
	b.to(cc.conn(t, 2), connecting)
	for range 3 {
		b.set(configOf(customOf(false, stubA, `{}`, prio(list))))
		wantPick(t, b, 1)
		b.set(configOf(clusterOf("c", prio(list))))
		wantPick(t, b, 1)
		if cc.Opened != 2 || cc.Closed != 0 {
			t.Fatalf("opened %d, closed %d; want 2, 0", cc.Opened, cc.Closed)
		}
	}
	b.to(cc.conn(t, 2), ready)
	wantPick(t, b, 1, 2)
	b.to(cc.conn(t, 1), idle) // the listener found its way back
	wantPick(t, b, 2)
	if n := cc.conn(t, 1).Connects; n < 2 {
		t.Errorf("endpoint 1 was asked to connect %d times, want twice", n)
	}
	for _, s := range built() {
		if !s.closed {
			t.Error("a child was left behind")
		}
	}
	b.to(cc.conn(t, 1), ready)
	b.set(configOf(firstOf(false, false, prio(list))))
	wantPick(t, b, 1)
	if cc.Opened != 2 || cc.Closed != 1 || cc.has(2) {
		t.Errorf("opened %d, closed %d, want 2, 1: pick_first needs one connection", cc.Opened, cc.Closed)
	}
	b.set(configOf(clusterOf("c", prio(list))))
	wantPick(t, b, 1)
	wantConns(t, b, cc, 1, 2)
	b.set(configOf(customOf(false, stubA, `{}`, prio(list))))
	wantPick(t, b, 1)
	if cc.Opened != 3 || cc.Closed != 1 {
		t.Errorf("opened %d, closed %d, want 3, 1", cc.Opened, cc.Closed)
	}
}

// TestCustomMoves: an endpoint that moves to another locality, and so to another
// child, keeps its connection.
func TestCustomMoves(t *testing.T) {
	built()
	b, cc := connected(t, customOf(false, stubA, `{}`, prio(eps(1, 2), eps(3))), 1, 2, 3)
	wantPick(t, b, 1, 2, 3)
	b.set(configOf(customOf(false, stubA, `{}`, prio(eps(1), eps(3, 2)))))
	wantPick(t, b, 1, 2, 3)
	b.set(configOf(customOf(false, stubA, `{}`, prio(eps(3, 2, 1)))))
	wantPick(t, b, 1, 2, 3)
	if cc.Opened != 3 || cc.Closed != 0 {
		t.Errorf("opened %d, closed %d; want 3, 0", cc.Opened, cc.Closed)
	}
	b.to(cc.conn(t, 2), failure)
	wantPick(t, b, 1, 3)
	b.set(configOf(customOf(false, stubA, `{}`, prio(eps(3)))))
	wantPick(t, b, 3)
	if cc.Closed != 2 {
		t.Errorf("%d connections were closed, want 2", cc.Closed)
	}
}

// TestCustomIdle: a child that is IDLE connects when an RPC wants it to.
func TestCustomIdle(t *testing.T) {
	built()
	b, cc := newTestLB(t, Config{})
	b.set(configOf(customOf(true, stubA, `{"Lazy":true}`, prio(eps(1)), prio(eps(2)))))
	s := one(t)
	if cc.Opened != 0 || s.idled != 0 {
		t.Fatal("the child was woken without an RPC")
	}
	idle := b.list.all[0].inUse.groups[0].childPicker.Load()
	wantPick(t, b)
	wantPick(t, b)
	idle.exitIdle() // for an RPC that has had it, and is late
	b.calm()
	if s.idled != 1 {
		t.Fatalf("the child was woken %d times, want once", s.idled)
	}
	if k := breakerOf(b).InFlight(); k != 0 {
		t.Errorf("%d RPCs in flight while all wait", k)
	}
	b.to(cc.conn(t, 1), ready)
	wantPick(t, b, 1)
	if cc.has(2) {
		t.Error("the lower priority connects")
	}
}

// reportState has a child report a state, with a picker that fails with err.
func reportState(s *stub, state connectivity.State, err error) {
	s.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: base.NewErrPicker(err)})
}

// TestCustomOtherAddress: a child may connect to addresses of its own. An RPC to such an address is
// counted at the locality and passes the breaker like any other.
func TestCustomOtherAddress(t *testing.T) {
	built()
	b, cc := connected(t, customOf(false, stubA, `{}`, prio(eps(1))), 1)
	s := one(t)
	done := s.enter()
	s.mu.Lock()
	s.addrs = []string{addr(9).String()}
	s.mu.Unlock()
	s.open(addr(9).String())
	done()
	b.to(cc.conn(t, 9), ready)
	wantPick(t, b, 9)
	res := b.begin(t)
	if k := breakerOf(b).InFlight(); k != 1 {
		t.Errorf("%d RPCs in flight, want 1", k)
	}
	res.Done(balancer.DoneInfo{})
	if k := breakerOf(b).InFlight(); k != 0 {
		t.Errorf("%d RPCs in flight after all have ended", k)
	}
	b.Close()
	b.calm()
	if cc.Opened != cc.Closed {
		t.Errorf("opened %d, closed %d; want all closed", cc.Opened, cc.Closed)
	}
}

// TestA113Weights: shares of endpoints are localities' and endpoints' normalised
// weights multiplied in 31 bits, at least 1, without overflow.
func TestA113Weights(t *testing.T) {
	p := prio(eps(1, 2), eps(3))
	const most = 1<<32 - 2
	p.Localities[0].Weight, p.Localities[1].Weight = most, 1
	edit(&p, 0, func(e *picker.Endpoint) { e.Weight = most })
	state := stateOf(p.Localities, p.Localities)
	var got []string
	for _, e := range state.Endpoints {
		got = append(got, fmt.Sprint(weight.FromEndpoint(e).Weight))
	}
	if want := []string{"2147483646", "1", "1"}; !slices.Equal(got, want) {
		t.Errorf("weights %v, want %v", got, want)
	}
}

// TestSwitchWhileRetired: a priority that is retired when the policy is switched to
// that of children is used again when it is needed (A52, A56, A62).
func TestSwitchWhileRetired(t *testing.T) {
	several := eps(2) // with two addresses (A61)
	several[0].Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{addr(102)}}
	for name, policy := range map[string]picker.Policy{
		"pick_first": firstOf(true, false).Leaves[0].Policy,
		"custom":     customOf(false, stubA, `{}`).Leaves[0].Policy,
	} {
		for _, second := range [][]picker.Endpoint{eps(2), several} {
			synctest.Test(t, func(t *testing.T) {
				b, cc := newTestLB(t, Config{})
				b.set(configOf(clusterOf("c", prio(eps(1)), prio(second))))
				b.to(cc.conn(t, 1), failure)
				b.flush()
				b.ready(t, 2)
				wantPick(t, b, 2)
				b.to(cc.conn(t, 1), idle)
				b.ready(t, 1)
				wantPick(t, b, 1) // the second priority is retired
				next := clusterOf("c", prio(eps(1)), prio(second))
				next.Leaves[0].Policy = policy
				b.set(configOf(next))
				wantPick(t, b, 1)
				for range 3 { // a child that starts over may try more than once
					b.to(cc.conn(t, 1), idle)
					b.flush()
					_, _ = b.pick() // pick_first connects when an RPC needs it
					b.calm()
					b.to(cc.conn(t, 1), failure)
					b.flush()
				}
				kit.Pass(time.Second)
				if sc := cc.find(2); sc == nil {
					t.Fatalf("%s: the second priority is not connected", name)
				} else if multiAddressed(&second[0]) { // pick_first's connection was another
					b.to(sc, connecting)
					b.to(sc, ready)
				}
				wantPick(t, b, 2)
			})
		}
	}
}

// TestInheritedFailure: a child that asks a connection to connect which it has taken over,
// and which has failed since, hears that: it would wait for ever.
func TestInheritedFailure(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	b.set(configOf(customOf(false, stubA, `{"Lazy":true}`, prio(eps(1)))))
	g := b.clusters["c"].inUse.groups[0]
	c, l := g.current, g.localities[0]
	b.lock()
	own, err := newConn(l.endpoints[0], l.cfg.At(0)) // as if it came with the endpoint
	kit.Must(t, err)
	l.endpoints[0].conn = own
	b.unlock()
	var heard []connectivity.State
	sc, err := c.NewSubConn([]resolver.Address{{Addr: addr(1).String()}}, balancer.NewSubConnOptions{
		StateListener: func(s balancer.SubConnState) { heard = append(heard, s.ConnectivityState) },
	})
	kit.Must(t, err)
	if own.child == nil {
		t.Fatal("the child does not take over the connection")
	}
	b.to(cc.conn(t, 1), failure)
	sc.Connect()
	b.calm()
	if !slices.Equal(heard, []connectivity.State{failure}) {
		t.Errorf("the child heard %v, want TRANSIENT_FAILURE", heard)
	}
}

// TestNothingAfterClose: a policy of another package hears nothing more of its SubConns
// once it is closed.
func TestNothingAfterClose(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	built()
	b.set(configOf(customOf(false, stubA, `{}`, prio(eps(1)))))
	c := b.clusters["c"].inUse.groups[0].current
	heard := 0
	if _, err := c.NewSubConn([]resolver.Address{{Addr: addr(9).String()}}, balancer.NewSubConnOptions{
		StateListener: func(balancer.SubConnState) { heard++ },
	}); err != nil {
		t.Fatal(err)
	}
	sc := cc.conn(t, 9)
	sc.Connect()
	b.lock()
	c.close()
	b.unlock()
	sc.To(ready)
	b.calm()
	if heard > 0 {
		t.Error("the policy was called after Close")
	}
}

// TestCustomServiceChange checks that an RPC is released in the circuit breaker that admitted it if the EDS service of
// a custom policy's cluster changes between its admission and the policy's pick (A32, T-CB-1).
func TestCustomServiceChange(t *testing.T) {
	for _, flat := range []bool{false, true} {
		built()
		b, _ := newTestLB(t, Config{})
		update := func(service string) *picker.Breaker {
			c := customOf(flat, stubA, `{}`, prio(eps(1, 2)))
			c.Leaves[0].Service, c.Leaves[0].MaxRequests = service, 1000
			b.Update(configOf(c))
			b.flush()
			return breakerOf(b)
		}
		breakers := map[string]*picker.Breaker{"one": update("one")}
		b.ready(t, 1, 2)
		b.flush()
		one(t).onPick = sync.OnceFunc(func() { breakers["two"] = update("two") })
		res, err := b.picker.Pick(pickInfo())
		if err == nil {
			res.Done(endedOK)
		}
		if breakers["two"] == nil || breakers["two"] == breakers["one"] {
			t.Errorf("flat %v: the EDS service did not change during the pick", flat)
			continue
		}
		for service, breaker := range breakers {
			if n := breaker.InFlight(); n != 0 {
				t.Errorf("flat %v: the circuit breaker of EDS service %q has %d RPCs in flight after all RPCs have ended, want none", flat, service, n)
			}
		}
	}
}
