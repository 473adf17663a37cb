// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// TestReplacementMeets: whatever an endpoint goes through while its replacement
// connects, that takes over when it is READY if the endpoint is to be connected then,
// and is shut down otherwise.
func TestReplacementMeets(t *testing.T) {
	drained := eps(1, 2)
	drained[0].Health = picker.Draining
	for _, tt := range []struct {
		name       string
		from, to   *picker.Cluster
		over, gone bool // whether it takes over, whether the endpoint keeps no connection
	}{
		{"removal", clusterOf("c", prio(eps(1, 2))), clusterOf("c", prio(eps(2))), false, true},
		{"a move to another locality", clusterOf("c", prio(eps(1, 2))), clusterOf("c", prio(eps(2), eps(1))), true, false},
		{"a move to another priority", clusterOf("c", prio(eps(1, 2)), prio(eps(3))), clusterOf("c", prio(eps(2)), prio(eps(1))), true, false},
		{"draining", clusterOf("c", prio(eps(1, 2))), clusterOf("c", prio(drained)), false, false},
		{"draining and a move", clusterOf("c", prio(eps(1, 2))), clusterOf("c", prio(nil, drained)), false, false},
		{"a switch to a custom policy", clusterOf("c", prio(eps(1, 2))), customOf(true, stubA, `{}`, prio(eps(1, 2))), true, false},
		{"a switch from a custom policy", customOf(true, stubA, `{}`, prio(eps(1, 2))), clusterOf("c", prio(eps(1, 2))), true, false},
		{"a switch of custom policies", customOf(true, stubA, `{}`, prio(eps(1, 2))), customOf(true, stubB, `{}`, prio(eps(1, 2))), true, false},
		{"a switch to ring_hash", clusterOf("c", prio(eps(1, 2))), ring(clusterOf("c", prio(eps(1, 2)))), true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplacing(t, Config{})
				r.use(tt.from)
				old := []*fakeConn{r.cc.conn(t, 1), r.cc.conn(t, 2)}
				for _, sc := range old {
					r.to(sc, ready)
				}
				changed := *tt.from
				changed.Leaves = []picker.Leaf{tt.from.Leaves[0]}
				r.change(&changed)
				fresh := r.next(1, old[0])
				second := r.next(2, old[1])
				r.to(fresh, connecting)
				r.to(second, ready)
				r.use(tt.to)
				r.wantShut(tt.gone, old[0])
				r.to(fresh, ready)
				r.wantShut(tt.over || tt.gone, old[0])
				r.wantShut(!tt.over, fresh)
				r.wantShut(false, second)
				if _, err := r.pick(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestReplacementAfterDraining (A27-CLA-8): a draining endpoint gets no new connection,
// and is connected to by the latest settings when it comes back.
func TestReplacementAfterDraining(t *testing.T) {
	drained := eps(1, 2)
	drained[0].Health = picker.Draining
	for i, back := range []*picker.Cluster{clusterOf("c", prio(eps(1, 2))), clusterOf("c", prio(eps(2), eps(1)))} {
		r := newReplacing(t, Config{})
		r.use(clusterOf("c", prio(eps(1, 2))))
		old := r.cc.conn(t, 1)
		r.to(old, ready)
		if i == 0 {
			r.use(clusterOf("c", prio(drained)))
			r.change(clusterOf("c", prio(drained)))
			if sc := r.cc.conn(t, 1); sc != old {
				t.Fatal("a draining endpoint was connected to")
			}
		} else {
			r.change(clusterOf("c", prio(eps(1, 2))))
			abandoned := r.next(1, old)
			r.use(clusterOf("c", prio(drained)))
			r.wantShut(true, abandoned)
		}
		r.use(back)
		fresh := r.next(1, old)
		r.wantServing(old)
		r.to(fresh, ready)
		r.wantServing(fresh)
		r.wantShut(true, old)
	}
}

// TestReplacementReports (A58): reports out of band come over the connection in force.
func TestReplacementReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplacing(t, Config{})
		list := func() *picker.Cluster {
			c := clusterOf("c", prio(eps(1)))
			c.Leaves[0].Policy = picker.Policy{Kind: picker.PolicyClientWRR, WRR: &picker.ClientWRR{OutOfBand: true, OOBPeriod: 1e9}}
			return c
		}
		r.use(list())
		old := r.cc.conn(t, 1)
		r.to(old, ready)
		since := r.clusters["c"].inUse.localities[0].endpoints[0].StateSince
		kit.Pass(1e9)
		r.change(list())
		fresh := r.next(1, old)
		r.to(fresh, ready)
		r.wantServing(fresh)
		synctest.Wait()
		if r.cc.streams != 1 || r.cc.streamed != 2 {
			t.Errorf("%d streams of reports of %d, want 1 of 2", r.cc.streams, r.cc.streamed)
		}
		if e := r.clusters["c"].inUse.localities[0].endpoints[0]; e.StateSince != since {
			t.Error("the endpoint's slow start restarted")
		}
	})
}

// TestReplacementOfProducers (A52): a child policy that has a producer on a connection
// sees it lost and come back; one that listens to its health goes on to do so.
func TestReplacementOfProducers(t *testing.T) {
	r := newReplacing(t, Config{})
	_ = built()
	r.use(customOf(true, stubA, `{}`, prio(eps(1))))
	s := one(t)
	old := r.cc.conn(t, 1)
	r.to(old, ready)
	h := s.conns[old.addr].(*childSubConn)
	heard := 0
	h.RegisterHealthListener(func(balancer.SubConnState) { heard++ })
	r.calm()
	r.change(customOf(true, stubA, `{}`, prio(eps(1))))
	fresh := r.next(1, old)
	r.to(fresh, ready)
	r.wantServing(fresh)
	if heard != 2 {
		t.Errorf("the policy heard %d times of the backend's health, want 2", heard)
	}
	_, stop := h.GetOrBuildProducer(noProducer{})
	defer stop()
	r.change(customOf(true, stubA, `{}`, prio(eps(1))))
	third := r.next(1, fresh)
	s.mu.Lock()
	reports := s.states[old.addr]
	s.states[old.addr] = connectivity.Shutdown // overwritten, so that the next report is visible
	s.mu.Unlock()
	r.to(third, ready)
	r.wantServing(third)
	if s.states[old.addr] != connectivity.Ready || reports != connectivity.Ready {
		t.Errorf("the policy sees the connection %v, want READY again", s.states[old.addr])
	}
	r.change(customOf(true, stubA, `{}`, prio(eps(1))))
	fourth := r.next(1, third)
	s.mu.Lock()
	s.states[old.addr] = connectivity.Shutdown
	s.mu.Unlock()
	r.to(fourth, ready)
	r.wantServing(fourth)
	if s.states[old.addr] != connectivity.Shutdown {
		t.Error("the policy is disturbed though it has no producer")
	}
	h.RegisterHealthListener(func(balancer.SubConnState) { heard++ })
	r.calm()
	r.to(fourth, idle)
	r.to(fourth, ready)
	r.change(customOf(true, stubA, `{}`, prio(eps(1))))
	r.to(r.next(1, fourth), ready)
	if heard != 3 {
		t.Errorf("the policy heard %d times of the backend's health, of which it asked for 3", heard)
	}
}

// TestReplacementOfChildren (A52): further connections of a child policy, besides the one of each
// endpoint, are replaced as well, also if the endpoint moves to another locality of the group with
// the same update.
func TestReplacementOfChildren(t *testing.T) {
	for name, localities := range map[string][][]picker.Endpoint{"in place": {several(1)}, "a move": {nil, several(1)}} {
		t.Run(name, func(t *testing.T) {
			r := newReplacing(t, Config{})
			list := func(localities ...[]picker.Endpoint) *picker.Cluster {
				return customOf(true, stubA, `{}`, prio(localities...))
			}
			r.use(list(several(1)))
			old := []*fakeConn{r.cc.conn(t, 1), r.cc.conn(t, 101)}
			for _, sc := range old {
				r.to(sc, ready)
			}
			r.wantServing(old...)
			r.change(list(localities...))
			fresh := []*fakeConn{r.next(1, old[0]), r.next(101, old[1])}
			r.wantServing(old...)
			for _, sc := range fresh {
				r.to(sc, ready)
			}
			r.wantServing(fresh...)
			r.wantShut(true, old...)
		})
	}
}

// TestReplacementOfKeptAddress: a connection that a child keeps is replaced, though the
// update that changes the TLS settings gives its endpoint another address besides, and so
// makes it another endpoint.
func TestReplacementOfKeptAddress(t *testing.T) {
	r := newReplacing(t, Config{})
	list := func(endpoints []picker.Endpoint) *picker.Cluster {
		return customOf(true, stubA, `{}`, prio(endpoints))
	}
	r.use(list(eps(1)))
	old := r.cc.conn(t, 1)
	r.to(old, ready)
	r.change(list(several(1)))
	fresh := r.next(1, old)
	r.to(fresh, ready)
	r.wantShut(true, old)
}

// noProducer builds nothing.
type noProducer struct{}

func (noProducer) Build(any) (balancer.Producer, func()) { return nil, func() {} }
