// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
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

func TestAliasChiSquare(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("20 million draws")
	}
	weights := []uint32{1, 2, 3, 5, 8, 13, 21, 34, 913}
	const draws = 20e6
	a := mustAlias(t, weights)
	rng := rand.New(rand.NewPCG(5, 6))
	counts := make([]float64, len(weights))
	for range int(draws) {
		counts[a.Pick(rng.Uint64())]++
	}
	var chi float64
	for i, w := range weights {
		want := draws * float64(w) / 1000
		chi += (counts[i] - want) * (counts[i] - want) / want
	}
	if chi > 26.1 { // 8 degrees of freedom, p = 0.001
		t.Errorf("chi-square of %v draws = %.1f, want at most 26.1", draws, chi)
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

func TestAliasAllocs(t *testing.T) {
	a, r := mustAlias(t, []uint32{1, 2, 3}), uint64(0)
	if n := testing.AllocsPerRun(100, func() { r += uint64(a.Pick(r)) + 0x9e3779b97f4a7c15 }); n != 0 {
		t.Errorf("Pick allocates %v times", n)
	}
}
