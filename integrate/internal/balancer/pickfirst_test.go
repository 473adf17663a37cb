// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// firstOf is clusterOf with pick_first.
func firstOf(flat, shuffle bool, prios ...picker.Priority) *picker.Cluster {
	c := clusterOf("c", prios...)
	c.Leaves[0].Policy = picker.Policy{Kind: picker.PolicyPickFirst, Flat: flat, First: &picker.PickFirst{Shuffle: shuffle}}
	return c
}

// wantConns checks which endpoints below 10 have a SubConn.
func wantConns(t *testing.T, b *testLB, cc *fakeCC, numbers ...int) {
	t.Helper()
	b.flush()
	if got := cc.open(10); !slices.Equal(got, numbers) {
		t.Fatalf("endpoints %v have connections, want %v", got, numbers)
	}
}

// TestPickFirst is A62: endpoints are tried in order, the first that is READY is
// kept alone, a failure of all sticks until one is READY, and after the
// connection is lost it starts from the top.
func TestPickFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.set(configOf(firstOf(true, false, prio(eps(1, 2), eps(3)))))
		wantConns(t, b, cc, 1)
		b.to(cc.conn(t, 1), connecting)
		b.to(cc.conn(t, 1), failure)
		wantConns(t, b, cc, 1, 2)
		wantPick(t, b)
		b.to(cc.conn(t, 2), connecting)
		kit.Pass(300 * time.Millisecond) // Happy Eyeballs: 250 ms (A61)
		wantConns(t, b, cc, 1, 2, 3)
		b.to(cc.conn(t, 3), connecting)
		b.to(cc.conn(t, 3), ready)
		wantConns(t, b, cc, 3)
		wantPick(t, b, 3)
		if e := b.clusters["c"].inUse.localities[1].endpoints[0]; e.Connectivity != picker.Ready {
			t.Errorf("endpoint 3 is %v, want READY: its locality gets the RPCs", e.Connectivity)
		}

		b.to(cc.conn(t, 3), idle)
		b.flush()
		if cc.Now.ConnectivityState != idle || cc.Opened != 3 {
			t.Errorf("the channel is %v without a connection, %d SubConns made, want IDLE and 3", cc.Now.ConnectivityState, cc.Opened)
		}
		wantPick(t, b)
		b.calm()
		for _, n := range []int{1, 2, 3} {
			b.to(cc.conn(t, n), connecting)
			b.to(cc.conn(t, n), failure)
		}
		b.flush()
		if _, err := b.pick(); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("Pick() error = %v with all endpoints down, want the connection's", err)
		}
		for _, n := range []int{1, 2, 3} {
			b.to(cc.conn(t, n), idle) // back-off is over
			b.to(cc.conn(t, n), connecting)
		}
		b.flush()
		if _, err := b.pick(); err == nil || errors.Is(err, balancer.ErrNoSubConnAvailable) {
			t.Errorf("Pick() error = %v while failed endpoints connect, want the failure to stick", err)
		}
		b.to(cc.conn(t, 2), ready)
		wantConns(t, b, cc, 2)
		wantPick(t, b, 2)
	})
}

// TestPickFirstUpdates: an endpoint that is in the old list and the new, wherever,
// keeps its connection (T-PF); one that is not is replaced from the top.
func TestPickFirstUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.set(configOf(firstOf(true, false, prio(eps(1, 2)))))
		b.to(cc.conn(t, 1), connecting)
		b.to(cc.conn(t, 1), ready)
		wantPick(t, b, 1)
		for _, p := range []picker.Priority{prio(eps(2, 3, 1)), prio(eps(3), eps(2, 1)), prio(eps(1))} {
			b.set(configOf(firstOf(true, false, p)))
			wantPick(t, b, 1)
			wantConns(t, b, cc, 1)
		}
		b.set(configOf(firstOf(true, false, prio(eps(4, 5)))))
		wantConns(t, b, cc, 4)
		b.to(cc.conn(t, 4), connecting)
		b.to(cc.conn(t, 4), ready)
		wantPick(t, b, 4)
		drained := eps(4, 5)
		drained[0].Health = picker.Draining
		b.set(configOf(firstOf(true, false, prio(drained))))
		wantConns(t, b, cc, 5)
		if cc.Opened != 3 || cc.Closed != 2 || cc.duplicate != "" {
			t.Errorf("opened %d, closed %d, twice %q; want 3, 2, none", cc.Opened, cc.Closed, cc.duplicate)
		}
	})
}

