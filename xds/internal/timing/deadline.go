// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"sync"
	"time"
)

// deadlineParts is the number of parts into which a DeadlineTimer divides its duration.
const deadlineParts = 10

// A DeadlineTimer calls a function when a deadline expires. The duration is divided into parts,
// and each part starts when the expiry of the previous part is noticed. So a process that was
// stopped for long, because its machine was suspended or its CPU quota exhausted, loses a
// single part and still has the remaining ones. A DeadlineTimer must not be copied.
type DeadlineTimer struct {
	mu    sync.Mutex
	left  int // remaining parts; 0 if expired or stopped
	timer *time.Timer
}

// NewDeadlineTimer returns a DeadlineTimer that calls f after d, on its own goroutine.
func NewDeadlineTimer(d time.Duration, f func()) *DeadlineTimer {
	l := &DeadlineTimer{left: deadlineParts}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(d/deadlineParts, func() {
		if l.part(d / deadlineParts) {
			f()
		}
	})
	return l
}

// part records that a part has expired, starts the next one, and reports whether it was the
// last.
func (l *DeadlineTimer) part(next time.Duration) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == 0 {
		return false
	}
	if l.left--; l.left > 0 {
		l.timer.Reset(next)
	}
	return l.left == 0
}

// Stop stops the timer. If the function has not been called yet, it never is.
func (l *DeadlineTimer) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = 0
	l.timer.Stop()
}
