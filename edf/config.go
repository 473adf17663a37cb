// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"fmt"
	"math"
)

// maxEndpoints keeps an index within 24 bits, so that at least 38 of a packed
// key's 62 bits are left for the deadline. It also bounds what a hostile list of
// endpoints can make the constructors allocate.
const maxEndpoints = 1 << 24

// A Config describes an EDF sequence and the position at which to enter it. All fields except
// Weights may be zero.
type Config struct {
	// Weights holds one weight for each endpoint; a pick is an index into it. An
	// endpoint of weight zero keeps its index but is never picked. At least one
	// weight must be above zero, their sum at most 4294967295 (T-EDS-3), and
	// their number at most 16777216.
	Weights []uint32

	// Start is the number of picks of the sequence before the first one, modulo its period.
	// Zero is the order of the specification, which begins with the heaviest endpoint. A random
	// 64-bit word makes endpoint i the first pick with probability Weights[i]/sum.
	Start uint64

	// Base is the ticket that draws the first pick; see Schedule.At.
	Base uint64
}

// totals describes a valid set of weights.
type totals struct {
	endpoints int    // number of weights
	active    int    // number of weights above zero
	sum       uint64 // of all weights, at most 2^32-1
	gcd       uint64 // of the weights above zero
}

// period is the number of picks after which the sequence repeats: by then every
// endpoint has had weight/gcd picks and all deadlines fall due together.
func (t totals) period() uint64 { return t.sum / t.gcd }

// equal reports whether every active endpoint has the same weight.
func (t totals) equal() bool { return t.period() == uint64(t.active) }

// even reports whether all endpoints have the same weight above zero.
func (t totals) even() bool { return t.equal() && t.active == t.endpoints }

// totals checks the weights. O(n); does not allocate.
func (c Config) totals() (totals, error) {
	t := totals{endpoints: len(c.Weights)}
	if t.endpoints > maxEndpoints {
		return t, fmt.Errorf("edf: weights: %d endpoints, more than %d", t.endpoints, maxEndpoints)
	}
	for _, w := range c.Weights {
		if w == 0 {
			continue
		}
		t.active++
		t.sum += uint64(w)
		if t.gcd != 1 {
			t.gcd = gcd(uint64(w), t.gcd)
		}
	}
	return t, t.check()
}

// check returns an error if the weights are invalid.
func (t totals) check() error {
	if t.active == 0 {
		return fmt.Errorf("edf: weights: none of %d is above zero", t.endpoints)
	}
	if t.sum > math.MaxUint32 {
		return fmt.Errorf("edf: weights: sum %d is more than %d", t.sum, uint32(math.MaxUint32))
	}
	return nil
}

// continued returns the place in a sequence with totals next that corresponds to a place in a
// sequence with totals t: the same virtual time.
//
// After N picks virtual time is N/sum, on the scale on which an endpoint is due every 1/weight,
// so the new place is N*sum'/sum. Endpoints whose weight stays the same keep their credit
// towards the next pick. The place is rounded to the nearest pick, since rounding down would
// repeat half a pick with each update. If only the scale of the weights changes, the period and
// the place stay the same. place is below the period and hence below 2^32, so the product fits
// 64 bits.
func (t totals) continued(next totals, place uint64) uint64 {
	if next.period() == t.period() {
		return place
	}
	return (place*next.sum + t.sum/2) / t.sum
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
