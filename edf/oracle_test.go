// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math/rand/v2"
	"testing"

	"github.com/xdslb/xdslb/bench/kit/slow"
)

// TestOracleSkipIsManyPicks checks the oracle itself: skipping picks has the result of making them.
func TestOracleSkipIsManyPicks(t *testing.T) {
	for _, weights := range randomSets(100, 12) {
		one := slow.NewEDF(weights)
		for n := range uint64(200) {
			skipped := slow.NewEDF(weights)
			skipped.Skip(n)
			if got, want := skipped.Next(), one.Next(); got != want {
				t.Fatalf("weights %v: the pick after Skip(%d) is %d, one by one %d", weights, n, got, want)
			}
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
