// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"cmp"
	"math"
	"slices"
	"testing"
)

// Sorting is stable and right for hashes as bad as they come: constant, in one
// bucket, at the ends, or of few values.
func TestSortEntries(t *testing.T) {
	rng := newRand(7)
	draws := map[string]func() uint64{
		"uniform":   rng.Uint64,
		"zero":      func() uint64 { return 0 },
		"ones":      func() uint64 { return math.MaxUint64 },
		"ends":      func() uint64 { return -rng.Uint64N(2) },
		"truncated": func() uint64 { return rng.Uint64() &^ (1<<61 - 1) },
		"bucket":    func() uint64 { return 1<<60 + rng.Uint64N(50) },
	}
	for name, draw := range draws {
		for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 9, 100, 1000, partitionAbove + 3} {
			if n > 1000 && name != "uniform" {
				continue // to sort points in one bucket is quadratic, as documented
			}
			entries := makeEntries(n)
			want := make([]slowEntry, n)
			for i := range n {
				hash := draw()
				entries[i], want[i] = newEntry(hash, uint32(i)), slowEntry{hash, i}
			}
			slices.SortStableFunc(want, func(a, b slowEntry) int { return cmp.Compare(a.hash, b.hash) })
			sorted, start := sortEntries(entries)
			if again := bucketStarts(sorted); !slices.Equal(start, again) {
				t.Errorf("%s: starts of %d entries differ between sortEntries and bucketStarts", name, n)
			}
			r := &Ring{index: newIndex(sorted, start)}
			if !slices.Equal(entriesOf(t, r), want) {
				t.Errorf("%s: order of %d entries is wrong", name, n)
			}
			for _, hash := range probesOf(rng, want) {
				if got, want := position(r, hash), slowSeek(want, hash); got != want {
					t.Fatalf("%s: position(%#x) = %d, want %d of %d", name, hash, got, want, n)
				}
			}
		}
	}
}
