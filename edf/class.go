// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math/bits"
	"slices"
)

// A class is the endpoints of one weight. Their deadlines fall due together and ties go by
// index, so they take turns in order of index, and the key of the one whose turn it is stands
// for all of them in the tournament. Fleets with few distinct weights make a small tree.
type class struct {
	step   uint64 // the whole part of 1/weight in a key
	frac   uint32 // what step leaves out, in units of 1/weight of the lowest bit of step
	rem    uint32 // what has gathered of it, below weight
	weight uint32 // divided by the greatest common divisor of all
	first  uint32 // index
	size   uint32
}

// An endpoint knows whose turn it is next in its class: after the last it is the first again.
type endpoint struct {
	next, class uint32
}

// byWeight returns the weights above zero, divided by their greatest common divisor, in the
// upper and their indexes in the lower half of a word, in order of weight and then index. It
// sorts byte by byte of the weight, from the lowest: O(n), where comparing would be most of
// what an update of ten thousand endpoints costs.
func byWeight(weights []uint32, t totals) []uint64 {
	order, spare := make([]uint64, 0, t.active), make([]uint64, t.active)
	var all uint64 // bits of any weight
	for i, w := range weights {
		if w > 0 {
			order = append(order, uint64(w)/t.gcd<<32|uint64(i))
			all |= uint64(w) / t.gcd << 32
		}
	}
	for shift := 32; all>>shift > 0; shift += 8 {
		var place [256]int // in spare, of the next one with this byte
		for _, o := range order {
			place[byte(o>>shift)]++
		}
		sum := 0
		for b, count := range place {
			place[b] = sum
			sum += count
		}
		for _, o := range order {
			b := byte(o >> shift)
			spare[place[b]] = o
			place[b]++
		}
		order, spare = spare, order
	}
	return order
}

// classify makes the classes of h from the weights above zero, in order of weight and index,
// and returns the number of leaves that they need. If apart, each endpoint is a class of its
// own.
func (h *Heap) classify(order []uint64, apart bool) (leaves int) {
	for i, o := range order {
		index, weight := uint32(o), uint32(o>>32)
		if i == 0 || apart || weight != h.classes[len(h.classes)-1].weight {
			period := (1 << periodBits) / h.unit
			h.classes = append(h.classes, class{
				step:   period / uint64(weight) * h.unit,
				frac:   uint32(period % uint64(weight)),
				weight: weight,
				first:  index,
			})
		} else {
			h.endpoints[uint32(order[i-1])].next = index
		}
		c := &h.classes[len(h.classes)-1]
		c.size++
		h.endpoints[index] = endpoint{next: c.first, class: uint32(len(h.classes) - 1)}
	}
	return 1 << bits.Len(uint(len(h.classes)-1))
}

// packs reports whether a deadline rounded down to a multiple of 2^(shift-62)
// periods still orders the endpoints exactly; order is sorted by weight.
//
// Let period = 2^(62-shift). The deadlines i/a and j/b, in periods, differ by at least
// 1/ab or not at all, so i*period/a and j*period/b differ by at least 1 if ab <=
// period, and then floor keeps apart what is apart. Within one weight the order is
// that of the rounds, whatever the rounding. Hence the two largest different weights
// decide.
func packs(order []uint64, shift int) bool {
	most := order[len(order)-1] >> 32
	for _, o := range slices.Backward(order) {
		if second := o >> 32; second != most {
			return most*second <= 1<<(periodBits-shift)
		}
	}
	return true
}

// start begins a round of the class, at most its weight, and returns when it falls due, in
// units of a key: floor((round-phase)*period/weight).
func (c *class) start(round, unit uint64, phased bool) uint64 {
	shift := periodBits - bits.TrailingZeros64(unit)
	hi, lo := round>>(64-shift), round<<shift
	if phased {
		var borrow uint64
		lo, borrow = bits.Sub64(lo, uint64(phase(c.first))<<(shift-32), 0)
		hi -= borrow
	}
	due, rem := bits.Div64(hi, lo, uint64(c.weight))
	c.rem = uint32(rem)
	return due
}

// advance passes the turn on, to an endpoint hop indexes on, and returns the distance of its
// key. If that is back to the first one, or to itself, the next round begins, 1/weight later.
// Carrying the remainder of that makes every key exactly floor(round*period/weight), however
// many rounds have passed.
//
// Whether a round ends is as hard to predict as who wins, so it is a mask and not a branch.
func (c *class) advance(hop int64, unit uint64) uint64 {
	again := uint64((hop - 1) >> 63)
	step := uint64(hop) + c.step&again
	rem := uint64(c.rem) + uint64(c.frac)&again
	if over := rem - uint64(c.weight); int64(over) >= 0 {
		step, rem = step+unit, over
	}
	c.rem = uint32(rem)
	return step
}

// phase returns how much sooner than after 1/weight the first deadline of an endpoint falls
// with Spread, as a fraction of 1/weight in units of 2^-32. Multiples of the golden ratio,
// whose fraction this is, are evenly spread modulo 1, however many there are.
func phase(index uint32) uint32 { return index * 0x9E3779B9 }
