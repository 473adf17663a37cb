// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/edf"
)

// weightSeeds are lists of weights, and why each is of interest.
var weightSeeds = [][]uint32{
	{},                                // nothing to pick
	{0, 0},                            // likewise
	{1},                               // always the same
	{0, 7, 0},                         // likewise, at another index
	{5, 5, 5},                         // round robin (EDF-13)
	{1, 2, 3},                         // ties at the end of each period (EDF-6)
	{6, 0, 4, 10},                     // a common factor
	{1000, 1, 1, 1},                   // a long run (T-EDF-3)
	{3, 7, 3, 7, 3},                   // classes
	{math.MaxUint32},                  // the largest
	{math.MaxUint32 - 1, 1},           // the largest sum, and a period of 2^32-1
	{math.MaxUint32, 1},               // one more
	{1 << 31, 1<<31 - 1},              // deadlines that differ in the last bit
	{65521, 65519, 32749, 49999, 3},   // primes: a period too long for a table
	{49, 1, 1, 1, 1, 1, 1, 1, 1, 1},   // where 1/w in floating point goes wrong (T-EDF-1)
	{4294967291, 2, 0, 1},             // a prime near the top
	{1 << 30, 1 << 20, 1 << 10, 1, 1}, // every magnitude
}

func encodeWeights(weights []uint32) (b []byte) {
	for _, w := range weights {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

// decodeWeights reads at most 40 weights, of four bytes each.
func decodeWeights(b []byte) (weights []uint32) {
	for len(b) >= 4 && len(weights) < 40 {
		weights, b = append(weights, binary.LittleEndian.Uint32(b)), b[4:]
	}
	return weights
}

// validWeights reports whether there is something to pick, and the sum is within
// its bound (T-EDS-3).
func validWeights(weights []uint32) bool {
	sum := uint64(0)
	for _, w := range weights {
		sum += uint64(w)
	}
	return sum > 0 && sum <= math.MaxUint32
}

// slowEDF returns the first n picks of weights: endpoint i falls due at 1/w, 2/w
// and so on, and of several the first is picked (EDF-4 to EDF-8).
func slowEDF(weights []uint32, n int) (picks []int) {
	due := make([]*big.Rat, len(weights))
	for i, w := range weights {
		if w > 0 {
			due[i] = big.NewRat(1, int64(w))
		}
	}
	for range n {
		best := -1
		for i := range due {
			if due[i] != nil && (best < 0 || due[i].Cmp(due[best]) < 0) {
				best = i
			}
		}
		picks = append(picks, best)
		due[best].Add(due[best], big.NewRat(1, int64(weights[best])))
	}
	return picks
}

// next returns n picks.
func next(n int, pick func() int) []int {
	picks := make([]int, n)
	for i := range picks {
		picks[i] = pick()
	}
	return picks
}

// checkShares checks that in one period of a sequence every endpoint has the picks
// that its weight stands for, if the period is not too long.
func checkShares(t *testing.T, weights []uint32, period uint64, pick func() int) {
	t.Helper()
	sum := uint64(0)
	for _, w := range weights {
		sum += uint64(w)
	}
	if period == 0 || sum%period != 0 {
		t.Fatalf("weights %v have period %d", weights, period)
	}
	if period > 4096 {
		return
	}
	count := make([]uint64, len(weights))
	for range period {
		count[pick()]++
	}
	for i, w := range weights {
		if count[i] != uint64(w)/(sum/period) {
			t.Fatalf("weights %v have %d picks in a period of %d", weights, count, period)
		}
	}
}

// FuzzHeap compares a Heap with rational numbers: from the start, after Seek, and over a
// period.
func FuzzHeap(f *testing.F) {
	for i, w := range weightSeeds {
		f.Add(encodeWeights(w), uint64(i)<<58|77)
	}
	f.Fuzz(func(t *testing.T, list []byte, at uint64) {
		weights := decodeWeights(list)
		h, err := edf.NewHeap(weights)
		if (err == nil) != validWeights(weights) {
			t.Fatalf("weights %v: error is %v", weights, err)
		}
		if err != nil {
			return
		}
		want := slowEDF(weights, 300)
		if got := next(300, h.Next); !slices.Equal(got, want) {
			t.Fatalf("weights %v:\npicks %v\nwant  %v", weights, got, want)
		}
		near := int(at % 250)
		h.Seek(uint64(near))
		if got := next(300-near, h.Next); !slices.Equal(got, want[near:]) {
			t.Fatalf("weights %v after Seek(%d):\npicks %v\nwant  %v", weights, near, got, want[near:])
		}
		h.Seek(at % h.Period())
		want = next(50, h.Next)
		h.Seek(at)
		if got := next(50, h.Next); !slices.Equal(got, want) {
			t.Fatalf("weights %v after Seek(%d), with period %d:\npicks %v\nwant  %v", weights, at, h.Period(), got, want)
		}
		checkShares(t, weights, h.Period(), h.Next)
	})
}

// FuzzSchedule compares a Schedule with a Heap at the same place, by tickets in
// order and by Next, and over a period after Reweigh.
func FuzzSchedule(f *testing.F) {
	for i, w := range weightSeeds {
		f.Add(encodeWeights(w), uint64(i), uint64(0), encodeWeights(weightSeeds[max(0, i-1)]))
		f.Add(encodeWeights(w), uint64(i)<<58|77, uint64(1)<<40, encodeWeights(w))
	}
	f.Fuzz(func(t *testing.T, list []byte, start, base uint64, others []byte) {
		weights := decodeWeights(list)
		base %= 1 << 62 // a counter does not get further
		c := edf.Config{Weights: weights, Start: start, Base: base}
		s, err := c.Schedule()
		if (err == nil) != validWeights(weights) {
			t.Fatalf("weights %v: error is %v", weights, err)
		}
		if err != nil {
			return
		}
		h, err := c.Heap()
		if err != nil || h.Period() != s.Period() {
			t.Fatalf("%+v: periods are %d and %d, %v", c, h.Period(), s.Period(), err)
		}
		want := next(200, h.Next)
		if start < 100 {
			if slow := slowEDF(weights, int(start)+200)[start:]; !slices.Equal(want, slow) {
				t.Fatalf("%+v:\npicks %v\nwant  %v", c, want, slow)
			}
		}
		if got := next(100, s.Next); !slices.Equal(got, want[:100]) {
			t.Fatalf("%+v:\npicks %v\nwant  %v", c, got, want[:100])
		}
		ticket := s.Ticket()
		if ticket != base+100 || s.Place(ticket) != (start%s.Period()+100)%s.Period() {
			t.Fatalf("%+v: after 100 picks ticket %d is at %d of %d", c, ticket, s.Place(ticket), s.Period())
		}
		at := func() int { ticket++; return s.At(ticket - 1) }
		if got := next(100, at); !slices.Equal(got, want[100:]) {
			t.Fatalf("%+v, by ticket:\npicks %v\nwant  %v", c, got, want[100:])
		}
		checkShares(t, weights, s.Period(), at)

		weights = decodeWeights(others)
		again, err := s.Reweigh(weights, ticket)
		if ok := validWeights(weights) && len(weights) == len(decodeWeights(list)); ok != (err == nil) {
			t.Fatalf("Reweigh from %v to %v: %v", decodeWeights(list), weights, err)
		}
		if err == nil {
			checkShares(t, weights, again.Period(), again.Next)
		}
	})
}
