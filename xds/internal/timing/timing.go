// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package timing provides the backoff and the timers shared by ADS and load reporting streams.
package timing

import (
	"sync"
	"time"
)

// After is time.After, except that for d <= 0 the channel is ready immediately, without a
// timer.
//
// In a bubble of testing/synctest, the goroutine that receives from a timer which is due runs
// the timer itself. Two goroutines that do so at the same time share one context of the race
// detector, which crashes it (Go 1.26).
func After(d time.Duration) <-chan time.Time {
	if d > 0 {
		return time.After(d)
	}
	c := make(chan time.Time, 1)
	c <- time.Now()
	return c
}

// A Timer calls a function once with a mutex held, unless it is stopped or restarted before the
// function acquires the mutex. The same mutex guards the Timer. The zero Timer is stopped.
type Timer struct{ current *time.Timer }

// StartLocked calls f with mu held after d. It cancels a previous call that has not yet
// started. The caller holds mu.
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

// StopLocked stops the timer if it is running. The caller holds the mutex.
func (t *Timer) StopLocked() {
	if t.current != nil {
		t.current.Stop()
		t.current = nil
	}
}

// RunningLocked reports whether a call is pending. The caller holds the mutex.
func (t *Timer) RunningLocked() bool { return t.current != nil }
