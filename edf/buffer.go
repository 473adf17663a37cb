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

	// initial is how many picks are made before the first one is drawn, and small how many a
	// table has room for to begin with: 2 KiB. A Schedule may be replaced soon.
	initial = 4 * block
	small   = 1024

	// maxSpins is how often a pick that has overtaken the refiller checks whether that has
	// caught up. It takes about five microseconds, in which a refiller that is on its CPU
	// makes a few blocks.
	maxSpins = 1 << 12

	// endless is above every position: the modulus of positions in a window, and where
	// the picks of a complete period end.
	endless = 1 << 63
)

// A buffer holds a part of a sequence, in a table. The picks themselves fill it in advance: a
// pick that finds too few picks left makes another block, unless another goroutine is doing so.
//
// The buffer is either a whole period, which is filled once and then complete, or a window
// that slides along the sequence and overwrites the oldest picks.
//
// It begins small, as a Schedule of which weights change often is hardly drawn from. As it is,
// the picks that lie ahead become as many as those that were drawn, up to half a window: every
// 32nd pick makes a block then, and later every 64th. And the table grows, to a window at once
// and to a period by four times each time, so that what it costs the pick that does it is less
// than a nanosecond for each pick drawn before.
//
// No pick waits for a goroutine that is off its CPU. If that happens to the refiller in the
// middle of a block, the picks ahead are left for the others. When these are used up, picks fall
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
	table *atomic.Pointer[table] // the Schedule's
	end   uint64                 // the position at which the buffer is complete
	ahead uint64                 // picks, once enough have been drawn
	first uint64                 // the first position
	start uint64                 // its place in the heap's sequence
	slots uint64                 // that the table comes to have

	_ [padding]byte

	// made is the next position to make. Written by the owner of busy.
	made atomic.Uint64
	// stalled is the value of made at which a pick last waited in vain.
	stalled atomic.Uint64

	fallbacks atomic.Uint64
	busy      atomic.Bool
	heap      *Heap // the sequence from made on; belongs to the owner of busy

	_ [padding]byte

	testHook func() // called in the middle of a block; nil except in tests
}

// A table has the picks of a buffer. One that has grown replaces it, and has all of them, too.
type table struct {
	// Written by the constructor only.
	words []atomic.Uint64 // 4 picks of 16 bits, or 2 of 32
	mask  uint64          // of the slot in a position
	lane  uint            // log2 of the bits of a pick: 4 or 5
	low   uint64          // mask of the bits of a pick

	_ [padding]byte

	// ready is where a pick makes another block: so far before the end of what is made, or
	// endless. Written by the owner of busy, after the words.
	ready atomic.Uint64
	// oldest is the lowest position that has not been overwritten and is not about to
	// be. Written by the owner of busy, before the words.
	oldest atomic.Uint64

	_ [padding]byte
}

// newBuffer returns the buffer that continues h in a table that it sets, and makes its first
// picks. window is a power of two and at least two blocks. If whole, positions are
// those below the period, otherwise they begin at origin.
func newBuffer(t *atomic.Pointer[table], h *Heap, whole bool, window uint64) *buffer {
	b := &buffer{table: t, end: h.Period(), ahead: window / 2, start: h.position, heap: h}
	b.slots = (b.end + block - 1) / block * block
	if !whole {
		b.end, b.slots, b.first = endless, window, origin
	}
	b.made.Store(b.first)
	lane := uint(4)
	if h.total.endpoints > math.MaxUint16+1 {
		lane = 5
	}
	now := b.newTable(min(small, b.slots), lane)
	now.oldest.Store(b.first)
	t.Store(now)
	b.busy.Store(true)
	b.fillTo(b.first + min(initial, window))
	b.repeat(now.words, b.made.Load()-b.first, lane)
	return b
}

func (b *buffer) newTable(slots uint64, lane uint) *table {
	t := &table{words: make([]atomic.Uint64, slots<<lane/64), mask: math.MaxUint64, lane: lane, low: 1<<(1<<lane) - 1}
	if b.end == endless {
		t.mask = slots - 1
	}
	return t
}

// repeat fills the table of a window with the picks that it begins with, so that what picks
// may fall back on is a pick.
func (b *buffer) repeat(words []atomic.Uint64, picks uint64, lane uint) {
	if b.end == endless {
		for n := picks << lane / 64; n < uint64(len(words)); n *= 2 {
			copy(words[n:], words[:n])
		}
	}
}

