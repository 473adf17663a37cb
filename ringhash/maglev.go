// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"fmt"
	"math"
	"math/bits"
)

// tableSizeLimit is the largest size of a Maglev table that Envoy accepts.
const tableSizeLimit = 5000011

// Maglev is a Maglev table (Eisenbud et al., NSDI 2016) with Envoy's placement and weights.
// Compared to a ring it spreads load almost evenly, and a pick costs one memory access for any
// number of hosts. In return a change of hosts moves a few requests unnecessarily. A Maglev is
// immutable and safe for concurrent use. Create one with [NewMaglev]; the zero Maglev must not
// be used.
//
// It holds 2 bytes per table slot, or 4 if there are more than 65536 hosts.
type Maglev struct {
	size  uint64
	magic uint64 // floor((2^64-1) / size)

	// The host of each slot, in one of these two.
	narrow []uint16
	wide   []uint32
}

// NewMaglev builds the table of hosts. Its size must be a prime not larger than 5000011;
// 65537, Envoy's default, suits up to some hundred hosts, and a host may get no slot when there
// are more hosts than slots.
//
// Building takes O(m log m) expected time for a table of size m, plus O(n log n) for n hosts,
// for any weights.
func NewMaglev(hosts []Host, size uint64, fn Func) (*Maglev, error) {
	if err := fn.validate(); err != nil {
		return nil, err
	}
	if err := validateTableSize(size); err != nil {
		return nil, err
	}
	members, sum, err := rank(hosts)
	if err != nil {
		return nil, err
	}
	m := &Maglev{size: size, magic: math.MaxUint64 / size}
	m.wide = fillTable(members, sum, uint32(size), fn)
	if len(hosts) <= math.MaxUint16+1 {
		m.narrow = make([]uint16, size)
		for i, host := range m.wide {
			m.narrow[i] = uint16(host)
		}
		m.wide = nil
	}
	return m, nil
}

func validateTableSize(size uint64) error {
	switch {
	case size > tableSizeLimit: // before isPrime, which is slow for 2^64-1
		return fmt.Errorf("ringhash: maglev table size %d exceeds %d", size, tableSizeLimit)
	case !isPrime(size):
		return fmt.Errorf("ringhash: maglev table size %d is not prime", size)
	}
	return nil
}

func isPrime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n >= 2
}

// Pick returns the index of the host to which a request with this hash belongs. O(1); does not
// allocate.
func (m *Maglev) Pick(hash uint64) int {
	slot := m.slot(hash)
	if m.narrow != nil {
		return int(m.narrow[slot])
	}
	return int(m.wide[slot])
}

// slot returns hash modulo m.size without a division. With s the size, 2^64/s - magic <= 1, so
// hash*magic/2^64 is below hash/s by less than 1 and the quotient is at most one too small.
func (m *Maglev) slot(hash uint64) uint64 {
	quotient, _ := bits.Mul64(hash, m.magic)
	rest := hash - quotient*m.size
	if rest >= m.size {
		rest -= m.size
	}
	return rest
}

// maglevHost is a host that takes turns in filling the table.
type maglevHost struct {
	host   uint32
	slots  *permutation
	weight float64 // normalized
	target float64 // sum of the largest weight over the past turns
}

// permutation is the order of slots that a key prefers.
type permutation struct {
	next uint32
	skip uint32 // coprime to the table size, which is prime
}

// fillTable returns the table in which hosts have taken turns, each turn taking the first free
// slot of the host's permutation.
//
// In each round a host takes a turn if the number of the round times its weight has reached its
// target, and then its target grows by the largest weight. So the heaviest host takes a turn in
// every round, and a host with a third of its weight in every third. As in apportion, the
// rounding of float64 is part of the placement. Searching for turns in each round would cost
// size times max/mean of the weights (seconds, if one host is much heavier than many other
// hosts), so the turns are in a heap.
func fillTable(members []member, sum uint64, size uint32, fn Func) []uint32 {
	const free = math.MaxUint32
	table := make([]uint32, size)
	for i := range table {
		table[i] = free
	}
	hs := maglevHosts(members, sum, size, fn)
	heaviest, lightest := 0.0, 1.0
	for i := range hs {
		heaviest = max(heaviest, hs[i].weight)
		lightest = min(lightest, hs[i].weight)
	}
	queue := make(turns, len(hs))
	for i := range queue {
		queue[i] = 1<<32 | uint64(i) // ascending, which is a valid heap
	}
	for filled := range int(size) {
		i := filled % len(hs)
		if heaviest != lightest {
			round := queue[0] >> 32
			i = int(uint32(queue[0]))
			hs[i].target += heaviest
			queue.replaceFirst(hs[i].nextRound(round, uint64(size))<<32 | uint64(i))
		}
		p := hs[i].slots
		for table[p.next] != free {
			p.advance(size)
		}
		table[p.next] = hs[i].host
		p.advance(size)
	}
	return table
}

// maglevHosts returns the hosts of members. Members with the same key share a permutation: the
// slots that it has passed are taken for all of them. If each searched them separately, the
// build would be quadratic in the number of hosts with the same key.
func maglevHosts(members []member, sum uint64, size uint32, fn Func) []maglevHost {
	hs := make([]maglevHost, len(members))
	permutations := make([]permutation, len(members))
	for i, m := range members {
		p := &permutations[i]
		if i > 0 && members[i-1].key == m.key {
			p = hs[i-1].slots
		} else {
			p.next = uint32(fn.Sum(m.key) % uint64(size))
			p.skip = uint32(fn.sumSeed1(m.key)%uint64(size-1)) + 1
		}
		hs[i] = maglevHost{host: m.host, slots: p, weight: float64(m.weight) / float64(sum)}
	}
	return hs
}

func (p *permutation) advance(size uint32) {
	p.next += p.skip
	if p.next >= size {
		p.next -= size
	}
}

// nextRound returns the first round after the given one in which h has a turn, or last+1 if
// that is later. The heaviest host fills a slot in each round, so a table of n slots takes at
// most n rounds.
func (h *maglevHost) nextRound(after, last uint64) uint64 {
	estimate := math.Ceil(h.target / h.weight)
	if estimate > float64(last) {
		return last + 1
	}
	round := max(after+1, uint64(estimate))
	// The quotient is rounded, while the comparison that counts rounds uses a product.
	for round-1 > after && float64(round-1)*h.weight >= h.target {
		round--
	}
	for float64(round)*h.weight < h.target {
		round++
	}
	return round
}

// turns is a binary heap of the next turns of all hosts. A turn has its round in the upper half
// and the rank of the host in the lower half, so within a round hosts are ordered by rank.
type turns []uint64

// replaceFirst replaces the least element. O(log n).
func (h turns) replaceFirst(t uint64) {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if t <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = t
}
