// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
)

// An Alias draws indexes in proportion to integer weights: it maps one random word to one index
// in constant time, regardless of the number of weights and their ratio. Localities and
// weighted clusters are chosen with it.
//
// The zero Alias is not usable; use NewAlias. An Alias must not be copied. It is immutable and
// safe for concurrent use. It uses 16 bytes for each weight above zero.
type Alias struct {
	_     [0]sync.Mutex
	cells []aliasCell
}

// An aliasCell is one of n columns of equal probability. A column belongs to at most two
// indexes: to self below the threshold, otherwise to other.
type aliasCell struct {
	threshold   uint64 // of a draw within the column, in units of 2^-64
	self, other uint32
}

// NewAlias returns a table for weights. An index of weight zero is never drawn. NewAlias fails
// if no weight is above zero, if the sum of the weights exceeds 2³²−1, or if there are 2³¹
// weights or more. O(n); keeps no reference to weights.
//
// The construction is Vose's, in integers: the capacity of a column is the sum W of the
// weights, and weight w has a mass of w·n, so the masses fill the n columns exactly. Columns
// with too little mass are filled from one with too much. Since nothing is rounded, no column
// is left over at the end for which an owner must be guessed, as in floating-point
// implementations. The only error is that thresholds are rounded down to a multiple of 2^-64:
// the number of words that lead to an index differs from its ideal by less than one for each of
// its columns.
func NewAlias(weights []uint32) (*Alias, error) {
	if uint64(len(weights)) > math.MaxInt32 {
		return nil, fmt.Errorf("alias: %d weights exceed the limit of %d", len(weights), math.MaxInt32)
	}
	var sum uint64
	n := 0
	for _, w := range weights {
		sum += uint64(w)
		if w > 0 {
			n++
		}
	}
	if sum == 0 {
		return nil, fmt.Errorf("alias: none of %d weights is above 0", len(weights))
	}
	if sum > math.MaxUint32 {
		return nil, fmt.Errorf("alias: the sum of the weights, %d, exceeds %d", sum, uint32(math.MaxUint32))
	}

	cells := make([]aliasCell, 0, n)
	mass := make([]uint64, 0, n) // below 2³²·2³¹
	queue := make([]int32, n)    // columns that lack mass from the left, columns with excess from the right
	small, large := 0, n
	for i, w := range weights {
		if w == 0 {
			continue
		}
		m := uint64(w) * uint64(n)
		if m < sum {
			queue[small] = int32(len(cells))
			small++
		} else {
			large--
			queue[large] = int32(len(cells))
		}
		cells = append(cells, aliasCell{self: uint32(i), other: uint32(i)})
		mass = append(mass, m)
	}
	// Invariant: the masses of the queued columns sum to the sum of the weights times their
	// number, so while one column lacks mass, another has too much.
	for small > 0 {
		small--
		s, l := queue[small], queue[large]
		cells[s].threshold, _ = bits.Div64(mass[s], 0, sum)
		cells[s].other = cells[l].self
		mass[l] -= sum - mass[s]
		if mass[l] < sum {
			queue[small] = l
			small++
			large++
		}
	}
	return &Alias{cells: cells}, nil
}

// Pick returns the index for the random word r. If r is uniform, the probability of index i is
// weight[i] / sum of weights. O(1); does not allocate.
//
// The high half of r·n is the column. The low half, which is uniform again, is the draw within
// the column. The choice between the column's two indexes is arithmetic, since a branch on a
// random bit is mispredicted half of the time (measured by BenchmarkAlias/impl=branchy).
func (a *Alias) Pick(r uint64) int {
	column, draw := bits.Mul64(r, uint64(len(a.cells)))
	c := &a.cells[column]
	_, below := bits.Sub64(draw, c.threshold, 0)
	return int(c.other ^ (c.other^c.self)&-uint32(below))
}

// random reports whether the result of Pick depends on the random word.
func (a *Alias) random() bool { return len(a.cells) > 1 }
