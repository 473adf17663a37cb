// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"math/rand/v2"
	"testing"
)

// TestDistance checks which differences the comparison of samples detects.
func TestDistance(t *testing.T) {
	draw := func(rng *rand.Rand, n int, chance float64) tally {
		t := tally{"a": 0, "b": 0}
		for range n {
			if rng.Float64() < chance {
				t["a"]++
			} else {
				t["b"]++
			}
		}
		return t
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var alarms int
	for range 10_000 {
		if distance(draw(rng, firstSample, 0.3), draw(rng, firstSample, 0.3)) > odd {
			alarms++
		}
		if d := distance(draw(rng, secondSample, 0.3), draw(rng, secondSample, 0.3)); d > different {
			t.Errorf("samples of the same are %.1f apart", d)
		}
	}
	if alarms > 200 {
		t.Errorf("%d of 10,000 first samples of the same looked odd", alarms)
	}
	if d := distance(tally{"a": firstSample}, tally{"b": firstSample}); d < different {
		t.Errorf("one and another are %.1f apart", d)
	}
	if d := distance(tally{"a": firstSample}, tally{"a": firstSample / 2, "b": firstSample / 2}); d < odd {
		t.Errorf("all and a half are %.1f apart", d)
	}
	if d := distance(draw(rng, secondSample, 0.5), draw(rng, secondSample, 0.75)); d < different {
		t.Errorf("a half and three quarters are %.1f apart", d)
	}
}
