// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// The place in a flat sequence outlasts snapshots, old and new ones draw from the
// same, and weights may change meanwhile (D2, D9).
func TestFlatKeepsPlace(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 1)), zone("b", 1, endpoints(2, 1, 1)))
	w.leaf(0).Policy.Flat = true
	old := w.build(t)
	s := w.rebuild(t)
	got := ""
	for i := range 8 {
		got += picks(t, []*Snapshot{old, s}[i%2], 1)
	}
	if want := "abcdabcd"; got != want {
		t.Errorf("two snapshots in turn pick %s, want %s", got, want)
	}

	picks(t, s, 3)
	for _, e := range w.flat(0) {
		e.Connectivity = Connecting
	}
	w.rebuild(t) // nothing to pick, for a while
	for _, e := range w.flat(0) {
		e.Connectivity = Ready
	}
	w.rebuild(t)
	if got, want := w.snapshot.clusters.At(0).cursor.issued.Load(), uint64(11); got != want {
		t.Errorf("the count is %d after an interruption, want %d", got, want)
	}

}

// The place of a sequence is a count, so one that is counted elsewhere is another
// sequence, though it be of the same endpoints.
func TestFlatChangesCount(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 2, 4)))
	w.leaf(0).Policy.Flat = true
	before := w.build(t).clusters.At(0).groups[0].schedule
	w.leaf(0).Priorities = []Priority{{Localities: []Locality{w.leaf(0).Priorities[0].Localities[0], zone("b", 1, nil)}}}
	w.renew(0)
	if w.build(t).clusters.At(0).groups[0].schedule == before {
		t.Error("the sequence goes on with another count")
	}
	if got, want := picks(t, w.snapshot, 7), "cbccabc"; got != want {
		t.Errorf("picks %s, want %s", got, want)
	}
}

// Build does not modify its inputs.
func TestFlatDoesNotWrite(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)), zone("b", 1, endpoints(1, 1)))
	w.leaf(0).Policy.Flat = true
	l := w.states[0].Localities
	spare := new(EndpointState)
	a := append(StateSlice{l[0].Endpoints.State(0)}, spare)
	l[0].Endpoints = a[:1]
	w.build(t)
	if a[1] != spare || l[1].Endpoints.State(0) == spare {
		t.Error("a build wrote behind a slice of endpoints")
	}
}

// A build copies the endpoints of a layer once, however many localities it has.
func TestFlatAllocs(t *testing.T) {
	build := func(n int) float64 {
		var localities []Locality
		for i := range n {
			localities = append(localities, zone(fmt.Sprint(i), 1, endpoints(i, 1)))
		}
		w := newWorld(localities...)
		w.leaf(0).Policy.Flat = true
		return testing.AllocsPerRun(10, func() {
			w.rebuild(t)
		})
	}
	if few, many := build(3), build(200); many > few+5 {
		t.Errorf("with 200 localities a build allocates %v times, with 3 %v", many, few)
	}
}

// TestLargeWeights checks that weights whose sum exceeds the limit of a sequence are picked in
// proportion, both for localities in one layer, each of which keeps within the limit of
// T-EDS-3, and for a locality that does not come from EDS.
func TestLargeWeights(t *testing.T) {
	const most = math.MaxUint32
	for _, w := range []*world{
		newWorld(zone("a", 1, endpoints(0, most)), zone("b", 1, endpoints(1, most/2, 1)), zone("c", 1, endpoints(3, most/2))),
		newWorld(zone("a", 1, endpoints(0, most, most/2, 1, most/2))),
	} {
		w.leaf(0).Policy.Flat = len(w.leaf(0).Priorities[0].Localities) > 1
		s := w.build(t)
		kit.Must(t, s.ClusterErr(0))
		counts := make([]int, 4)
		for i := range uint64(4000) {
			r := s.Pick(bg, "/s/m", i)
			counts[r.Index]++
			w.flat(0)[r.Index].Finish(CallOK)
		}
		for i, want := range []int{2000, 1000, 0, 1000} {
			if n := counts[i]; n < want-2 || n > want+2 {
				t.Errorf("endpoint %d has %d of 4000 picks, want %d", i, n, want)
			}
		}
	}
}

// A62: RPCs stick to one endpoint until it is READY no more, and then go to the
// first in the list that is, also if the list has changed meanwhile.
func TestPickFirst(t *testing.T) {
	for _, flat := range []bool{true, false} {
		w := newWorld(zone("a", 1, endpoints(0, 5, 1)), zone("b", 1, endpoints(2, 9, 1)))
		if !flat {
			w = newWorld(zone("a", 1, endpoints(0, 5, 1, 9, 1)))
		}
		w.leaf(0).Policy = Policy{Kind: PolicyPickFirst, First: &PickFirst{}, Flat: flat}
		list := w.flat(0)
		step := func(want string, states ...Connectivity) {
			t.Helper()
			for i, s := range states {
				list[i].Connectivity = s
			}
			if got := picks(t, w.rebuild(t), 3); got != want {
				t.Errorf("flat %t, states %v: picks %s, want %s", flat, states, got, want)
			}
		}
		step("ccc", Idle, TransientFailure, Ready, Ready)
		step("ccc", Ready, Ready, Ready, Ready)
		step("aaa", Ready, Ready, Idle, Ready)
		step("ddd", Connecting, TransientFailure, Idle, Ready)
		if w.snapshot.NeedsRandom() {
			t.Errorf("flat %t: one endpoint takes a random word", flat)
		}
		if got := list[3].binding.load.Snapshot().Issued; flat && got != 9 || !flat && got != 12 {
			t.Errorf("flat %t: %d RPCs were counted at the endpoint's locality", flat, got)
		}
		list[3].Connectivity = Connecting
		if got := w.rebuild(t).Pick(bg, "/s/m", 0); got != (Result{Outcome: Queue}) {
			t.Errorf("flat %t: %+v with nothing READY, want Queue", flat, got)
		}
	}
}

// TestChosenEndpoints checks that RPCs to endpoints that the caller chose, as for sessions and
// attempts that avoid an endpoint, take no position in the sequence of other RPCs: after any
// number of picks, each endpoint of equal weight has the same number, give or take one (EDF-2).
func TestChosenEndpoints(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 1)))
	s, list := w.build(t), w.flat(0)
	var got [2]int
	for range 1000 {
		first := s.Pick(bg, "/s/m", 0).Index
		got[first]++
		list[first].Finish(CallOK)
		s.PickEndpoint(0, 0, 1, list[1], 0) // of a session
		list[1].Finish(CallOK)
	}
	if d := got[0] - got[1]; d < -1 || d > 1 {
		t.Errorf("2 endpoints get %v picks while every second RPC belongs to a session", got)
	}

	w = newWorld(zone("a", 1, endpoints(0, 1, 1, 1, 1)))
	s, list = w.build(t), w.flat(0)
	var moved [4]int
	for range 1000 {
		i := s.Pick(bg, "/s/m", 0).Index
		moved[i]++
		list[i].MoveTo(list[3-i])
		list[3-i].Finish(CallOK)
	}
	if moved != [4]int{250, 250, 250, 250} {
		t.Errorf("4 endpoints get %v picks while all RPCs move to another endpoint", moved)
	}
	load := w.states[0].Localities[0].Load.Snapshot()
	if load != (LoadSnapshot{Issued: 1000, OK: 1000}) {
		t.Errorf("the locality has load %+v, want 1000 RPCs issued and OK", load)
	}
}
