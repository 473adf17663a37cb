// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// An oracle is the EDF order as the specification words it, in exact arithmetic and by
// looking at every endpoint for each pick: slow and obvious.
type oracle struct {
	weights []uint32
	picks   []uint64 // of each endpoint so far
}

func newOracle(weights []uint32) *oracle {
	return &oracle{weights, make([]uint64, len(weights))}
}

// next picks the endpoint with the earliest deadline, (picks+1)/weight (EDF-5,
// EDF-7). Of several it is the first one's turn (EDF-6, EDF-8).
func (o *oracle) next() int {
	best := -1
	for i, w := range o.weights {
		if w > 0 && (best < 0 || o.earlier(i, best)) {
			best = i
		}
	}
	o.picks[best]++
	return best
}

// earlier compares two deadlines as fractions, by cross multiplication in 128 bits.
func (o *oracle) earlier(i, k int) bool {
	hi, lo := bits.Mul64(o.picks[i]+1, uint64(o.weights[k]))
	hk, lk := bits.Mul64(o.picks[k]+1, uint64(o.weights[i]))
	return hi < hk || hi == hk && lo < lk
}

// skip makes n picks from the start. It grants the whole part of each
// quota at once, for periods that are too long to step through.
func (o *oracle) skip(n uint64) {
	var sum, done uint64
	for _, w := range o.weights {
		sum += uint64(w)
	}
	for i, w := range o.weights {
		hi, lo := bits.Mul64(n, uint64(w))
		o.picks[i], _ = bits.Div64(hi, lo, sum)
		done += o.picks[i]
	}
	for ; done < n; done++ {
		o.next()
	}
}

// take returns the next n picks.
func (o *oracle) take(n int) []int {
	picks := make([]int, n)
	for i := range picks {
		picks[i] = o.next()
	}
	return picks
}

func TestOracleSkipIsManyPicks(t *testing.T) {
	for _, weights := range randomSets(100, 12) {
		slow := newOracle(weights)
		for n := range uint64(200) {
			fast := newOracle(weights)
			fast.skip(n)
			if !slices.Equal(fast.picks, slow.picks) {
				t.Fatalf("weights %v: skip(%d) has picks %v, one by one %v", weights, n, fast.picks, slow.picks)
			}
			slow.next()
		}
	}
}

// randomSets returns count valid sets of weights for up to most endpoints: of every
// order of magnitude, with common factors, with sums near 2^32, with zeros, with equal
// and with wildly different weights.
func randomSets(count, most int) [][]uint32 {
	r := rand.New(rand.NewPCG(34, 202))
	upTo := func(max uint32) func(int) uint32 {
		return func(int) uint32 { return 1 + r.Uint32N(max) }
	}
	var sets [][]uint32
	for round := 0; len(sets) < count; round++ {
		n := 1 + r.IntN(most)
		share := uint32(1<<32-1) / uint32(n)
		factor := 1 + r.Uint32N(1000)
		weight := []func(int) uint32{
			upTo(5),
			upTo(100),
			upTo(1000),
			upTo(share),
			func(int) uint32 { return share - r.Uint32N(share/1000+1) },
			func(int) uint32 { return 1 << r.UintN(24) },
			func(int) uint32 { return factor * (1 + r.Uint32N(20)) },
			func(int) uint32 { return factor },
			func(i int) uint32 { return 1 + 999*uint32(1-min(i, 1)) },
			func(i int) uint32 { return max(1, uint32(1<<31)>>min(2*i, 31)) - 1 + uint32(i&1) },
		}[round%10]
		weights := make([]uint32, n)
		for i := range weights {
			weights[i] = weight(i)
		}
		if round%3 == 0 {
			for range n / 4 {
				weights[r.IntN(n)] = 0
			}
		}
		if _, err := (Config{Weights: weights}).totals(); err == nil {
			sets = append(sets, weights)
		}
	}
	return sets
}
