// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"runtime"
	"sync/atomic"
)

// breakerStripes are the stripes of a Breaker, one for each P. The Breaker owns them: open makes
// them when contention is first observed, and they remain until the Breaker is freed, since they
// may keep slots. They take 128 bytes for each P, plus 256.
//
// A stripe keeps the slots of RPCs that ended on its P, for the next RPCs that begin there. So a
// slot is either free in Breaker.taken, or kept by a stripe, or held by an RPC, and
//
//	RPCs in flight = taken − Σ kept
//
// at all times, since each operation changes one word, and that by one slot:
//
//	Acquire   takes a slot from the stripe of its P, or else from Breaker.taken if that is below the limit,
//	          or else from any stripe
//	Release   adds the slot to the stripe of its P, or returns it to Breaker.taken if the stripe
//	          is full or closed
//
// As taken never exceeds the limit, neither do the RPCs in flight, without any reserve for stripes.
// And no RPC is rejected for slots that stripes keep: a rejection requires a moment at which no
// stripe keeps any. Looking at one stripe after the other finds no such moment, since slots move
// meanwhile. So Acquire first closes the stripes: a closed stripe gets no more slots. A closed
// stripe that was found empty stays empty, and once all are, taken is the number of RPCs in flight,
// and rejections cost a few reads. Stripes are opened again when contention is observed and at most
// half of the limit is in use.
//
// Neither opening nor closing waits for other goroutines. Opening increments epoch to an even
// number, and the users of each stripe open it when they see that. Closing increments epoch to an
// odd number, and the goroutine that does so visits all stripes. A stripe records the epoch in which it was
// last opened or closed, so that a goroutine that was delayed cannot open a stripe again: its
// compare-and-swap fails.
//
// Transferring slots in batches was rejected: slots that have left taken and not yet arrived at the
// stripe would be missing for others, so that they reject an RPC early.
type breakerStripes struct {
	epoch   atomic.Uint64 // odd while the stripes are closed
	drained atomic.Uint64 // the odd epoch in which all stripes were found empty
	// ceiling is at least taken while takenStriped is set. Callers with a lower limit must not take
	// slots from their stripes.
	ceiling atomic.Uint64
	keep    atomic.Uint64 // the maximum number of slots that a stripe keeps
	_       [lineSize - 4*8]byte
	list    []breakerStripe
	_       [lineSize - 3*8]byte
}

// maxKeep limits breakerStripes.keep. RPCs begin and end on a P about equally often, so that the
// number of slots of a stripe is a random walk, which meets its ends at about 1/maxKeep of the
// steps.
const maxKeep = 32

// A breakerStripe has the slots that it keeps, the epoch in which it was last opened or closed, and a
// count of its changes.
type breakerStripe struct {
	word atomic.Uint64
	_    [lineSize - 8]byte
}

// The parts of breakerStripe.word.
const (
	keptMask   = 1<<16 - 1
	epochShift = 16
	epochMask  = 1<<24 - 1
	keptClosed = 1 << epochShift // the epoch is odd
	keptChange = 1 << 40
	turn       = 1024 << 40 // changes
)

// before reports whether the word's epoch precedes epoch e.
func before(word, e uint64) bool {
	d := (e - word>>epochShift) & epochMask
	return d != 0 && d < epochMask/2
}

// at returns the word with epoch e.
func at(word, e uint64) uint64 {
	return word&^(epochMask<<epochShift) | e&epochMask<<epochShift
}

// of returns the stripe of P p.
func (s *breakerStripes) of(p int) *breakerStripe {
	if uint(p) >= uint(len(s.list)) {
		p %= len(s.list)
	}
	return &s.list[p]
}

// acquireAt is Acquire on P p.
func (b *Breaker) acquireAt(p int, limit uint32) bool {
	striped := b.striped.Load() != 0
	if striped && b.acquireFromStripe(p, limit) {
		return true
	}
	for {
		v := b.taken.Load()
		b.step()
		if v&takenMask >= uint64(limit) {
			if admitted, ok := b.exhausted(limit); ok {
				return admitted
			}
			continue
		}
		if v&takenStriped != 0 {
			b.stripes.Load().raise(uint64(limit))
		}
		if perProcessor && !striped && b.misses.missed(v>>41) {
			b.open(limit, runtime.GOMAXPROCS(0))
		}
		b.step()
		if b.taken.CompareAndSwap(v, v+takenOne) {
			return true
		}
	}
}

// acquireFromStripe takes a slot from the stripe of P p, if that keeps one.
//
// The word is read before the ceiling. As long as the stripe is open, takenStriped is set and taken
// is at most the ceiling. If the word has not changed, all of this was so when the ceiling was
// read.
func (b *Breaker) acquireFromStripe(p int, limit uint32) bool {
	s := b.stripes.Load()
	stripe := s.of(p)
	w := stripe.word.Load()
	b.step()
	if w&keptClosed != 0 {
		b.settle()
		return false
	}
	if uint64(limit) < s.ceiling.Load() {
		s.close()
		return false
	}
	b.step()
	if w&keptMask == 0 || !stripe.word.CompareAndSwap(w, w+keptChange-1) {
		return false
	}
	if w&(turn-keptChange) <= keptChange && b.last.alone(p, aloneTurns) {
		s.close()
		b.settle()
	}
	return true
}

