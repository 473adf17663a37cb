// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "testing"

// A55, T-DROP-2, T-CB-1: an RPC whose endpoint is known is dropped and refused as
// by a pick, and counts as one.
func TestAdmit(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 1)))
	w.leaf(0).Drops = []Drop{{"none", 0}, {"half", 500000}}
	w.leaf(0).MaxRequests = 2
	w.renew(0)
	s := w.build(t)
	rng := newRand(2)
	for range 10000 {
		r := rng.Uint64()
		got := s.Admit(0, r)
		if got.Outcome == Picked {
			w.flat(0)[1].Begin()
		}
		// A pick with the same word fares the same, but for what it takes.
		if want := s.PickCluster(bg, -1, 0, r); want.Outcome != got.Outcome && (got.Outcome != Picked || want.Outcome != Overloaded) {
			t.Fatalf("Admit says %+v, and a pick %+v", got, want)
		} else if want.Outcome == Dropped && want.Index != got.Index {
			t.Fatalf("Admit drops by category %d, and a pick by %d", got.Index, want.Index)
		} else if want.Outcome == Picked {
			w.flat(0)[want.Index].Finish(CallVoid)
		}
	}
	if n := w.breakers[0].InFlight(); n != 2 {
		t.Errorf("%d RPCs are in flight, want the breaker's 2", n)
	}
	w.flat(0)[1].Finish(CallOK)
	w.flat(0)[1].Finish(CallOK)
	if got := w.states[0].Localities[0].Load.Snapshot(); got.OK != 2 || got.InProgress != 0 {
		t.Errorf("at rest: %+v", got)
	}
	if got := s.Admit(7, 0); got.Outcome != NoRoute {
		t.Errorf("a cluster that is not there: %+v", got)
	}
	w.flat(0)[0].Connectivity, w.flat(0)[1].Connectivity = TransientFailure, TransientFailure
	w.states[0].Version++
	w.states[0].Failed = true
	if got := w.build(t).Admit(0, 0); got.Outcome != Failed {
		t.Errorf("a cluster that failed: %+v", got)
	}
}
