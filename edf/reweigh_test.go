// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Reweigh with the same weights, or all of them times a factor, changes nothing.
func TestReweighSame(t *testing.T) {
	for _, weights := range randomSets(scaled(100), 20) {
		c := Config{Weights: weights, Start: 5, Base: 1000}
		s, err := c.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		h, _ := c.Heap()
		for n := range 50 {
			if got, want := s.Next(), h.Next(); got != want {
				t.Fatalf("weights %v: pick %d is %d, want %d", weights, n, got, want)
			}
			if s, err = s.Reweigh(scale(weights, s.total.sum, n), s.Ticket()); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Ticket(); got != 1050 {
			t.Fatalf("Ticket() = %d, want 1050", got)
		}
	}
}

// scale returns weights, every other time doubled if their sum allows.
func scale(weights []uint32, sum uint64, n int) []uint32 {
	weights = slices.Clone(weights)
	for i := range weights {
		if n%2 == 0 && sum < 1<<30 {
			weights[i] *= 2
		}
	}
	return weights
}

// A changed weight does not move the next pick of other endpoints: endpoints of equal weight
// continue in turn, although the greatest common divisor changes and with it the period.
func TestReweighKeepsPlace(t *testing.T) {
	weights := slices.Repeat([]uint32{100}, 1000)
	s, err := NewSchedule(weights, 0)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 500 {
		if s.Next() != n {
			t.Fatalf("pick %d is not %d", n, n)
		}
	}
	weights[999] = 101
	s, err = s.Reweigh(weights, s.Ticket())
	if err != nil {
		t.Fatal(err)
	}
	// The heavier one now comes first in each round, so it counts among the 500 that have had
	// their turn, in place of the last of them.
	for n := range 500 {
		want := 499 + n
		if got := s.Next(); got != want {
			t.Fatalf("pick %d after the update is %d, want %d", n, got, want)
		}
	}
}

// Only the place in the period counts, not how many have passed.
func TestReweighAfterPeriods(t *testing.T) {
	old, changed := []uint32{30, 60, 0, 20}, []uint32{31, 60, 10, 20} // of period 11 and 121
	for place := range uint64(11) {
		var want []int
		for periods := range uint64(4) {
			s, err := NewSchedule(old, 0)
			if err != nil {
				t.Fatal(err)
			}
			if s, err = s.Reweigh(changed, periods*11+place); err != nil {
				t.Fatal(err)
			}
			got := take(s.Next, 121)
			if periods == 0 {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%d periods and %d picks: different sequence", periods, place)
			}
		}
	}
}

// Updates may come more often than picks get round: every endpoint still has its share.
// (Envoy starved light ones, pull request 10064; so does a fresh start at zero each time.)
func TestReweighOften(t *testing.T) {
	oneGoroutine(t)
	for _, every := range []int{1, 3, 10, 100} {
		r := rand.New(rand.NewPCG(10064, uint64(every)))
		weights := make([]uint32, 110)
		for i := range weights {
			weights[i] = 128
			if i >= 100 {
				weights[i] = 10
			}
		}
		s, err := Config{Weights: weights, Start: r.Uint64()}.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		had, due := make([]float64, len(weights)), make([]float64, len(weights))
		for n := range 40_000 {
			had[s.Next()]++
			for i, w := range weights {
				due[i] += float64(w) / float64(s.total.sum)
			}
			if n%every == 0 {
				i := r.IntN(len(weights))
				weights[i] += weights[i]/10 - 2*weights[i]/10*r.Uint32N(2)
				if s, err = s.Reweigh(weights, s.Ticket()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range had {
			if off := max(had[i]/due[i], due[i]/had[i]); off > 1.4 {
				t.Errorf("update every %d picks: %d was picked %v times, its share is %.1f", every, i, had[i], due[i])
			}
		}
	}
}
