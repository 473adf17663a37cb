// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"testing"
	"unsafe"

	"github.com/xdslb/xdslb/picker"
)

// TestDrainedStaysDown: a draining endpoint that loses its connection gets no other
// (A27-CLA-8), until it drains no more.
func TestDrainedStaysDown(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	b.Update(configOf(clusterOf("c", prio(eps(1, 2)))))
	for n := 1; n <= 2; n++ {
		cc.conn(t, n).to(ready)
	}
	drained := eps(1, 2)
	drained[0].Health = picker.Draining
	b.Update(configOf(clusterOf("c", prio(drained))))
	b.flush()
	wantPick(t, b, 2)
	if !cc.has(1) {
		t.Error("the connection of an endpoint that drains was closed, with its RPCs")
	}
	cc.conn(t, 1).to(idle)
	b.flush()
	if cc.has(1) {
		t.Error("the drained endpoint goes on connecting")
	}
	b.Update(configOf(clusterOf("c", prio(eps(1, 2)))))
	b.flush()
	if cc.conn(t, 1).connects != 1 {
		t.Error("the endpoint is not connected when it drains no more")
	}
	cc.conn(t, 1).to(ready)
	wantPick(t, b, 1, 2)
}

// TestSubsetWithoutDraining: a random subset (A68) has as many endpoints to pick as it
// should when half of all are draining.
func TestSubsetWithoutDraining(t *testing.T) {
	var numbers []int
	for i := range 20 {
		numbers = append(numbers, i+1)
	}
	list := eps(numbers...)
	for i := range 10 {
		list[i].Health = picker.Draining
	}
	c := clusterOf("c", prio(list))
	c.Leaves[0].Policy = picker.Policy{Flat: true, Subset: 2}
	for range 100 {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(c))
		if n := len(cc.open(21)); n != 2 {
			t.Fatalf("a subset of 2 has %d endpoints that do not drain", n)
		}
		b.Close()
	}
}

// TestEndpointSize keeps endpoints in their size class, which most of the memory
// per endpoint follows from.
func TestEndpointSize(t *testing.T) {
	if size := unsafe.Sizeof(endpoint{}); size > 64 {
		t.Errorf("an endpoint has %d bytes, want at most 64", size)
	}
	if size := unsafe.Sizeof(conn{}); size > 48 {
		t.Errorf("a connection has %d bytes, want at most 48", size)
	}
}

// TestUndrain: an endpoint that was drained from the beginning, and so was never
// connected to, is connected to once it is not drained any more (A27-CLA-8), in the
// priority in use and in one that was passed over for it.
func TestUndrain(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	endpoints := func(health picker.Health) [][]picker.Endpoint {
		list := [][]picker.Endpoint{eps(1, 2), eps(3)}
		list[0][1].Health, list[1][0].Health = health, health
		return list
	}
	for _, health := range []picker.Health{picker.Draining, picker.Healthy} {
		list := endpoints(health)
		b.Update(configOf(clusterOf("c", prio(list[0]), prio(list[1]))))
		if health == picker.Draining {
			cc.conn(t, 1).to(failure) // priority 1 is next, and its only endpoint is draining
		}
		b.flush()
	}
	cc.conn(t, 2).to(failure)
	cc.conn(t, 3).to(ready)
	b.flush()
	if got, err := b.pick(); got != addr(3).String() {
		t.Errorf("picked %q, %v, want endpoint 3", got, err)
	}
}
