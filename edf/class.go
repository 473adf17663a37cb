// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math/bits"
	"slices"
)

// A class has the endpoints of one weight. They have the same deadlines, and ties are broken by
// index, so they take turns in order of index, and the tournament only needs the key of the
// endpoint whose turn it is. Fleets with few distinct weights have a small tree.
type class struct {
	step   uint64 // the whole part of 1/weight in a key
	frac   uint32 // remainder of step, in units of 1/weight of the lowest bit of step
	rem    uint32 // accumulated remainder, below weight
	weight uint32 // divided by layout.scale
	first  uint32 // lowest index
	last   uint32 // highest index
	size   uint32
}

// newClass returns the class of a weight, divided by layout.scale, with one endpoint.
func newClass(weight uint32, unit uint64, index uint32) class {
	period := (1 << periodBits) / unit
	return class{
		step:   period / uint64(weight) * unit,
		frac:   uint32(period % uint64(weight)),
		weight: weight,
		first:  index,
		last:   index,
		size:   1,
	}
}

// byWeight returns a word for each weight above zero, in order of weight and then index: the
// weight, divided by the greatest common divisor of all, in the upper half and the index in the
// lower half. It is a radix sort by the bytes of the weight, O(n). A comparison sort would
// dominate the cost of an update of ten thousand endpoints.
func byWeight(weights []uint32, t totals) []uint64 {
	order, spare := make([]uint64, 0, t.active), make([]uint64, t.active)
	var all uint64 // bits that any weight has
	for i, w := range weights {
		if w > 0 {
			order = append(order, uint64(w)/t.gcd<<32|uint64(i))
			all |= uint64(w) / t.gcd << 32
		}
	}
	for shift := 32; all>>shift > 0; shift += 8 {
		var place [256]int // next position in spare for each byte
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

// classify makes the classes of l from the result of byWeight.
func (l *layout) classify(order []uint64) {
	for i, o := range order {
		index, weight := uint32(o), uint32(o>>32)
		if i == 0 || l.single || weight != l.classes[len(l.classes)-1].weight {
			l.classes = append(l.classes, newClass(weight, l.unit, index))
		} else {
			c := &l.classes[len(l.classes)-1]
			l.links.at(c.last).next = index
			c.last = index
			c.size++
		}
		k := uint32(len(l.classes) - 1)
		*l.links.at(index) = endpoint{next: l.classes[k].first, class: k}
	}
}

// packs reports whether deadlines rounded down to a multiple of 2^(shift-62) periods still
// order the endpoints exactly. order is sorted by weight.
//
// Let period = 2^(62-shift). The deadlines i/a and j/b, in periods, differ by at least 1/ab
// or not at all. So if ab <= period, i*period/a and j*period/b differ by at least 1 or not
// at all, and rounding down keeps their order. Within one weight the order is that of the
// rounds, whatever the rounding. Hence the two largest different weights decide.
func packs(order []uint64, shift int) bool {
	most := order[len(order)-1] >> 32
	for _, o := range slices.Backward(order) {
		if second := o >> 32; second != most {
			return most*second <= 1<<(periodBits-shift)
		}
	}
	return true
}

// start starts a round of the class, at most its weight, and returns its deadline in units of a
// key: floor(round*period/weight).
func (c *class) start(round, unit uint64) uint64 {
	shift := periodBits - bits.TrailingZeros64(unit)
	due, rem := bits.Div64(round>>(64-shift), round<<shift, uint64(c.weight))
	c.rem = uint32(rem)
	return due
}

// advance passes the turn to the endpoint that is hop indexes further, and returns the distance
// of its key. If hop is not positive, the next round begins, 1/weight later. The remainder is
// carried, so each key is exactly floor(round*period/weight), regardless of the number of
// rounds.
//
// The end of a round is hard to predict, so the code uses a mask instead of a branch.
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
