// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math"
	"sync/atomic"
)

const (
	// block is the number of picks that are made at a time. That takes about a microsecond,
	// which a refill adds to the pick that does it.
	block = 64

	// window is the length of a window, in picks: 16 KiB, or 32 KiB for more than 65536
	// endpoints. Half of it lies ahead, 4 ms at a million picks per second, to bridge the
	// time that a refiller may be off its CPU. That time does not depend on the number of
	// endpoints, so neither does the length.
	window = 8192

	// maxSpins is how often a pick that has overtaken the refiller checks whether that has
	// caught up. It takes about five microseconds, in which a refiller that is on its CPU
	// makes a few blocks.
	maxSpins = 1 << 12

	// endless is above every position: the modulus of positions in a window, and where
	// the picks of a complete period end.
	endless = 1 << 63
)

// A buffer holds a part of a sequence. The picks themselves fill it in advance: a pick that
// finds less than ahead picks left makes another block, unless another goroutine is doing so.
//
// The buffer is either a whole period, which is filled once and then complete, or a window
// that slides along the sequence and overwrites the oldest picks.
//
// No pick waits for a goroutine that is off its CPU. If that happens to the refiller in the
// middle of a block, ahead picks are left for the others. When these are used up, picks fall
// back on what their slot holds, which is the pick one window earlier. In any such number of
// picks in a row endpoints have about their shares, so the buffer is a table of weighted
// choices then, and a smoother one than random choices would be. A reader that is off its CPU
// until its entry is overwritten falls back on the pick one window later.
//
// Goroutines that do nothing but draw outrun the refiller, and would fall back on most of
// their picks. So a pick waits for a few blocks to be made. The first one that waits in vain
// records where the refiller stalled. Until the refiller moves on, all others fall back at
// once.
type buffer struct {
	// Written by the constructor only.
	words []atomic.Uint64 // 4 picks of 16 bits, or 2 of 32
	mask  uint64          // of the slot in a position
	lane  uint            // log2 of the bits of a pick: 4 or 5
	low   uint64          // mask of the bits of a pick
	end   uint64          // the position at which the buffer is complete
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

	// stalled is the value of ready at which a pick last waited in vain.
	stalled atomic.Uint64

	fallbacks atomic.Uint64
	busy      atomic.Bool
	made      uint64 // the next position to make; belongs to the owner of busy, as does
	heap      *Heap  // the sequence from there on

	_ [padding]byte

	testHook func() // called in the middle of a block; nil except in tests
}

// newBuffer returns the buffer that continues h and makes its first picks, as many as a
// window holds. window is a power of two and at least two blocks. If whole, positions are
// those below the period, otherwise they begin at origin.
func newBuffer(h *Heap, whole bool, window uint64) *buffer {
	b := &buffer{
		mask:  math.MaxUint64,
		lane:  4,
		low:   math.MaxUint16,
		end:   h.Period(),
		ahead: window / 2,
		start: h.position,
		heap:  h,
	}
	slots := (b.end + block - 1) / block * block
	if !whole {
		b.mask, b.end, slots = window-1, endless, window
		b.first, b.made = origin, origin
		b.oldest.Store(origin)
	}
	if h.total.endpoints > math.MaxUint16+1 {
		b.lane, b.low = 5, math.MaxUint32
	}
	b.words = make([]atomic.Uint64, slots<<b.lane/64)
	b.busy.Store(true)
	b.fill(b.first + window - 1 - b.ahead)
	return b
}

// load returns the pick in a slot.
func (b *buffer) load(slot uint64) int {
	bit := slot << (b.lane & 63)
	return int(b.words[bit/64].Load() >> (bit % 64) & b.low)
}

// atEdge is Schedule.At for positions near the end of what is made, beyond it, or overwritten.
//
//go:noinline
func (b *buffer) atEdge(p uint64) int {
	made := b.refill(p)
	slot := p & b.mask
	if slot >= made {
		slot %= made // an incomplete period has no slot for p yet
	}
	index := b.load(slot)
	if p >= made || p < b.oldest.Load() {
		b.fallbacks.Add(1)
	}
	return index
}

// refill makes picks up to position p and enough ahead of it, or waits for another goroutine
// that does. It returns the end of what is made, which may be before p.
func (b *buffer) refill(p uint64) (made uint64) {
	ready := b.ready.Load()
	before := ready
	for range maxSpins {
		if p < ready {
			break
		}
		if !b.busy.Load() && b.busy.CompareAndSwap(false, true) {
			b.fill(p)
			return b.ready.Load() + b.ahead
		}
		if p < ready+b.ahead || ready == b.stalled.Load() {
			break
		}
		ready = b.ready.Load()
	}
	if p >= ready+b.ahead && ready == before {
		b.stalled.Store(ready)
	}
	return ready + b.ahead
}

// fill makes picks until more than ahead of them follow position p, and then clears busy. That
// is one block, or more if others have drawn more in the meantime or tickets have left a gap,
// and about a window and a half at most.
func (b *buffer) fill(p uint64) {
	window := 2 * b.ahead
	if b.end == endless && p >= b.made+max(window, uint64(b.heap.total.active)) {
		// The tickets jumped so far that nothing in the window is of use, and that a Seek is
		// no slower than making the picks that they skipped.
		b.made = p / block * block
		b.oldest.Store(b.made)
		b.heap.Seek(b.start + b.made - b.first)
	}
	end := min(p, b.made+window) + b.ahead
	for b.made <= end {
		b.makeBlock()
		if b.made >= b.end {
			b.heap = nil
			b.ready.Store(endless)
			return // complete, and busy for good
		}
	}
	b.busy.Store(false)
}

// makeBlock makes the next block and publishes it.
func (b *buffer) makeBlock() {
	if b.end == endless {
		b.oldest.Store(max(b.oldest.Load(), b.made+block-2*b.ahead))
	}
	bit := b.made & b.mask << b.lane
	for n := bit / 64; n < bit/64+block<<b.lane/64; n++ {
		var word uint64
		for shift := 0; shift < 64; shift += 1 << b.lane {
			word |= uint64(b.heap.Next()) << shift
		}
		b.words[n].Store(word)
		if b.testHook != nil {
			b.testHook()
		}
	}
	b.made += block
	b.ready.Store(max(b.made, b.ahead) - b.ahead)
}