// size returns how many picks the table has room for.
func (t *table) size() uint64 { return uint64(len(t.words)) * 64 >> t.lane }

// load returns the pick in a slot.
func (t *table) load(slot uint64) int {
	bit := slot << (t.lane & 63)
	return int(t.words[bit/64].Load() >> (bit % 64) & t.low)
}

// atEdge is Schedule.At for positions near the end of what is made, beyond it, or overwritten.
//
//go:noinline
func (b *buffer) atEdge(p uint64) int {
	b.refill(p)
	made := b.made.Load()
	t := b.table.Load() // after made, of which it has all
	slot := p & t.mask
	if slot >= made {
		slot %= made // an incomplete period has no slot for p yet
	}
	index := t.load(slot)
	if p >= made || p < t.oldest.Load() {
		b.fallbacks.Add(1)
	}
	return index
}

// refill makes picks up to position p and enough ahead of it, or waits for another goroutine
// that does.
func (b *buffer) refill(p uint64) {
	made := b.made.Load()
	before := made
	for range maxSpins {
		if p < b.table.Load().ready.Load() {
			return
		}
		if !b.busy.Load() && b.busy.CompareAndSwap(false, true) {
			b.fill(p)
			return
		}
		if p < made || made == b.stalled.Load() {
			return
		}
		made = b.made.Load()
	}
	if p >= made && made == before {
		b.stalled.Store(made)
	}
}

// fill makes picks until enough of them follow position p, and then clears busy. That
// is one block, or more if others have drawn more in the meantime or tickets have left a gap,
// and about a window and a half at most.
func (b *buffer) fill(p uint64) {
	window, made := 2*b.ahead, b.made.Load()
	if b.end == endless && p >= made+max(window, uint64(b.heap.total.active)) {
		// The tickets jumped so far that nothing in the window is of use, and that a Seek is
		// no slower than making the picks that they skipped.
		made = p / block * block
		b.table.Load().oldest.Store(made)
		b.made.Store(made)
		b.heap.Seek(b.start + made - b.first)
	}
	p = min(p, made+window)
	for b.readyAt(b.made.Load()) <= p {
		if b.makeBlock(); b.heap == nil {
			return // complete, and busy for good
		}
	}
	b.busy.Store(false)
}

// fillTo makes the picks before a position, and then clears busy.
func (b *buffer) fillTo(p uint64) {
	for b.made.Load() < p {
		if b.makeBlock(); b.heap == nil {
			return
		}
	}
	b.busy.Store(false)
}

// readyAt returns the position from which on a pick makes another block, when those before made
// are made. As long as these are few it is half of the way further with each block.
func (b *buffer) readyAt(made uint64) uint64 {
	since := made - b.first
	return made - min(b.ahead, (since+initial)/2, since)
}

// makeBlock makes the next block and publishes it. With the last one the buffer is complete,
// and has no heap any more.
func (b *buffer) makeBlock() {
	t, made := b.table.Load(), b.made.Load()
	if size := t.size(); made-b.first >= size && size < b.slots {
		t = b.grow(t)
	}
	if b.end == endless {
		t.oldest.Store(max(t.oldest.Load(), made+block-b.slots))
	}
	bit := made & t.mask << t.lane
	for n := bit / 64; n < bit/64+block<<t.lane/64; n++ {
		var word uint64
		for shift := 0; shift < 64; shift += 1 << t.lane {
			word |= uint64(b.heap.Next()) << shift
		}
		t.words[n].Store(word)
		if b.testHook != nil {
			b.testHook()
		}
	}
	made += block
	b.made.Store(made)
	if made >= b.end {
		b.heap = nil
		t.ready.Store(endless)
		return
	}
	t.ready.Store(b.readyAt(made))
}

// grow replaces the table, which has never been overwritten, by a larger one.
func (b *buffer) grow(t *table) *table {
	size := b.slots
	if b.end != endless {
		size = min(4*t.size(), b.slots)
	}
	next := b.newTable(size, t.lane)
	next.ready.Store(t.ready.Load())
	next.oldest.Store(t.oldest.Load())
	b.repeat(next.words, uint64(copy(next.words, t.words))*64>>t.lane, t.lane)
	b.table.Store(next)
	return next
}
