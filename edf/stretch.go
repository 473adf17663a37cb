// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math"
	"sync/atomic"
)

const (
	// block is how many picks are made at a time: about a microsecond's worth, which is
	// what a refill adds to the pick that does it.
	block = 64

	// window is the length of a window, in picks: 16 KiB, or 32 KiB for more than 65536
	// endpoints. Half of it lies ahead, 4 ms at a million picks per second, to bridge the
	// time that a refiller may be off its CPU. That has nothing to do with the number of
	// endpoints, and so neither has the length.
	window = 8192

	// patience is how often a pick that has overtaken the refiller looks for it to catch up.
	// It takes about five microseconds, in which a refiller that is on its CPU makes some
	// blocks.
	patience = 1 << 12

	// endless is above every position: the modulus of positions in a window, and where
	// the picks of a complete period end.
	endless = 1 << 63
)

// A stretch is the part of a sequence that is in memory, made ahead of the picks by the picks
// themselves: one that finds less than ahead left makes another block, unless another
// goroutine is at it.
//
// The stretch is either a whole period, which fills up once and is complete, or a window that
// slides along the sequence and overwrites what lies furthest back.
//
// No pick waits for a goroutine that is off its CPU. When one loses it in the middle of a block,
// it leaves ahead picks behind for the others. When these are used up, they fall back on what
// their slot holds, which is the pick one window earlier. Endpoints have about their shares of
// any such number of picks in a row, so that the stretch is its own table of weighted choices,
// and a smoother one than random choices would be. A reader that loses its CPU for so long that
// its entry is overwritten falls back likewise, on the pick one window later.
//
// Goroutines that do nothing but draw outrun the refiller, though, and would fall back on most of
// their picks. So a pick does wait for some blocks to be made. The first that sees none says where
// the refiller stalled, and until it moves from there all the others fall back at once.
type stretch struct {
	// Written by the constructor only.
	words []atomic.Uint64 // 4 picks of 16 bits, or 2 of 32
	mask  uint64          // of the slot in a position
	lane  uint            // log2 of the bits of a pick: 4 or 5
	low   uint64          // mask of the bits of a pick
	end   uint64          // the position at which the stretch is complete
	ahead uint64
	first uint64 // the first position
	start uint64 // its place in the heap's sequence

	_ [padding]byte

	// ready is ahead positions before the end of what is made, or endless. Written by
	// the owner of busy, after the words.
	ready atomic.Uint64
	// oldest is the lowest position that has not been overwritten and is not about to
	// be. Written by the owner of busy, before the words.
	oldest atomic.Uint64

	// stalled is the value of ready at which a pick has waited in vain.
	stalled atomic.Uint64

	fallbacks atomic.Uint64
	busy      atomic.Bool
	made      uint64 // the next position to make; belongs to the owner of busy, as does
	heap      *Heap  // the sequence from there on

	_ [padding]byte

	parked func() // called in the middle of a block; nil except in tests
}

// newStretch returns the stretch that continues h and makes its first picks, as many as a
// window holds. window is a power of two and at least two blocks. If whole, positions are
// those below the period, otherwise they begin at origin.
func newStretch(h *Heap, whole bool, window uint64) *stretch {
	t := &stretch{
		mask:  math.MaxUint64,
		lane:  4,
		low:   math.MaxUint16,
		end:   h.Period(),
		ahead: window / 2,
		start: h.position,
		heap:  h,
	}
	slots := (t.end + block - 1) / block * block
	if !whole {
		t.mask, t.end, slots = window-1, endless, window
		t.first, t.made = origin, origin
		t.oldest.Store(origin)
	}
	if h.total.endpoints > math.MaxUint16+1 {
		t.lane, t.low = 5, math.MaxUint32
	}
	t.words = make([]atomic.Uint64, slots<<t.lane/64)
	t.busy.Store(true)
	t.fill(t.first + window - 1 - t.ahead)
	return t
}

// load returns the pick in a slot.
func (t *stretch) load(slot uint64) int {
	bit := slot << (t.lane & 63)
	return int(t.words[bit/64].Load() >> (bit % 64) & t.low)
}

// atEdge is Schedule.At for positions near the end of what is made, beyond it, or overwritten.
//
//go:noinline
func (t *stretch) atEdge(p uint64) int {
	made := t.refill(p)
	slot := p & t.mask
	if slot >= made {
		slot %= made // an incomplete period has no slot for p yet
	}
	index := t.load(slot)
	if p >= made || p < t.oldest.Load() {
		t.fallbacks.Add(1)
	}
	return index
}

// refill sees to it that position p is made and enough ahead of it, by this goroutine or by
// another, and returns the end of what is made.
func (t *stretch) refill(p uint64) (made uint64) {
	ready := t.ready.Load()
	before := ready
	for range patience {
		if p < ready {
			break
		}
		if !t.busy.Load() && t.busy.CompareAndSwap(false, true) {
			t.fill(p)
			return t.ready.Load() + t.ahead
		}
		if p < ready+t.ahead || ready == t.stalled.Load() {
			break
		}
		ready = t.ready.Load()
	}
	if p >= ready+t.ahead && ready == before {
		t.stalled.Store(ready)
	}
	return ready + t.ahead
}

// fill makes picks until more than ahead of them follow position p, and gives busy up. That is
// one block, unless others have drawn more than that in the meantime or tickets have left a
// gap, and about a window and a half at most.
func (t *stretch) fill(p uint64) {
	window := 2 * t.ahead
	if t.end == endless && p >= t.made+max(window, uint64(t.heap.total.active)) {
		// The tickets leapt so far that nothing in the window is of use, and so far that a
		// Seek is no slower than making the picks that they leapt over.
		t.made = p / block * block
		t.oldest.Store(t.made)
		t.heap.Seek(t.start + t.made - t.first)
	}
	end := min(p, t.made+window) + t.ahead
	for t.made <= end {
		t.makeBlock()
		if t.made >= t.end {
			t.heap = nil
			t.ready.Store(endless)
			return // complete, and busy for good
		}
	}
	t.busy.Store(false)
}

// makeBlock makes the next block and publishes it.
func (t *stretch) makeBlock() {
	if t.end == endless {
		t.oldest.Store(max(t.oldest.Load(), t.made+block-2*t.ahead))
	}
	bit := t.made & t.mask << t.lane
	for n := bit / 64; n < bit/64+block<<t.lane/64; n++ {
		var word uint64
		for shift := 0; shift < 64; shift += 1 << t.lane {
			word |= uint64(t.heap.Next()) << shift
		}
		t.words[n].Store(word)
		if t.parked != nil {
			t.parked()
		}
	}
	t.made += block
	t.ready.Store(max(t.made, t.ahead) - t.ahead)
}
