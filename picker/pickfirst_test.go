// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "testing"

// A62: RPCs stick to one endpoint until it is READY no more, and then go to the
// first in the list that is, also if the list has changed meanwhile.
func TestPickFirst(t *testing.T) {
	for _, flat := range []bool{true, false} {
		w := newWorld(zone("a", 1, endpoints(0, 5, 1)), zone("b", 1, endpoints(2, 9, 1)))
		if !flat {
			w = newWorld(zone("a", 1, endpoints(0, 5, 1, 9, 1)))
		}
		w.leaf(0).Policy = Policy{Kind: PolicyPickFirst, Flat: flat}
		list := w.flat(0)
		step := func(want string, states ...Connectivity) {
			t.Helper()
			for i, s := range states {
				list[i].Connectivity = s
			}
			w.states[0].Version++
			if got := picks(t, w.build(t), 3); got != want {
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
		if got := list[3].load.Snapshot().Issued; flat && got != 9 || !flat && got != 12 {
			t.Errorf("flat %t: %d RPCs were counted at the endpoint's locality", flat, got)
		}
		list[3].Connectivity = Connecting
		w.states[0].Version++
		if got := w.build(t).Pick(bg, "/s/m", 0); got != (Result{Outcome: Queue}) {
			t.Errorf("flat %t: %+v with nothing READY, want Queue", flat, got)
		}
	}
}
