// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"testing"
)

// D10, T-CB-1: a delegated RPC has been through drops and breaker, and is given back
// without a trace or counted where it went.
func TestCustom(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)), zone("b", 1, endpoints(1, 1, 1)))
	w.leaf(0).Policy = Policy{Kind: PolicyCustom, Flat: true, Custom: &CustomPolicy{Name: "x"}}
	w.leaf(0).MaxRequests = 2
	w.renew(0)
	s, list := w.build(t), w.flat(0)
	for range 2 {
		if got := s.Pick(bg, "/s/m", 0); got != (Result{Outcome: Delegate}) {
			t.Fatalf("%+v, want Delegate to layer 0", got)
		}
	}
	refused := s.Pick(bg, "/s/m", 0)
	if refused.Outcome != Overloaded {
		t.Errorf("%+v above the limit", refused)
	}
	s.Undo(refused)                   // means nothing
	s.Undo(Result{Outcome: Delegate}) // the first
	list[2].Begin()                   // the second
	if got := w.breakers[0].InFlight(); got != 1 {
		t.Errorf("%d RPCs are in flight, want 1", got)
	}
	list[2].Finish(CallOK)
	if got, want := list[2].load.Snapshot(), (LoadSnapshot{Issued: 1, OK: 1}); got != want || w.breakers[0].InFlight() != 0 {
		t.Errorf("counted %+v with %d in flight, want %+v", got, w.breakers[0].InFlight(), want)
	}
	if got := list[0].load.Snapshot(); got != (LoadSnapshot{}) {
		t.Errorf("the other locality counted %+v", got)
	}

	w.leaf(0).Drops = []Drop{{"all", 1e6}}
	w.renew(0)
	if got := w.build(t).Pick(bg, "/s/m", 0).Outcome; got != Dropped {
		t.Errorf("outcome %d, want Dropped", got)
	}
}

// Inside wrr_locality a locality is drawn first: of those with a READY endpoint, or
// else of those that an RPC may wake.
func TestCustomLocalities(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)), zone("b", 3, endpoints(1, 1, 1)), zone("c", 4, endpoints(3, 1)))
	w.leaf(0).Policy = Policy{Kind: PolicyCustom}
	w.leaf(0).MaxRequests = math.MaxUint32
	rng := newRand(1)
	for _, test := range []struct {
		states []Connectivity
		want   map[Result]float64
	}{
		{[]Connectivity{Ready, Idle, Ready, Ready}, map[Result]float64{{Outcome: Delegate, Index: 0}: .125, {Outcome: Delegate, Index: 1}: .375, {Outcome: Delegate, Index: 2}: .5}},
		{[]Connectivity{Idle, Connecting, Ready, Idle}, map[Result]float64{{Outcome: Delegate, Index: 1}: 1}},
		{[]Connectivity{Idle, Connecting, Idle, Connecting}, map[Result]float64{{Outcome: Delegate, Index: 0}: .25, {Outcome: Delegate, Index: 1}: .75}},
		{[]Connectivity{TransientFailure, Connecting, TransientFailure, Connecting}, map[Result]float64{{Outcome: Queue}: 1}},
		{[]Connectivity{TransientFailure, TransientFailure, TransientFailure, TransientFailure}, map[Result]float64{{Outcome: Failed}: 1}},
	} {
		for i, e := range w.flat(0) {
			e.Connectivity = test.states[i]
		}
		w.states[0].Version++
		s, counts := w.build(t), make(map[Result]float64)
		for range 10000 {
			result := s.Pick(bg, "/s/m", rng.Uint64())
			counts[result] += .0001
			s.Undo(result)
		}
		for result, share := range counts {
			if math.Abs(share-test.want[result]) > .03 {
				t.Errorf("%v: a share of %.2f is %+v, want %.2f", test.states, share, result, test.want[result])
			}
		}
		if got := w.breakers[0].InFlight(); got != 0 {
			t.Errorf("%d RPCs are in flight though all were given back", got)
		}
	}
}
