// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"math"
	"sync/atomic"
)

const (
	// block is the number of picks made at a time. That takes about a microsecond, which is
	// added to the pick that refills.
	block = 64

	// window is the length of a window, in picks: 16 KiB, or 32 KiB for more than 65536
	// endpoints. Half of it lies ahead of the picks, 4 ms at a million picks per second, to
	// bridge the time during which a refiller may be off its CPU. That time does not depend on
	// the number of endpoints, so neither does the length.
	window = 8192

	// initial is the number of picks made before the first one is drawn, and small the initial
	// capacity of a table: 2 KiB. A Schedule may be replaced soon.
	initial = 4 * block
	small   = 1024

	// maxSpins is the number of times that a pick which has overtaken the refiller checks
	// whether the refiller has caught up. It takes about five microseconds, in which a refiller
	// that is on its CPU makes a few blocks.
	maxSpins = 1 << 12

	// endless is above every position: the modulus of positions in a window, and the limit of
	// picks of a complete period.
	endless = 1 << 63
)

// A buffer holds a part of a sequence in a table. The picks themselves fill it in advance: a
// pick that finds too few picks left makes another block, unless another goroutine is doing so.
//
// The buffer is either a whole period, which is filled once and then complete, or a window that
// slides along the sequence and overwrites the oldest picks.
//
// It starts small, since a Schedule whose weights change often is hardly drawn from: the number
// of picks ahead grows to half a window, by one for each three picks drawn. Growing faster would
// make more picks in a short life than are drawn. The table grows as well, a window at once and
// a period by a factor of four each time, so that growing costs less than a nanosecond for each
// pick drawn before.
//
// No pick waits for a goroutine that is off its CPU. If the refiller loses its CPU in the
// middle of a block, the other goroutines use the picks ahead. When these are used up, picks
// fall back on the contents of their slot, which is the pick one window earlier. In any run of
// that many picks, endpoints have about their shares, so the buffer then acts as a table of
// weighted choices, smoother than random choices would be. A reader that is off its CPU until
// its entry is overwritten falls back on the pick one window later.
//
// Goroutines that do nothing but draw outrun the refiller, and would fall back for most of
// their picks. So a pick waits for a few blocks to be made. The first pick whose wait fails
// records where the refiller stalled. Until the refiller advances, all other picks fall back
// immediately.
type buffer struct {
	// Written by the constructor only.
	table *atomic.Pointer[table] // of the Schedule
	end   uint64                 // the position at which the buffer is complete
	ahead uint64                 // number of picks ahead, once enough have been drawn
	first uint64                 // the first position
	start uint64                 // position of first in the queue's sequence
	slots uint64                 // final capacity of the table

	_ [padding]byte

	// made is the next position to make. Written by the owner of busy.
	made atomic.Uint64
	// stalled is the value of made at which a pick last waited without success.
	stalled atomic.Uint64

	fallbacks atomic.Uint64
	busy      atomic.Bool
	queue     *queue // the sequence from made on; owned by the owner of busy

	_ [padding]byte

	testHook func() // called in the middle of a block; nil except in tests
}

// A table has the picks of a buffer. A larger table replaces it and contains all of its picks.
type table struct {
	// Written by the constructor only.
	words []atomic.Uint64 // 4 picks of 16 bits, or 2 of 32
	mask  uint64          // of the slot in a position
	lane  uint            // log2 of the bits of a pick: 4 or 5
	low   uint64          // mask of the bits of a pick

	_ [padding]byte

	// ready is the position from which on a pick makes another block, some distance before the
	// last pick made, or endless. Written by the owner of busy, after the words.
	ready atomic.Uint64
	// oldest is the lowest position that has not been overwritten and is not about to
	// be. Written by the owner of busy, before the words.
	oldest atomic.Uint64

	_ [padding]byte
}

// newBuffer returns the buffer that continues h. It sets the table and makes the first picks.
// window is a power of two and at least two blocks. If whole, positions are below the period,
// otherwise they start at origin.
func newBuffer(t *atomic.Pointer[table], h *queue, whole bool, window uint64) *buffer {
	b := &buffer{table: t, end: h.total.period(), ahead: window / 2, start: h.position, queue: h}
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

// repeat fills the table of a window with its first picks, so that every slot has a valid pick
// to fall back on.
func (b *buffer) repeat(words []atomic.Uint64, picks uint64, lane uint) {
	if b.end == endless {
		for n := picks << lane / 64; n < uint64(len(words)); n *= 2 {
			copy(words[n:], words[:n])
		}
	}
}

// size returns the capacity of the table in picks.
func (t *table) size() uint64 { return uint64(len(t.words)) * 64 >> t.lane }

// load returns the pick in a slot.
func (t *table) load(slot uint64) int {
	bit := slot << (t.lane & 63)
	return int(t.words[bit/64].Load() >> (bit % 64) & t.low)
}

// atEdge implements Schedule.At for positions near or beyond the last pick made, and for
// overwritten ones.
//
//go:noinline
func (b *buffer) atEdge(p uint64) int {
	b.refill(p)
	made := b.made.Load()
	t := b.table.Load() // loaded after made, so the table has all picks before made
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

// fill makes picks until enough of them follow position p, and then clears busy. That is one
// block, or more if other goroutines have drawn more in the meantime or tickets have left a
// gap, and about a window and a half at most.
func (b *buffer) fill(p uint64) {
	window, made := 2*b.ahead, b.made.Load()
	if b.end == endless && p >= made+max(window, uint64(b.queue.total.active)) {
		// The tickets jumped so far that the window has no useful pick left, and a seek is no
		// slower than making the skipped picks.
		made = p / block * block
		b.table.Load().oldest.Store(made)
		b.made.Store(made)
		b.queue.seek(b.start + made - b.first)
	}
	p = min(p, made+window)
	for b.readyAt(b.made.Load()) <= p {
		if b.makeBlock(); b.queue == nil {
			return // complete, and busy forever
		}
	}
	b.busy.Store(false)
}

// fillTo makes the picks before a position, and then clears busy.
func (b *buffer) fillTo(p uint64) {
	for b.made.Load() < p {
		if b.makeBlock(); b.queue == nil {
			return
		}
	}
	b.busy.Store(false)
}

// readyAt returns the position from which on a pick makes another block, given that the picks
// before made are made. While there are few picks, a quarter of them is kept ahead.
func (b *buffer) readyAt(made uint64) uint64 {
	since := made - b.first
	return made - min(b.ahead, initial/2+since/4, since)
}

// makeBlock makes the next block and publishes it. With the last block the buffer is complete
// and drops its queue.
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
			word |= uint64(b.queue.next()) << shift
		}
		t.words[n].Store(word)
		if b.testHook != nil {
			b.testHook()
		}
	}
	made += block
	b.made.Store(made)
	if made >= b.end {
		b.queue = nil
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
