// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import "time"

// This file is how the balancer's work is kept in order: one mutex, calls to code of
// others that have to wait for its end, timers.

func (b *lb) lock() { b.mu.Lock() }

// unlock ends a critical section, and has the calls made that had to wait for
// its end: by a goroutine of their own, since whoever unlocks may be called from
// within a mutex of the very policy that is to be called. There is one such
// goroutine at a time, so that calls keep their order.
func (b *lb) unlock() {
	if len(b.callbacks) > 0 && !b.running {
		b.running = true
		go b.runCallbacks()
	}
	b.mu.Unlock()
}

func (b *lb) runCallbacks() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.callbacks) > 0 {
		calls := b.callbacks
		b.callbacks = nil
		b.mu.Unlock()
		for _, call := range calls {
			call()
		}
		b.mu.Lock()
	}
	b.running = false
}

// afterCallbacksLocked calls do with the mutex held: at once, unless tell is to be called
// before, without the mutex, or an earlier do still waits for such a call.
func (b *lb) afterCallbacksLocked(tell, do func()) {
	switch {
	case b.closed:
	case tell == nil && b.queued == 0:
		do()
	default:
		b.queued++
		b.callbacks = append(b.callbacks, func() {
			if tell != nil {
				tell()
			}
			b.lock()
			defer b.unlock()
			if b.queued--; !b.closed {
				do()
			}
		})
	}
}

// afterLocked starts a timer in slot: unless it is stopped or replaced by then, it
// empties the slot and calls f with the balancer's mutex held. It is never due at once:
// the race detector does not bear that in bubbles of testing/synctest.
func (b *lb) afterLocked(d time.Duration, slot **time.Timer, f func()) {
	var t *time.Timer
	t = time.AfterFunc(max(d, 1), func() {
		b.lock()
		defer b.unlock()
		if *slot != t || b.closed {
			return
		}
		*slot = nil
		f()
	})
	*slot = t
}

// halt stops the timer in a slot, if there is one.
func halt(slot **time.Timer) {
	if *slot != nil {
		(*slot).Stop()
		*slot = nil
	}
}

// now is the time in nanoseconds on a monotonic clock of the balancer's own. It is
// above 0.
func (b *lb) now() int64 { return int64(time.Since(b.start)) + 1 }
