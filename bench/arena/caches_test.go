// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestCaches checks that a server that joins gets no RPCs before, that hashing by key finds cached keys while
// random does not, and that the fraction of hits in the worst second is that after the join.
func TestCaches(t *testing.T) {
	f := small(func(f *Fleet) {
		f.Keys, f.Joins, f.Load = 600, true, .3
		f.Warm, f.Run = 8*time.Second, 6*time.Second
		f.Bad, f.BadFrom, f.BadTo = []int{f.Servers - 1}, 8*time.Second, 10*time.Second
		f.Script = func(f *Fleet, _ *rand.Rand) []Event {
			return []Event{stopAt(0, "", f.Servers-1, false), startAt(10*time.Second, "joins", f.Servers-1, false)}
		}
	})
	random, maglev := played(t, f, row(t, "anchor random")), played(t, f, row(t, "ours maglev of keys"))
	if random.Hits > .5 || maglev.Hits < .7 || maglev.WorstHits > maglev.Hits-.02 {
		t.Errorf("hits %.2f of random, %.2f of maglev, of which %.2f in the worst second", random.Hits, maglev.Hits, maglev.WorstHits)
	}
	if maglev.BadShare > 0 || maglev.Utilisation[f.Servers-1] == 0 {
		t.Errorf("the server that joins gets %.3f of the RPCs before, and is used for %.3f", maglev.BadShare, maglev.Utilisation[f.Servers-1])
	}
}
