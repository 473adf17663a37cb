// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
)

// slowEntry is an entry of the slow ring.
type slowEntry struct {
	hash uint64
	host int
}

// slowRank returns the indexes of the hosts of positive weight in order of key,
// weight (descending) and index, and the sum of weights.
func slowRank(hosts []Host) (order []int, sum float64) {
	for i, h := range hosts {
		if h.Weight > 0 {
			order = append(order, i)
			sum += float64(h.Weight) // exact, far below 2^53
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := hosts[a], hosts[b]
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(y.Weight, x.Weight))
	})
	return order, sum
}

// slowRing is the reference for New: T-RING-1 and T-RING-2 word by word.
func slowRing(hosts []Host, minSize, maxSize uint64, fn Func) []slowEntry {
	order, sum := slowRank(hosts)
	lightest := 1.0
	for _, i := range order {
		lightest = math.Min(lightest, float64(hosts[i].Weight)/sum)
	}
	scale := math.Min(math.Ceil(lightest*float64(minSize))/lightest, float64(maxSize))
	var ring []slowEntry
	var current, target float64
	for _, i := range order {
		product := scale * (float64(hosts[i].Weight) / sum)
		target += float64(product)
		for n := 0; current < target; n++ {
			ring = append(ring, slowEntry{slowPoint(hosts[i].Key, n, fn), i})
			current++
		}
	}
	slices.SortStableFunc(ring, func(a, b slowEntry) int { return cmp.Compare(a.hash, b.hash) })
	return ring
}

func slowPoint(key string, n int, fn Func) uint64 {
	if fn == XXH64 {
		return xxhash.Sum64String(fmt.Sprintf("%s_%d", key, n))
	}
	z := xxh3.HashString(key)
	for range n + 1 {
		z += 0x9e3779b97f4a7c15
	}
	return mix(z)
}

// slowSeek returns the position of the first entry at or after hash, wrapping.
func slowSeek(ring []slowEntry, hash uint64) int {
	for p, e := range ring {
		if e.hash >= hash {
			return p
		}
	}
	return 0
}

// slowMaglev is the reference for NewMaglev: rounds over all hosts, each of which
// takes a turn when its weight has reached its target.
func slowMaglev(hosts []Host, size uint64, fn Func) []int {
	order, sum := slowRank(hosts)
	heaviest := 0.0
	for _, i := range order {
		heaviest = math.Max(heaviest, float64(hosts[i].Weight)/sum)
	}
	table := make([]int, size)
	for i := range table {
		table[i] = -1
	}
	target := make(map[int]float64)
	next := make(map[int]uint64)
	filled := uint64(0)
	for round := 1; filled < size; round++ {
		for _, i := range order {
			if filled == size || float64(round)*(float64(hosts[i].Weight)/sum) < target[i] {
				continue
			}
			target[i] += heaviest
			offset, skip := fn.Sum(hosts[i].Key)%size, slowSum1(hosts[i].Key, fn)%(size-1)+1
			slot := (offset + skip*next[i]) % size
			for table[slot] != -1 {
				next[i]++
				slot = (offset + skip*next[i]) % size
			}
			table[slot] = i
			filled++
		}
	}
	return table
}

func slowSum1(key string, fn Func) uint64 {
	if fn == XXH64 {
		d := xxhash.NewWithSeed(1)
		d.Write([]byte(key))
		return d.Sum64()
	}
	return xxh3.HashStringSeed(key, 1)
}

// entriesOf returns the entries of r, after checking the invariants of every ring.
func entriesOf(tb testing.TB, r *Ring) []slowEntry {
	tb.Helper()
	checkInvariants(tb, r)
	list := make([]slowEntry, r.Len())
	for p := range list {
		list[p] = slowEntry{r.entries[p].hash(), hostAt(r, p)}
	}
	return list
}

// position returns the position of the entry that a hash belongs to.
func position(r *Ring, hash uint64) int { return r.wrap(r.seek(hash)) }

// hostAt returns the host at a position.
func hostAt(r *Ring, pos int) int { return int(r.entries[pos].host) }

func checkInvariants(tb testing.TB, r *Ring) {
	tb.Helper()
	n := r.Len()
	if n < 1 {
		tb.Fatalf("Len() = %d", n)
	}
	if got, want := r.entries[n], newEntry(math.MaxUint64, r.entries[0].host); got != want {
		tb.Fatalf("sentinel is %v, want %v", got, want)
	}
	for p := range n {
		if r.entries[p].hash() > r.entries[p+1].hash() {
			tb.Fatalf("hash at %d is above that at %d", p, p+1)
		}
	}
	buckets := 1 << (64 - r.shift)
	if buckets < n || buckets >= 2*n && n > 1 || len(r.start) != buckets+1 {
		tb.Fatalf("%d buckets and %d starts for %d entries", buckets, len(r.start), n)
	}
	for b, p := range r.start[:buckets] {
		first := uint64(b) << r.shift
		if r.entries[p].hash() < first || p > 0 && r.entries[p-1].hash() >= first {
			tb.Fatalf("start[%d] = %d is not the first position in the bucket or above", b, p)
		}
	}
	for _, m := range r.members {
		if m.weight == 0 {
			tb.Fatalf("host %d of weight 0 is a member", m.host)
		}
	}
}
