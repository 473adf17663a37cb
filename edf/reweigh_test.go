// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/kit/slow"
)

// Weights that only change their scale continue the sequence.
func TestReweighScale(t *testing.T) {
	weights := []uint32{3, 0, 7, 1}
	s, err := Config{Weights: weights}.Schedule()
	kit.Must(t, err)
	want := slow.NewEDF(weights).Take(50)
	for n := range want {
		if got := s.At(uint64(n)); got != want[n] {
			t.Fatalf("pick %d is %d, want %d", n, got, want[n])
		}
		if s, err = s.Reweigh([]uint32{3 << (n % 2), 0, 7 << (n % 2), 1 << (n % 2)}, uint64(n)+1); err != nil {
			t.Fatal(err)
		}
	}
}

// A changed weight does not move the next pick of other endpoints: endpoints of equal weight
// continue in turn, although the greatest common divisor changes and with it the period.
func TestReweighKeepsPlace(t *testing.T) {
	weights := slices.Repeat([]uint32{100}, 1000)
	s, err := Config{Weights: weights}.Schedule()
	kit.Must(t, err)
	for n := range 500 {
		if s.At(uint64(n)) != n {
			t.Fatalf("pick %d is not %d", n, n)
		}
	}
	weights[999] = 101
	s, err = s.Reweigh(weights, 500)
	kit.Must(t, err)
	// The heavier one now comes first in each round, so it counts among the 500 that have had
	// their turn, in place of the last of them.
	for n := range 500 {
		want := 499 + n
		if got := s.At(uint64(500 + n)); got != want {
			t.Fatalf("pick %d after the update is %d, want %d", n, got, want)
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
		kit.Must(t, err)
		had, due := make([]float64, len(weights)), make([]float64, len(weights))
		for n := range 40_000 {
			had[s.At(uint64(n))]++
			for i, w := range weights {
				due[i] += float64(w) / float64(s.total.sum)
			}
			if n%every == 0 {
				i := r.IntN(len(weights))
				weights[i] += weights[i]/10 - 2*weights[i]/10*r.Uint32N(2)
				if s, err = s.Reweigh(weights, uint64(n)+1); err != nil {
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
