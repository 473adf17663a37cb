// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/picker"
)

// lose has an endpoint lose its connection for good.
func lose(t *testing.T, b *testLB, cc *fakeCC, n int) {
	t.Helper()
	b.to(cc.conn(t, n), idle)
	b.flush()
	_, _ = b.pick() // pick_first connects when an RPC needs it
	b.calm()
	b.to(cc.conn(t, n), failure)
	b.flush()
}

// retireSecond leaves endpoint 1 of priority 0 in use, and priority 1, whose endpoint
// 2 is READY, retired (A56).
func retireSecond(t *testing.T, b *testLB, cc *fakeCC, second []picker.Endpoint) {
	t.Helper()
	b.set(configOf(clusterOf("c", prio(eps(1)), prio(second))))
	b.to(cc.conn(t, 1), failure)
	b.flush()
	b.to(cc.conn(t, 2), connecting)
	b.to(cc.conn(t, 2), ready)
	wantPick(t, b, 2)
	b.to(cc.conn(t, 1), idle)
	b.to(cc.conn(t, 1), ready)
	wantPick(t, b, 1)
}

// several is an endpoint with two addresses (A61).
func several(n int) []picker.Endpoint {
	e := eps(n)
	e[0].Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{addr(100 + n)}}
	return e
}

// TestSwitchWhileRetired: a priority that is retired when the policy is switched to
// that of children is used again when it is needed (A52, A56, A62).
func TestSwitchWhileRetired(t *testing.T) {
	for name, policy := range map[string]picker.Policy{
		"pick_first": {Kind: picker.PolicyPickFirst, Flat: true, First: &picker.PickFirst{}},
		"custom":     customOf(false, stubA, `{}`).Leaves[0].Policy,
	} {
		for _, second := range [][]picker.Endpoint{eps(2), several(2)} {
			synctest.Test(t, func(t *testing.T) {
				b, cc := newTestLB(t, Config{})
				retireSecond(t, b, cc, second)
				next := clusterOf("c", prio(eps(1)), prio(second))
				next.Leaves[0].Policy = policy
				b.set(configOf(next))
				b.flush()
				wantPick(t, b, 1)
				for range 3 { // a child that starts over may try more than once
					lose(t, b, cc, 1)
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

// TestNoConnectionNoState: an endpoint that leaves a child policy's group without a
// connection is not in the state of the group (D14): with ring_hash its picks would
// have no SubConn.
func TestNoConnectionNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		list := slices.Concat(eps(1), several(2), eps(3))
		b.set(configOf(customOf(true, stubA, `{}`, prio(list), prio(eps(9)))))
		b.ready(t, 1, 3)
		wantPick(t, b, 1, 3)
		b.set(configOf(customOf(true, stubA, `{}`, prio(eps(1, 3)), prio(several(2)))))
		b.flush()
		b.set(configOf(ring(clusterOf("c", prio(eps(1, 3)), prio(several(2))))))
		b.flush()
		for _, n := range []int{1, 3} {
			b.to(cc.conn(t, n), idle)
		}
		for i := range 20 {
			for _, hash := range []uint64{7, 1 << 63} {
				res, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: metadatautil.WithHash(t.Context(), hash)})
				if err == nil && res.SubConn == nil {
					t.Fatalf("round %d: a pick succeeds without a SubConn", i)
				}
				synctest.Wait()
			}
			for _, n := range []int{1, 3} {
				for sc := cc.conn(t, n); sc.State != failure && sc.Step(false); {
					b.calm()
				}
			}
			kit.Pass(time.Second)
		}
	})
}

// TestLostWhileRetired: a connection that is lost in a retired priority of a custom
// policy is made again when an update moves the endpoint and changes the policy.
func TestLostWhileRetired(t *testing.T) {
	for _, hashed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, cc := newTestLB(t, Config{})
			retireSecond(t, b, cc, eps(2))
			b.set(configOf(customOf(false, stubA, `{}`, prio(eps(1)), prio(eps(2)))))
			c := cc.conn(t, 2)
			asked := c.Connects
			b.to(c, idle)
			b.flush()
			last := clusterOf("c", zone("9", eps(2)))
			next := clusterOf("c", prio(eps(1)), prio(eps(3)), prio(eps(2)))
			if hashed {
				next, last = ring(next), ring(last)
			}
			b.set(configOf(next))
			b.flush()
			b.set(configOf(last))
			b.flush()
			for i := range 64 { // RPCs of all hashes
				_, _ = b.pickHash(uint64(i) << 58)
				synctest.Wait()
			}
			if c.Connects == asked && !c.IsShut() {
				t.Errorf("hashed %v: the connection was not asked to connect", hashed)
			}
		})
	}
}

