// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The expected values are half of the two-sided asymptotic ones that SciPy's
// documentation of mannwhitneyu has for its example, and a count by hand.
func TestSlower(t *testing.T) {
	males, females := []float64{19, 22, 16, 29, 24}, []float64{20, 11, 17, 12}
	if got, want := slower(females, males), 0.11134688653314041/2; math.Abs(got-want) > 1e-12 {
		t.Errorf("p = %.17g, want %.17g", got, want)
	}
	same := []float64{5, 5, 5, 5}
	if got := slower(same, same); got != 1 {
		t.Errorf("p of equal constants = %v, want 1", got)
	}
}

// With ties the approximation has to agree with the exact distribution of ranks
// under permutation, which is found here by drawing permutations.
func TestSlowerTies(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 1))
	all := []float64{1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 9, 9, 10, 11, 12}
	a, b := []float64{1, 2, 2, 3, 4, 6, 6, 8, 9, 9}, []float64{3, 3, 4, 5, 7, 8, 9, 10, 11, 12}
	wins := func(a, b []float64) (u float64) {
		for _, x := range a {
			for _, y := range b {
				if y > x {
					u++
				} else if y == x {
					u += .5
				}
			}
		}
		return u
	}
	seen, total := 0, 200_000
	for range total {
		rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		if wins(all[:10], all[10:]) >= wins(a, b) {
			seen++
		}
	}
	if got, want := slower(a, b), float64(seen)/float64(total); math.Abs(got-want) > .05*want {
		t.Errorf("seed %d: p = %v, by permutation %v", seed, got, want)
	}
}

// noisy are measurements as a shared machine makes them: a floor, some jitter,
// and now and then something that takes much longer.
func noisy(rng *rand.Rand, n int, floor float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = math.Inf(1)
		for range repeats {
			v := floor * (1 + .05*math.Abs(rng.NormFloat64()))
			if rng.Float64() < .3 {
				v *= 1 + 2*rng.Float64()
			}
			list[i] = min(list[i], v)
		}
	}
	return list
}

// No change must pass, and 50 ns more, or one allocation, must not.
func TestJudge(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 1))
	zero := slices.Repeat([]float64{0}, 20)
	one := slices.Repeat([]float64{1}, 20)
	const rounds = 2000
	missed := 0
	for i := range rounds {
		base := &samples{ns: noisy(rng, 20, 160), allocs: zero}
		if v := judge(base, &samples{ns: noisy(rng, 20, 160), allocs: zero}); v.slower || v.allocates {
			t.Fatalf("seed %d, round %d: no change is %v", seed, i, v)
		}
		if v := judge(base, &samples{ns: noisy(rng, 20, 210), allocs: zero}); !v.slower {
			missed++
		}
		if v := judge(base, &samples{ns: noisy(rng, 20, 160), allocs: one}); !v.allocates {
			t.Fatalf("seed %d, round %d: an allocation is %v", seed, i, v)
		}
	}
	if missed > rounds/200 {
		t.Errorf("seed %d: 50 ns more pass in %d of %d comparisons", seed, missed, rounds)
	}
}
