// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"sync"
	"time"
)

// lapseParts is into how many parts a Lapse divides its time.
const lapseParts = 10

// A Lapse is a timer that calls a function when something has had its time to happen. The
// time is counted in parts, each from when the one before was noticed: a process that stood
// still for long, since its machine was suspended or its CPU quota used up, has lost one
// part, and what is waited for has the others left. A Lapse must not be copied.
type Lapse struct {
	mu    sync.Mutex
	left  int // parts; 0 if it is over or stopped
	timer *time.Timer
}

// StartLapse returns a Lapse that calls f after d, on a goroutine of its own.
func StartLapse(d time.Duration, f func()) *Lapse {
	l := &Lapse{left: lapseParts}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(d/lapseParts, func() {
		if l.part(d / lapseParts) {
			f()
		}
	})
	return l
}

// part notes that a part is over, starts the next one, and reports whether it was the last.
func (l *Lapse) part(next time.Duration) (last bool) {
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

// Stop ends l, unless it is over: a function that has not been called by then is not.
func (l *Lapse) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = 0
	l.timer.Stop()
}
