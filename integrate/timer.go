// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import "time"

// after starts a timer in slot: unless it is stopped or replaced by then, it
// empties the slot and calls f with the balancer's mutex held.
func (b *lb) after(d time.Duration, slot **time.Timer, f func()) {
	var t *time.Timer
	t = time.AfterFunc(d, func() {
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
func (b *lb) now() int64 { return int64(time.Since(b.born)) + 1 }
