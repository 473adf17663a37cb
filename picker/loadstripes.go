// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"runtime"
	"sync/atomic"
)

// batch is the number of positions that a stripe takes at a time. A processor then writes the
// shared word once in 16 RPCs. A larger batch would let picks of different processors be further
// apart than the window of a long sequence (edf) if there are hundreds of processors.
const batch = 16

// loadStripes are the stripes of a Load, one for each P. The Load owns them: issueSlowly makes them
// when it first observes contention, and they remain until the Load is freed, since they have
// counts and positions. They take 128 bytes for each P. While Load.striped is 0, RPCs do not use
// them.
//
// A stripe takes a batch of positions from Load.issued and its RPCs use them one by one. So each
// position is still used once, and shares are exact over the sequence: they differ by at most the
// positions that stripes have left, 15 for each. A position that is left when stripes are no longer
// used is used once they are used again.
//
// The stripe of a P is a matter of speed only. All its words are atomic, so that goroutines may
// lose their P at any time and several P may share a stripe, if GOMAXPROCS has grown.
type loadStripes struct{ list []loadStripe }

type loadStripe struct {
	positions atomic.Uint64    // the next position << 8 | taking, or number of positions left
	counts    [5]atomic.Uint64 // as in Load
	_         [lineSize - 6*8]byte
}

const (
	leftMask = 0x7f
	taking   = 0x80 // another goroutine takes a batch for the stripe
)

// of returns the stripe of P p.
func (s *loadStripes) of(p int) *loadStripe {
	if uint(p) >= uint(len(s.list)) {
		p %= len(s.list)
	}
	return &s.list[p]
}

// issueSlowly is issue while the Load is striped, or after a failed compare-and-swap.
//
//go:noinline
func (l *Load) issueSlowly() uint64 {
	if l.striped.Load() == 0 {
		n := l.issued.Add(1) - 1
		if perProcessor && l.misses.missed(n) {
			l.stripe(runtime.GOMAXPROCS(0))
		}
		return n
	}
	p := procPin()
	procUnpin()
	return l.issueAt(p)
}

// issueAt is issue on P p while the Load is striped.
func (l *Load) issueAt(p int) uint64 {
	stripe := l.stripes.Load().of(p)
	for {
		switch w := stripe.positions.Load(); {
		case w&leftMask > 0:
			if stripe.positions.CompareAndSwap(w, w+1<<8-1) {
				return w >> 8
			}
		case w&taking != 0:
			return l.issued.Add(1) - 1
		case stripe.positions.CompareAndSwap(w, w|taking):
			n := l.issued.Add(batch) - batch
			stripe.positions.Store((n+1)<<8 | batch - 1)
			if l.last.alone(p, aloneBatches) {
				l.striped.Store(0)
			}
			return n
		}
	}
}

// stripe makes RPCs use stripes, for n P. If there is only one, there is no contention: a goroutine
// lost its P between two instructions.
func (l *Load) stripe(n int) {
	if n < 2 {
		return
	}
	if l.stripes.Load() == nil {
		l.stripes.CompareAndSwap(nil, &loadStripes{make([]loadStripe, n)})
	}
	l.striped.Store(1)
}

// countInStripe is count while the Load is striped.
//
//go:noinline
func (l *Load) countInStripe(k int) {
	p := procPin()
	procUnpin()
	l.stripes.Load().of(p).counts[k].Add(1)
}

// counted returns the sum of a count in all stripes. s may be nil.
func (s *loadStripes) counted(k int) (n uint64) {
	if s != nil {
		for i := range s.list {
			n += s.list[i].counts[k].Load()
		}
	}
	return n
}

// left returns the number of positions that stripes have left. s may be nil.
func (s *loadStripes) left() (n uint64) {
	if s != nil {
		for i := range s.list {
			n += s.list[i].positions.Load() & leftMask
		}
	}
	return n
}
