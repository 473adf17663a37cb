// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import "time"

// Each event begins with lock and ends with unlock, which acts on what the event changed.
func (b *lb) lock() { b.rt.Lock() }

func (b *lb) unlock() {
	b.settle()
	b.rt.Unlock()
}

// after starts a timer in slot, which is an event when it expires.
func (b *lb) after(d time.Duration, slot **time.Timer, f func()) {
	b.rt.After(d, slot, func() {
		f()
		b.settle()
	})
}

// callThen is CallThen for a function that is an event.
func (b *lb) callThen(first, f func()) {
	b.rt.CallThen(first, func() {
		f()
		b.settle()
	})
}
