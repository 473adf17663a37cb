// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math/bits"
)

// A pick takes several random decisions and one random word, since drawing
// another costs more than mixing this one (4.6 against 0.9 ns). The locality gets
// the word as it is, and every other decision its own number here.
const (
	drawCluster = 1 + iota // of a weighted route
	drawDrop
	drawHash                             // of an RPC that has none
	drawProbe                            // of hosts with room
	drawTicket                           // number 0 of a lottery; there are maxChoices
	drawRoute  = drawTicket + maxChoices // runtime_fraction of route 0; route i has drawRoute + i
)

// draw returns the random word of decision k: output k of splitmix64 (Steele,
// Lea and Flood, "Fast splittable pseudorandom number generators", 2014) started
// at r. For each k it is a permutation of r, so it is as uniform as r.
func draw(r uint64, k uint64) uint64 {
	r += k * 0x9e3779b97f4a7c15
	r = (r ^ r>>30) * 0xbf58476d1ce4e5b9
	r = (r ^ r>>27) * 0x94d049bb133111eb
	return r ^ r>>31
}

// A chance is a probability in units of 2^-63, from 0 to 1 inclusive: the two
// ends are exact, which 64 bits would leave no room for. Word x hits it if
// x>>1 < chance.
type chance uint64

const certain chance = 1 << 63

// perMillion returns n·10⁻⁶ of whole, rounded down. n is at most 10⁶.
func (whole chance) perMillion(n uint32) chance {
	hi, lo := bits.Mul64(uint64(whole), uint64(n))
	part, _ := bits.Div64(hi, lo, 1e6)
	return chance(part)
}

// hit reports whether word x is within the chance.
func (c chance) hit(x uint64) bool { return x>>1 < uint64(c) }

// random reports whether it takes a random word to tell whether c is hit.
func (c chance) random() bool { return c != 0 && c != certain }

// dropBounds compiles the drop categories of a leaf. An independent draw for
// each category in list order, where the first hit drops the RPC (T-DROP-2), has
// the same outcome as one draw against p₁, p₁+(1−p₁)·p₂, and so on: category i is
// hit below bound i and not below bound i−1. Each bound is off by less than 2^-63
// for each category. O(len(drops)).
func dropBounds(drops []Drop) ([]chance, error) {
	bounds := make([]chance, len(drops))
	var bound chance
	for i, d := range drops {
		if d.PerMillion > 1e6 {
			return nil, fmt.Errorf("drop category %q: %d per million", d.Category, d.PerMillion)
		}
		bound += (certain - bound).perMillion(d.PerMillion)
		bounds[i] = bound
	}
	return bounds, nil
}

// dropCategory returns the index of the category that word x hits, given that
// it hits one.
func dropCategory(bounds []chance, x uint64) int {
	for i, b := range bounds {
		if b.hit(x) {
			return i
		}
	}
	return len(bounds) - 1
}