// releaseAt is release on P p.
func (b *Breaker) releaseAt(p int) {
	s := b.stripes.Load()
	stripe := s.of(p)
	w := stripe.word.Load()
	b.step()
	next := w
	if e := s.epoch.Load(); e%2 == 0 && before(w, e) {
		next = at(w, e)
	}
	b.step()
	if next&keptClosed != 0 || next&keptMask >= s.keep.Load() || !stripe.word.CompareAndSwap(w, next+keptChange+1) {
		b.taken.Add(^uint64(0))
	}
}

// exhausted decides on an RPC for which taken has no free slot: it is admitted if a stripe keeps a
// slot. ok is false if the state has changed meanwhile.
func (b *Breaker) exhausted(limit uint32) (admitted, ok bool) {
	s := b.stripes.Load()
	if s == nil {
		return false, true // so there were no stripes when taken was read
	}
	s.close()
	b.step()
	e := s.epoch.Load()
	if e%2 == 0 {
		return false, false
	}
	if s.drained.Load() != e {
		if b.visit(s, e, true) {
			b.step()
			if b.taken.Load()&takenMask <= uint64(limit) {
				return true, true
			}
			b.taken.Add(^uint64(0)) // others have a higher limit
			return false, false
		}
		if s.epoch.Load() != e {
			return false, false
		}
		b.step()
		s.drained.Store(e)
	}
	b.step()
	// While epoch is e, all stripes are empty and taken is the number of RPCs in flight.
	full := b.taken.Load()&takenMask >= uint64(limit)
	b.step()
	return false, full && s.epoch.Load() == e
}

// close closes the stripes, unless they are closed.
func (s *breakerStripes) close() {
	if e := s.epoch.Load(); e%2 == 0 {
		s.epoch.CompareAndSwap(e, e+1)
	}
}

// visit closes all stripes in the odd epoch e. If take is true it takes a slot from the first
// stripe that keeps one, and then returns true.
func (b *Breaker) visit(s *breakerStripes, e uint64, take bool) (taken bool) {
	for i := range s.list {
		word := &s.list[i].word
		b.step()
		for {
			w := word.Load()
			next := w
			if before(w, e) {
				next = at(w, e)
			}
			taken = take && w&keptMask > 0
			if taken {
				next--
			}
			if next == w || word.CompareAndSwap(w, next+keptChange) {
				break
			}
		}
		if taken {
			return true
		}
	}
	return false
}

// raise raises the ceiling to limit.
func (s *breakerStripes) raise(limit uint64) {
	for c := s.ceiling.Load(); c < limit && !s.ceiling.CompareAndSwap(c, limit); c = s.ceiling.Load() {
	}
}

// open makes RPCs use stripes, for n P, if at most half of the limit is in use and the stripes can
// keep enough without exceeding another quarter. Other goroutines that open or settle at the same
// time make it do nothing.
func (b *Breaker) open(limit uint32, n int) {
	keep := min(maxKeep, uint64(limit)/4/uint64(n))
	if n < 2 || keep == 0 || b.total.Load() || !b.changing.CompareAndSwap(false, true) {
		return
	}
	defer b.changing.Store(false)
	if b.striped.Load() != 0 {
		return
	}
	s := b.stripes.Load()
	if s == nil {
		s = &breakerStripes{list: make([]breakerStripe, n)}
		s.epoch.Store(1)
		b.visit(s, 1, false)
		b.stripes.Store(s)
	}
	s.keep.Store(keep)
	s.ceiling.Store(uint64(limit))
	for v := b.taken.Load(); v&takenMask <= uint64(limit)/2; v = b.taken.Load() {
		if b.taken.CompareAndSwap(v, v|takenStriped) {
			b.step()
			s.epoch.Add(1)
			b.striped.Store(1)
			if b.total.Load() {
				s.close()
			}
			return
		}
	}
}

// settle makes RPCs use taken alone once the stripes are closed. Slots that stripes keep remain
// there until they are needed.
func (b *Breaker) settle() {
	s := b.stripes.Load()
	if s == nil || s.epoch.Load()%2 == 0 || !b.changing.CompareAndSwap(false, true) {
		return
	}
	defer b.changing.Store(false)
	if e := s.epoch.Load(); e%2 == 1 && b.striped.Load() != 0 {
		b.visit(s, e, false)
		b.step()
		b.taken.And(^uint64(takenStriped))
		b.striped.Store(0)
	}
}

// free returns the number of slots that stripes keep.
func (s *breakerStripes) free() (n int64) {
	for i := range s.list {
		n += int64(s.list[i].word.Load() & keptMask)
	}
	return n
}