// TestOldChildLosesEndpoint: a child that another is to replace gets no more lists of
// endpoints, but hears that an endpoint has moved out of its priority: it would go on
// to pick the connection, also when that is lost.
func TestOldChildLosesEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := connected(t, customOf(true, stubA, `{}`, prio(eps(1, 2)), prio(eps(9))), 1, 2)
		b.flush()
		moved := cc.conn(t, 2)
		b.set(configOf(customOf(true, stubB, `{}`, prio(eps(1, 2)), prio(eps(9)))))
		b.set(configOf(customOf(true, stubB, `{}`, prio(eps(1)), prio(eps(9, 2)))))
		b.flush()
		b.to(moved, idle)
		b.flush()
		for range 10 {
			res, err := b.picker.Pick(pickInfo())
			if err != nil {
				continue
			}
			if res.SubConn == balancer.SubConn(moved) {
				t.Fatal("a pick of the connection that was lost")
			}
			res.Done(endedOK)
		}
	})
}

// TestEjectionAfterSwitch: outlier detection ejects endpoints of a custom policy that
// took over from another one (A50).
func TestEjectionAfterSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newTestLB(t, Config{})
		for _, policy := range []string{stubA, stubB} {
			b.set(configOf(detecting(customOf(false, policy, `{}`, prio(eps(1, 2, 3))))))
			b.ready(t, 1, 2, 3)
			b.flush()
		}
		b.load(t, 60, 1)
		kit.Pass(11 * time.Second)
		wantPick(t, b, 2, 3)
	})
}

// TestHealthAfterSwitch: connections that come from a custom policy are READY only once the health
// service reports SERVING (A17).
func TestHealthAfterSwitch(t *testing.T) {
	b, cc := newTestLB(t, Config{HealthCheckService: "s"})
	b.set(configOf(customOf(false, stubA, `{}`, prio(eps(1)))))
	b.to(cc.conn(t, 1), ready)
	b.flush()
	cc.conn(t, 1).Unserved = true
	b.Update(configOf(clusterOf("c", prio(eps(1)))))
	b.publishNow()
	if _, err := b.pick(); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
		t.Errorf("Pick() error = %v before the backend's health is known, want the RPC to wait", err)
	}
	cc.conn(t, 1).Unserved = false
	cc.conn(t, 1).Serve()
	wantPick(t, b, 1)
}

// TestAddressesReordered: pick_first learns of another order of an endpoint's
// addresses (A61), and the connection stays.
func TestAddressesReordered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.set(configOf(clusterOf("c", prio(several(2)))))
		b.to(cc.conn(t, 2), connecting)
		b.to(cc.conn(t, 2), ready)
		wantPick(t, b, 2)
		reordered := eps(102)
		reordered[0].Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{addr(2)}}
		b.set(configOf(clusterOf("c", prio(reordered))))
		wantPick(t, b, 2)
		b.to(cc.conn(t, 2), idle)
		kit.Pass(100 * time.Millisecond) // the second address would have its turn after 250 ms
		if !cc.has(102) {
			t.Error("after the connection was lost pick_first starts with the address that was the first")
		}
	})
}

// TestReorderedOnDemand: an endpoint of a ring that is not connected yet starts with the
// address that is the first by now (A61).
func TestReorderedOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.set(configOf(ring(clusterOf("c", prio(several(2))))))
		b.flush()
		reordered := eps(102)
		reordered[0].Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{addr(2)}}
		b.set(configOf(ring(clusterOf("c", prio(reordered)))))
		b.flush()
		_, _ = b.pickHash(7)
		kit.Pass(100 * time.Millisecond) // the second address would have its turn after 250 ms
		if !cc.has(102) || cc.has(2) {
			t.Error("the endpoint is connected by its old first address")
		}
	})
}

// TestRetiredAboveConnecting: a retired priority that an update puts between a new one,
// which still connects, and the one in use is used, and not retired while it is (A56).
func TestRetiredAboveConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{RetireAfter: 5 * time.Second})
		of := func(zones ...int) *picker.Cluster {
			var prios []picker.Priority
			for _, n := range zones {
				prios = append(prios, zone(string(rune('a'+n)), eps(n)))
			}
			return clusterOf("c", prios...)
		}
		b.set(configOf(of(1, 2)))
		lose(t, b, cc, 1)
		b.ready(t, 2, 1)
		wantPick(t, b, 1) // 2 is retired
		b.set(configOf(of(3, 2, 1)))
		b.to(cc.conn(t, 3), connecting)
		wantPick(t, b, 2)
		kit.Pass(6 * time.Second)
		wantPick(t, b, 2)
	})
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

// TestLatestConnectionError: RPCs that fail say the latest connection error, also if the
// cluster had failed before.
func TestLatestConnectionError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.set(configOf(clusterOf("c", prio(eps(1)))))
		sc := cc.conn(t, 1)
		for _, text := range []string{"connection refused", "certificate has expired"} {
			cc.Refused = errors.New(text)
			sc.To(connecting)
			sc.To(failure)
			kit.Pass(2 * time.Second)
			if _, err := b.pick(); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("Pick() error = %v, want it to say %q", err, text)
			}
		}
	})
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