// TestPickFirstLocalities: under wrr_locality each locality has a pick_first of
// its own, and RPCs are drawn by locality weight; an endpoint that moves to
// another keeps its connection.
func TestPickFirstLocalities(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	p := prio(eps(1, 2), eps(3, 4))
	p.Localities[1].Weight = 3
	b.set(configOf(firstOf(false, false, p)))
	wantConns(t, b, cc, 1, 3)
	b.to(cc.conn(t, 3), ready)
	wantPick(t, b, 3)
	b.to(cc.conn(t, 1), ready)
	got := b.shares(t, 4000)
	if n := got[1]; n < 800 || n > 1200 || n+got[3] != 4000 { // seven deviations are 192
		t.Errorf("picks = %v, want 1000 and 3000", got)
	}
	b.set(configOf(firstOf(false, false, prio(eps(4, 2), eps(3, 1)))))
	wantPick(t, b, 3) // the second locality has one that is READY
	b.to(cc.conn(t, 4), ready)
	wantPick(t, b, 3, 4)
	wantConns(t, b, cc, 3, 4)
}

// TestPickFirstAddresses: endpoints' addresses are tried in order, and that which
// answers is the endpoint's (A61).
func TestPickFirstAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		list := eps(1, 3)
		list[0].Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{addr(2)}}
		b.set(configOf(clusterOf("c", prio(list)))) // with several addresses already
		b.set(configOf(firstOf(true, false, prio(list))))
		b.to(cc.conn(t, 1), failure)
		b.to(cc.conn(t, 2), ready)
		wantPick(t, b, 2)
		wantConns(t, b, cc, 2)
		if e := b.clusters["c"].inUse.localities[0].endpoints[0]; e.Connectivity != picker.Ready {
			t.Errorf("the endpoint is %v, want READY", e.Connectivity)
		}
		b.to(cc.conn(t, 2), idle)
		wantPick(t, b)
		b.calm()
		b.to(cc.conn(t, 1), ready)
		wantPick(t, b, 1)
		b.set(configOf(clusterOf("c", prio(list))))
		if e := b.clusters["c"].inUse.localities[0].endpoints[0]; !e.conn.multiAddress() {
			t.Error("the endpoint's addresses are not tried in turn after the change of policy")
		}
		b.set(configOf(clusterOf("c", prio(eps(9)))))
		b.flush()
		wantConns(t, b, cc, 9)
	})
}

// TestWeightedShuffle is A113 (T-PF-1): with shuffle_address_list an endpoint comes
// first with a chance in proportion to locality weight and share of its locality.
func TestWeightedShuffle(t *testing.T) {
	p := prio(eps(1, 2), eps(3))
	p.Localities[0].Weight, p.Localities[1].Weight = 2, 1
	edit(&p, 0, func(e *picker.Endpoint) { e.Weight = 3 })
	const n = 3000
	first := map[int]int{}
	for range n {
		b, cc := newTestLB(t, Config{})
		b.set(configOf(firstOf(true, true, p)))
		first[cc.open(4)[0]]++
		b.Close()
	}
	for i, share := range map[int]float64{1: 1. / 2, 2: 1. / 6, 3: 1. / 3} {
		want := share * n
		if sigma := math.Sqrt(want * (1 - share)); math.Abs(float64(first[i])-want) > 7*sigma {
			t.Errorf("endpoint %d came first %d times of %d, want about %.0f", i, first[i], n, want)
		}
	}
}

// TestPickFirstEjection: outlier detection leaves pick_first alone, which has no
// other endpoint to send RPCs to.
func TestPickFirstEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := connected(t, detecting(firstOf(true, false, prio(eps(1, 2)))), 1)
		b.flush()
		b.load(t, 60, 1)
		kit.Pass(11 * time.Second)
		wantPick(t, b, 1)
	})
}

// TestAddressesReordered: pick_first learns of another order of an endpoint's
// addresses (A61), and the connection stays.
func TestAddressesReordered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		first := eps(2)
		first[0].Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{addr(102)}}
		b.set(configOf(clusterOf("c", prio(first))))
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
