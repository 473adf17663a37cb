// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// The first output of splitmix64 for seeds 0 and 1234567, as published with
// xoshiro's reference code and by Rosetta Code.
func TestDrawGolden(t *testing.T) {
	for _, test := range []struct{ r, k, want uint64 }{
		{0, 1, 0xe220a8397b1dcdaf},
		{1234567, 1, 6457827717110365317},
		{1234567, 2, 3203168211198807973},
		{1234567, 3, 9817491932198370423},
	} {
		if got := draw(test.r, test.k); got != test.want {
			t.Errorf("draw(%d, %d) = %d, want %d", test.r, test.k, got, test.want)
		}
	}
}

// T-RC-4, T-DROP-1: 0 never, 10⁶ always, exactly.
func TestChanceEnds(t *testing.T) {
	for _, x := range []uint64{0, 1, 2, math.MaxUint64 - 1, math.MaxUint64} {
		if always.perMillion(0).hit(x) {
			t.Errorf("a probability of 0 is hit by %#x", x)
		}
		if !always.perMillion(1e6).hit(x) {
			t.Errorf("a probability of 1 is not hit by %#x", x)
		}
	}
	half := always.perMillion(500000)
	if !half.hit(math.MaxUint64/2) || half.hit(math.MaxUint64/2+1) {
		t.Error("a probability of 1/2 is not hit by half of the words")
	}
}

// T-DROP-2: the bounds correspond to independent draws in list order.
func TestDropBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		drops := make([]Drop, rng.IntN(6))
		for i := range drops {
			drops[i].PerMillion = []uint32{0, 1, 1e6, 999999, rng.Uint32N(1e6)}[rng.IntN(5)]
		}
		bounds, err := dropBounds(drops)
		kit.Must(t, err)
		million := big.NewRat(1e6, 1)
		pass, want := big.NewRat(1, 1), new(big.Rat) // of all RPCs: reach this category, are dropped up to it
		for i, d := range drops {
			p := new(big.Rat).Quo(new(big.Rat).SetInt64(int64(d.PerMillion)), million)
			p.Mul(p, pass)
			pass.Sub(pass, p)
			want.Add(want, p)

			got := new(big.Rat).SetFrac(new(big.Int).SetUint64(uint64(bounds[i])), new(big.Int).SetUint64(uint64(always)))
			diff := got.Sub(want, got)
			if f, _ := diff.Float64(); f < 0 || f > float64(i+1)/float64(always) {
				t.Fatalf("%v: bound %d is %v too low", drops, i, f)
			}
			if d.PerMillion == 1e6 && bounds[i] != always {
				t.Fatalf("%v: bound %d is %v, want always", drops, i, bounds[i])
			}
			if before := append([]probability{0}, bounds...)[i]; d.PerMillion == 0 && bounds[i] != before {
				t.Fatalf("%v: bound %d is %v, above %v", drops, i, bounds[i], before)
			}
		}
	}
}

func TestDropCategory(t *testing.T) {
	bounds, err := dropBounds([]Drop{{"none", 0}, {"half", 500000}, {"empty", 0}, {"rest", 1e6}, {"late", 1e6}})
	kit.Must(t, err)
	for _, test := range []struct {
		x    uint64
		want int
	}{{0, 1}, {math.MaxUint64 / 2, 1}, {math.MaxUint64/2 + 1, 3}, {math.MaxUint64, 3}} {
		if got := dropCategory(bounds, test.x); got != test.want {
			t.Errorf("dropCategory(%#x) = %d, want %d", test.x, got, test.want)
		}
	}
	if _, err := dropBounds([]Drop{{"x", 1000001}}); err == nil || !strings.Contains(err.Error(), `drop category "x": 1000001 per million`) {
		t.Errorf("dropBounds of 1000001 per million: %v", err)
	}
}

// Decisions that are drawn from one word are independent: all pairs of 8 cells
// of each come up equally often.
func TestDrawIndependent(t *testing.T) {
	const rounds, cells = 1 << 18, 64
	pairs := [][2]uint64{{0, drawCluster}, {0, drawDrop}, {0, drawRoute}, {drawCluster, drawDrop}, {drawDrop, drawRoute}, {drawRoute, drawRoute + 1},
		{0, drawCandidate}, {drawCandidate, drawCandidate + 1}, {drawCandidate + maxChoices - 1, drawRoute}, {0, drawHash}, {drawHash, drawProbe}, {drawProbe, drawCandidate},
		{0, drawLeave}, {0, drawZone}, {drawLeave, drawZone}, {drawLeave, drawProbe}, {drawZone, drawHash}, {drawLeave, drawCandidate}, {drawRoute, drawZone}}
	for _, p := range pairs {
		rng := rand.New(rand.NewPCG(9, p[0]<<8|p[1]))
		var counts [cells]float64
		for range rounds {
			r := rng.Uint64()
			x, y := draw(r, p[0]), draw(r, p[1])
			if p[0] == 0 {
				x = r
			}
			counts[x>>61<<3|y>>61]++
		}
		var chi float64
		for _, c := range counts {
			chi += (c - rounds/cells) * (c - rounds/cells) / (rounds / cells)
		}
		if chi > 103.4 { // 63 degrees of freedom, p = 0.001
			t.Errorf("decisions %v: chi-square %.1f, want at most 103.4", p, chi)
		}
	}
}
