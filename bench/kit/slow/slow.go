// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package slow has the slow, obvious version of each algorithm that picks endpoints, for tests of
// the fast ones: the words of the specification, without an optimization.
package slow

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
)

// An EDF is the order of earliest deadlines first, in exact arithmetic and by looking at every
// endpoint for each pick.
type EDF struct {
	weights []uint32
	picks   []uint64 // of each endpoint so far
}

// NewEDF begins the sequence of weights.
func NewEDF(weights []uint32) *EDF { return &EDF{weights, make([]uint64, len(weights))} }

// Next picks the endpoint with the earliest deadline, (picks+1)/weight (EDF-5, EDF-7). Of several
// it is the first one's turn (EDF-6, EDF-8).
func (e *EDF) Next() int {
	best := -1
	for i, w := range e.weights {
		if w > 0 && (best < 0 || e.earlier(i, best)) {
			best = i
		}
	}
	e.picks[best]++
	return best
}

// earlier compares two deadlines as fractions, by cross multiplication in 128 bits.
func (e *EDF) earlier(i, k int) bool {
	hi, lo := bits.Mul64(e.picks[i]+1, uint64(e.weights[k]))
	hk, lk := bits.Mul64(e.picks[k]+1, uint64(e.weights[i]))
	return hi < hk || hi == hk && lo < lk
}

// Skip makes n picks from the start, at most one period. No endpoint is a whole pick behind its
// share (EDF-2), so the whole parts of the shares are granted at once.
func (e *EDF) Skip(n uint64) {
	sum, done := Sum(e.weights), uint64(0)
	for i, w := range e.weights {
		hi, lo := bits.Mul64(n, uint64(w))
		e.picks[i], _ = bits.Div64(hi, lo, sum)
		done += e.picks[i]
	}
	for ; done < n; done++ {
		e.Next()
	}
}

// Take returns the next n picks.
func (e *EDF) Take(n int) []int {
	picks := make([]int, n)
	for i := range picks {
		picks[i] = e.Next()
	}
	return picks
}

// Sum returns the sum of weights.
func Sum(weights []uint32) (sum uint64) {
	for _, w := range weights {
		sum += uint64(w)
	}
	return sum
}

// Period returns the number of picks after which the sequence of weights repeats.
func Period(weights []uint32) uint64 {
	divisor := uint64(0)
	for _, w := range weights {
		for a := uint64(w); a != 0; {
			divisor, a = a, divisor%a
		}
	}
	return Sum(weights) / divisor
}

// A Host is a host of a ring or a table.
type Host struct {
	Key    string
	Weight uint32
}

// An Entry is an entry of a ring.
type Entry struct {
	Hash uint64
	Host int // its index
}

// Rank returns the indexes of the hosts of positive weight in order of key, weight (descending)
// and index, and the sum of weights.
func Rank[H ~struct {
	Key    string
	Weight uint32
}](list []H) (order []int, sum float64) {
	hosts := hostsOf(list)
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

// hostsOf converts the hosts of another package.
func hostsOf[H ~struct {
	Key    string
	Weight uint32
}](list []H) []Host {
	hosts := make([]Host, len(list))
	for i, h := range list {
		hosts[i] = Host(h)
	}
	return hosts
}

// Ring is Envoy's ring, T-RING-1 and T-RING-2 word by word: each host has its share of the scale,
// carried over from host to host.
func Ring[H ~struct {
	Key    string
	Weight uint32
}](list []H, minSize, maxSize uint64, xxh64 bool) []Entry {
	hosts := hostsOf(list)
	order, sum := Rank(hosts)
	lightest := 1.0
	for _, i := range order {
		lightest = math.Min(lightest, float64(hosts[i].Weight)/sum)
	}
	scale := math.Min(math.Ceil(lightest*float64(minSize))/lightest, float64(maxSize))
	var ring []Entry
	var current, target float64
	for _, i := range order {
		product := scale * (float64(hosts[i].Weight) / sum)
		target += float64(product)
		for n := 0; current < target; n++ {
			ring = append(ring, Entry{Point(hosts[i].Key, n, xxh64), i})
			current++
		}
	}
	slices.SortStableFunc(ring, func(a, b Entry) int { return cmp.Compare(a.Hash, b.Hash) })
	return ring
}

// Point is the hash of entry n of a host: with XXH64 that of "key_n", as Envoy's, and with XXH3
// output n of splitmix64 with the hash of the key as the seed.
func Point(key string, n int, xxh64 bool) uint64 {
	if xxh64 {
		return xxhash.Sum64String(fmt.Sprintf("%s_%d", key, n))
	}
	z := xxh3.HashString(key)
	for range n + 1 {
		z += 0x9e3779b97f4a7c15
	}
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Maglev is Envoy's table: in rounds over all hosts, each whose weight has reached its target
// takes the next free slot of its permutation.
func Maglev[H ~struct {
	Key    string
	Weight uint32
}](list []H, size uint64, xxh64 bool) []int {
	hosts := hostsOf(list)
	order, sum := Rank(hosts)
	heaviest := 0.0
	for _, i := range order {
		heaviest = math.Max(heaviest, float64(hosts[i].Weight)/sum)
	}
	table := slices.Repeat([]int{-1}, int(size))
	target, next := make(map[int]float64), make(map[int]uint64)
	for round, filled := 1, uint64(0); filled < size; round++ {
		for _, i := range order {
			if filled == size || float64(round)*(float64(hosts[i].Weight)/sum) < target[i] {
				continue
			}
			target[i] += heaviest
			offset, skip := permutation(hosts[i].Key, size, xxh64)
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

func permutation(key string, size uint64, xxh64 bool) (offset, skip uint64) {
	offset, skip = xxh3.HashString(key), xxh3.HashStringSeed(key, 1)
	if xxh64 {
		d := xxhash.NewWithSeed(1)
		d.WriteString(key)
		offset, skip = xxhash.Sum64String(key), d.Sum64()
	}
	return offset % size, skip%(size-1) + 1
}
