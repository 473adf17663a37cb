// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package timing has the timers and the backoff that the streams of ADS and of
// load reporting share.
package timing

import (
	"sync"
	"time"
)

// After is time.After, but for a duration that may have passed already: then the
// channel is ready at once, and there is no timer.
//
// In a bubble of testing/synctest the goroutine that receives from a timer which
// is due runs the timer itself. Two goroutines that do so at a time share one
// context of the race detector, which crashes it (Go 1.26).
func After(d time.Duration) <-chan time.Time {
	if d > 0 {
		return time.After(d)
	}
	c := make(chan time.Time, 1)
	c <- time.Now()
	return c
}

// A Timer calls a function with a mutex held, once, unless it is stopped or
// started anew before the function has the mutex. The same mutex guards the Timer.
// The zero Timer does not run.
type Timer struct{ current *time.Timer }

// StartLocked has f called with mu held after d. A function that waits for its
// turn is forgotten. The caller holds mu.
func (t *Timer) StartLocked(d time.Duration, mu sync.Locker, f func()) {
	t.StopLocked()
	var own *time.Timer
	own = time.AfterFunc(d, func() {
		mu.Lock()
		defer mu.Unlock()
		if t.current == own {
			t.current = nil
			f()
		}
	})
	t.current = own
}

// StopLocked stops the timer, if it runs. The caller holds the mutex.
func (t *Timer) StopLocked() {
	if t.current != nil {
		t.current.Stop()
		t.current = nil
	}
}

// RunningLocked reports whether a function waits for its turn. The caller holds
// the mutex.
func (t *Timer) RunningLocked() bool { return t.current != nil }
