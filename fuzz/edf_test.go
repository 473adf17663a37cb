// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/bench/kit/slow"
	"github.com/xdslb/xdslb/edf"
	"github.com/xdslb/xdslb/picker"
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
func checkShares(t *testing.T, weights []uint32, pick func() int) {
	t.Helper()
	period, sum := slow.Period(weights), slow.Sum(weights)
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

// FuzzSchedule compares a Schedule with exact deadlines, from any position on and by tickets in
// order, and over a period after Reweigh.
func FuzzSchedule(f *testing.F) {
	for i, w := range weightSeeds {
		f.Add(encodeWeights(w), uint64(i), uint64(0), encodeWeights(weightSeeds[max(0, i-1)]))
		f.Add(encodeWeights(w), uint64(i)<<58|77, uint64(1)<<40, encodeWeights(w))
	}
	f.Fuzz(func(t *testing.T, list []byte, start, base uint64, others []byte) {
		weights := decodeWeights(list)
		ticket := base % (1 << 62) // a counter does not get further
		c := edf.Config{Weights: weights, Start: start, Base: ticket}
		s, err := c.Schedule()
		if (err == nil) != validWeights(weights) {
			t.Fatalf("weights %v: error is %v", weights, err)
		}
		if err != nil {
			return
		}
		at := func() int { ticket++; return s.At(ticket - 1) }
		e := slow.NewEDF(weights)
		e.Skip(start % slow.Period(weights))
		want := e.Take(300)
		if got := next(300, at); !slices.Equal(got, want) {
			t.Fatalf("%+v:\npicks %v\nwant  %v", c, got, want)
		}
		checkShares(t, weights, at)

		weights = decodeWeights(others)
		again, err := s.Reweigh(weights, ticket)
		if ok := validWeights(weights) && len(weights) == len(decodeWeights(list)); ok != (err == nil) {
			t.Fatalf("Reweigh from %v to %v: %v", decodeWeights(list), weights, err)
		}
		if err == nil {
			checkShares(t, weights, func() int { ticket++; return again.At(ticket - 1) })
		}
	})
}

// FuzzAlias draws with words that are spread evenly. An index owns a part of each
// of n columns at most, so its count is off by less than one for each of them.
func FuzzAlias(f *testing.F) {
	for i, w := range weightSeeds {
		f.Add(encodeWeights(w), uint64(i)<<60-1)
	}
	f.Fuzz(func(t *testing.T, list []byte, r uint64) {
		weights := decodeWeights(list)
		a, err := picker.NewAlias(weights)
		if (err == nil) != validWeights(weights) {
			t.Fatalf("weights %v: error is %v", weights, err)
		}
		if err != nil {
			return
		}
		const words = 4096
		count, sum := make([]int, len(weights)), 0.0
		for k := range uint64(words) {
			count[a.Pick(k<<52+r>>12)]++
		}
		for _, w := range weights {
			sum += float64(w)
		}
		for i, w := range weights {
			if w == 0 && count[i] > 0 || math.Abs(float64(count[i])-words*float64(w)/sum) > float64(len(weights)+1) {
				t.Fatalf("weights %v have counts %v of %d", weights, count, words)
			}
		}
		if i := a.Pick(r); weights[i] == 0 {
			t.Fatalf("weights %v: Pick(%#x) = %d", weights, r, i)
		}
	})
}
