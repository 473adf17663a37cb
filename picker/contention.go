// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "sync/atomic"

// Counters that RPCs of several processors write at the same time are striped: each P then writes
// a cache line of its own. That costs a single processor more than one shared word, so it starts
// when contention is observed and stops when one processor uses the stripes alone.
//
// Contention is observed where a shared word is replaced by compare-and-swap: it fails if another
// processor has written the word between the read and the write. RPCs that merely take turns on
// two processors do not fail, and keep the shared word. The rules are:
const (
	// A word is contended if this many compare-and-swaps fail …
	contendedMisses = 16
	// … while so many RPCs are counted. A failure of 1 in 64 means that the word is being written
	// by another processor for more than 1 % of the time.
	contendedWindow = 1024

	// The stripes of a Load are no longer used after one P alone has taken so many batches of positions,
	// and those of a Breaker after one P alone has completed so many turns of 512 RPCs: about 16,000
	// RPCs each. Starting again takes a few hundred.
	aloneBatches = 1 << 14 / batch
	aloneTurns   = 1 << 14 / 512
)

// A contention counts failures of compare-and-swap: the number of the window that it belongs to, and in
// the low byte the failures in that window. Updates may be lost.
type contention struct{ word atomic.Uint64 }

// missed records a failure while count RPCs have been counted, and reports whether the word is
// contended.
func (c *contention) missed(count uint64) bool {
	w := c.word.Load()
	if w>>8 != count/contendedWindow {
		w = count / contendedWindow << 8
	}
	if w&0xff < contendedMisses {
		w++
	}
	c.word.Store(w)
	return w&0xff >= contendedMisses
}

// A lastUser counts how often in succession the same P was recorded: the number of the P and in the
// low 16 bits the count. Updates may be lost.
type lastUser struct{ word atomic.Uint64 }

// alone records P p, and reports whether it was recorded at least n times in succession. Then it
// starts again.
func (l *lastUser) alone(p int, n uint64) bool {
	w := l.word.Load()
	if w>>16 != uint64(p) {
		w = uint64(p) << 16
	}
	if w++; w&0xffff < n {
		l.word.Store(w)
		return false
	}
	l.word.Store(0)
	return true
}
