// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "sync/atomic"

// A Breaker counts the RPCs in flight to one (cluster, EDS service name) pair and rejects RPCs
// above a limit (A32). All channels of a process that use the pair share it, except for those
// that need no count.
//
// The zero Breaker has nothing in flight and is ready to use. It must not be copied. It is safe
// for concurrent use. Acquire and Release write one word each; while several processors use the
// Breaker at the same time, mostly a word of their own: see breakerStripes.
//
// The limit is hard: the number of RPCs that were admitted and not released never exceeds the
// limit under which each was admitted (T-CB-2 would allow an overshoot). It is also exact: an RPC is
// rejected only if the limit was reached at some moment of the call. The only exception is that
// attempts with a lower limit, from a channel that has another version of the configuration, may for
// a moment hold slots that others have kept.
//
// Comparing issued with finished RPCs, which are counted anyway, would save a write in
// Acquire, but is no limit: each rejection counts as finished, so two attempts that stall
// between being issued and reading the finished RPCs can both take the last slot. Adding to the count,
// and undoing that above the limit, makes k attempts that are about to be rejected reject up to k
// others early.
type Breaker struct {
	// taken has the slots taken in its low 40 bits: RPCs in flight, and free slots that stripes
	// keep. The bit takenStriped means that stripes may be in use. The upper bits count the changes
	// by Acquire.
	taken  atomic.Uint64
	misses contention // of taken
	last   lastUser   // of stripes
	_      [64 - 3*8]byte

	// On another line than the words above, which are written all the time.
	stripes  atomic.Pointer[breakerStripes] // nil before the breaker is first striped
	testHook func()                         // see step
	striped  atomic.Uint32                  // 1 while RPCs use the stripes
	changing atomic.Bool                    // a goroutine changes striped
	total    atomic.Bool                    // picks read InFlight, so there are to be no stripes
	// Unlimited, set before the first use, means that nothing needs the number of RPCs in flight
	// (Leaf.CountsRPCs). The breaker then admits all RPCs and does not count them, which saves each
	// RPC two writes to a cache line that all processors share.
	Unlimited bool
	_         [64 - 2*8 - 13]byte
}

// The parts of Breaker.taken.
const (
	takenMask    = 1<<40 - 1
	takenStriped = 1 << 40
	takenOne     = 1 + 1<<41 // an admission
	takenShift   = 64 - 41   // moves takenStriped to the highest bit
)

// Acquire admits one RPC if fewer than limit are in flight, and reports whether it did. A limit
// of 0 admits no RPCs. Callers may pass different limits, since each channel has its own
// version of the configuration. After a limit is lowered, RPCs are rejected until enough RPCs
// have finished.
func (b *Breaker) Acquire(limit uint32) bool {
	if b.Unlimited {
		return true
	}
	v := b.taken.Load()
	return b.striped.Load() == 0 && v<<takenShift>>takenShift < uint64(limit) && b.taken.CompareAndSwap(v, v+takenOne) || b.acquireSlowly(limit)
}

// acquireSlowly is Acquire while the breaker is striped, has no free slot, or after a failed
// compare-and-swap.
//
//go:noinline
func (b *Breaker) acquireSlowly(limit uint32) bool {
	p := procPin()
	procUnpin()
	return b.acquireAt(p, limit)
}

// Release ends an RPC that Acquire admitted. It must be called exactly once per admitted RPC.
func (b *Breaker) Release() {
	if !b.Unlimited {
		b.release()
	}
}

// release is Release of a breaker that counts.
func (b *Breaker) release() {
	if b.striped.Load() == 0 {
		b.taken.Add(^uint64(0))
	} else {
		b.releaseSlowly()
	}
}

// releaseSlowly is release while the breaker is striped.
//
//go:noinline
func (b *Breaker) releaseSlowly() {
	p := procPin()
	procUnpin()
	b.releaseAt(p)
}

// needTotal makes RPCs not use stripes, since picks read InFlight.
func (b *Breaker) needTotal() {
	b.total.Store(true)
	if s := b.stripes.Load(); s != nil {
		s.close()
		b.settle()
	}
}

// step calls a function of tests between two atomic operations, in which tests do what other goroutines
// might do at that moment.
func (b *Breaker) step() {
	if invariants && b.testHook != nil {
		b.testHook()
	}
}

// InFlight returns the number of RPCs in flight. While RPCs begin and end, it may be off by the
// number of these. Bounded loads use it (RingPolicy.BalanceFactor).
func (b *Breaker) InFlight() int64 {
	n := int64(b.taken.Load() & takenMask)
	if s := b.stripes.Load(); s != nil {
		n = max(0, n-s.free())
	}
	return n
}
