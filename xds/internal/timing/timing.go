// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package timing provides the backoff and the timers shared by ADS and load reporting streams.
package timing

import (
	"context"
	"math"
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

// BackoffFactor is the growth of the maximum wait after each failure (A57).
const BackoffFactor = 1.6

// A Backoff computes the time at which the next stream to a server may be opened. After a
// stream with a response, it is at a random time within Base. Only failed attempts back off, as
// in A57 (1 s, factor 1.6, at most 120 s), with these differences, most of which prevent the
// clients of a fleet from reconnecting simultaneously:
//
//   - The jitter is full: the wait is uniform between zero and the limit.
//   - Two streams start at least Base apart, even if each received a response, so a
//     server that responds and hangs up receives at most one stream per Base
//     (T-XDS-8; A57 requires no wait in this case). A stream that ends in order as soon
//     as it is open is repeated once; the caller counts the two as one that failed.
//   - The limit is at most 2 Base plus a third of the time since the first failure, so
//     a client reconnects soon after a short outage.
//   - The caller can spread reconnections over a longer time, for a client that has all
//     its resources.
//
// A Backoff is not safe for concurrent use. Base and Max must be set.
type Backoff struct {
	Base, Max time.Duration

	failures int       // consecutive streams that ended without a response
	since    time.Time // start of the first of them
	begun    time.Time // start of the latest stream
	ended    time.Time // end of the latest stream
	draw     float64   // in [0,1): the position of this wait in its range
}

// Begin records that a stream is being opened.
func (b *Backoff) Begin(now time.Time) { b.begun = now }

// End records the end of the stream; draw is a random number in [0,1).
func (b *Backoff) End(now time.Time, responded bool, draw float64) {
	switch {
	case responded:
		b.failures = 0
	case b.failures == 0:
		b.since = b.begun
		fallthrough
	default:
		b.failures++
	}
	b.ended, b.draw = now, draw
}

// Earliest returns the time before which the next stream must not be opened.
func (b *Backoff) Earliest() time.Time {
	if t := b.begun.Add(b.Base); t.After(b.ended) {
		return t
	}
	return b.ended
}

// Due returns the time at which the next stream should be opened, if reconnections are spread
// over the limit of the backoff or over spread, whichever is longer. The time may be in the
// past.
func (b *Backoff) Due(spread time.Duration) time.Time {
	limit := float64(b.Base)
	if b.failures > 0 {
		limit = min(limit*math.Pow(BackoffFactor, float64(b.failures-1)), 2*limit+float64(b.ended.Sub(b.since))/3)
	}
	limit = min(max(limit, float64(spread)), float64(b.Max))
	return b.Earliest().Add(time.Duration(b.draw * limit))
}

// Connected returns the time at which the next stream should be opened if a connection has
// existed again since then, after gRPC's own backoff. Reconnections are spread over spread
// only; after a short outage connections are reestablished nearly simultaneously.
func (b *Backoff) Connected(since time.Time, spread time.Duration) time.Time {
	at := since.Add(time.Duration(b.draw * float64(spread)))
	if earliest := b.Earliest(); at.Before(earliest) {
		return earliest
	}
	return at
}

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

// paceEvery and paceBurst limit a Pace to 5000 events per second with bursts of 1000.
const (
	paceEvery = 200 * time.Microsecond
	paceBurst = 1000 * paceEvery
	pacePause = 5 * time.Millisecond // minimum, since shorter timers are inaccurate
)

// A Pace limits the rate of very frequent events that are individually cheap. The zero value is
// ready to use. It is not safe for concurrent use.
type Pace struct{ due time.Time }

// Wait waits until the next event is allowed, or ctx ends.
func (p *Pace) Wait(ctx context.Context, now time.Time) {
	if earliest := now.Add(-paceBurst); p.due.Before(earliest) {
		p.due = earliest
	}
	p.due = p.due.Add(paceEvery)
	if wait := p.due.Sub(now); wait > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(max(wait, pacePause)):
		}
	}
}
