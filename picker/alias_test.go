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

func mustAlias(t testing.TB, weights []uint32) *Alias {
	t.Helper()
	a, err := NewAlias(weights)
	if err != nil {
		t.Fatalf("NewAlias(%v): %v", weights, err)
	}
	return a
}

// aliasWords counts, by arithmetic over all 2^64 of them, the random words that lead
// to each of n indexes. A word r is in column c if c·2^64 ≤ r·n < (c+1)·2^64,
// and below its threshold if r·n < c·2^64 + threshold.
func aliasWords(a *Alias, n int) []*big.Int {
	counts := make([]*big.Int, n)
	for i := range counts {
		counts[i] = new(big.Int)
	}
	columns := big.NewInt(int64(len(a.cells)))
	firstFrom := func(column int, draw uint64) *big.Int { // least r with r·n ≥ column·2^64 + draw
		v := new(big.Int).Lsh(big.NewInt(int64(column)), 64)
		v.Add(v, new(big.Int).SetUint64(draw))
		v.Add(v, columns).Sub(v, big.NewInt(1))
		return v.Div(v, columns)
	}
	for c, cell := range a.cells {
		from, mid, to := firstFrom(c, 0), firstFrom(c, cell.threshold), firstFrom(c+1, 0)
		counts[cell.self].Add(counts[cell.self], mid).Sub(counts[cell.self], from)
		counts[cell.other].Add(counts[cell.other], to).Sub(counts[cell.other], mid)
	}
	return counts
}

func randomWeights(rng *rand.Rand, n int) []uint32 {
	w := make([]uint32, n)
	for i := range w {
		switch rng.IntN(4) {
		case 0: // zero
		case 1:
			w[i] = rng.Uint32N(4)
		default:
			w[i] = rng.Uint32() >> (5 + rng.IntN(24))
		}
	}
	w[rng.IntN(n)] = 1
	return w
}

// The share of words is the share of weights, exactly up to one word for each
// column that an index has a part in.
func TestAliasWords(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sets := [][]uint32{
		{1}, {0, 7}, {1, 1}, {1, 0, 1}, {3, 1}, {1, math.MaxUint32 - 1}, {math.MaxUint32}, {1000, 1, 1, 1},
		{math.MaxUint32 / 3, math.MaxUint32 / 3, math.MaxUint32 / 3},
	}
	for range 1000 {
		sets = append(sets, randomWeights(rng, 1+rng.IntN(30)))
	}
	for _, weights := range sets {
		a := mustAlias(t, weights)
		sum, columns := new(big.Int), make([]int64, len(weights))
		for _, w := range weights {
			sum.Add(sum, big.NewInt(int64(w)))
		}
		for _, c := range a.cells {
			columns[c.self]++
			columns[c.other]++
		}
		for i, got := range aliasWords(a, len(weights)) {
			// |got·sum − weight·2^64| < columns·sum
			diff := new(big.Int).Mul(got, sum)
			diff.Sub(diff, new(big.Int).Lsh(big.NewInt(int64(weights[i])), 64)).Abs(diff)
			if limit := new(big.Int).Mul(sum, big.NewInt(columns[i]+1)); weights[i] == 0 && got.Sign() != 0 || diff.Cmp(limit) > 0 {
				t.Fatalf("%v: index %d has %v of 2^64 words", weights, i, got)
			}
		}
	}
}

// Pick agrees with the arithmetic: the index changes at the edges of every column and
// threshold, as computed by words.
func TestAliasPick(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		weights := randomWeights(rng, 1+rng.IntN(20))
		a := mustAlias(t, weights)
		n := new(big.Int).SetInt64(int64(len(a.cells)))
		for range 200 {
			r := rng.Uint64()
			if rng.IntN(2) == 0 { // just at a column's edge
				q := new(big.Int).Lsh(big.NewInt(int64(rng.IntN(len(a.cells)))), 64)
				r = q.Div(q, n).Uint64() + rng.Uint64N(3) - 1
			}
			product := new(big.Int).Mul(new(big.Int).SetUint64(r), n)
			c := a.cells[new(big.Int).Rsh(product, 64).Int64()]
			want := c.other
			if product.Mod(product, new(big.Int).Lsh(big.NewInt(1), 64)).Cmp(new(big.Int).SetUint64(c.threshold)) < 0 {
				want = c.self
			}
			if got := a.Pick(r); got != int(want) {
				t.Fatalf("%v: Pick(%#x) = %d, want %d", weights, r, got, want)
			}
		}
		for _, r := range []uint64{0, 1, math.MaxUint64} {
			if i := a.Pick(r); weights[i] == 0 {
				t.Fatalf("%v: Pick(%#x) = %d, which has no weight", weights, r, i)
			}
		}
	}
}

// Where a word leads is fixed: picks are reproducible from their random words.
func TestAliasGolden(t *testing.T) {
	a := mustAlias(t, []uint32{5, 0, 1, 2})
	var got []int
	for r := range uint64(16) {
		got = append(got, a.Pick(r<<60))
	}
	want := []int{0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 3, 3, 3, 3, 0}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("picks of r<<60 = %v, want %v", got, want)
		}
	}
}

func TestAliasErrors(t *testing.T) {
	for _, test := range []struct {
		weights []uint32
		want    string
	}{
		{nil, "none of 0 weights is above 0"},
		{[]uint32{0, 0}, "none of 2 weights is above 0"},
		{[]uint32{math.MaxUint32, 1}, "the sum of the weights, 4294967296, exceeds 4294967295"},
	} {
		if _, err := NewAlias(test.weights); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("NewAlias(%v) = %v, want an error with %q", test.weights, err, test.want)
		}
	}
}

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
