// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"math"
	"time"
)

// backoffFactor is how much longer the wait may be after each failure.
const backoffFactor = 1.6

// backoff decides when the next stream may be opened: no earlier than base after
// the last was, whatever became of it, and some time at random after the last
// ended, which may be longer with each failure, so that clients do not come back
// to a server in step.
type backoff struct {
	base, max time.Duration

	failures int       // streams in a row that ended without a response
	begun    time.Time // the last one
	until    time.Time // the end of the time at random
}

// begin notes that a stream is being opened.
func (b *backoff) begin(now time.Time) { b.begun = now }

// end notes how it ended. draw is random, in [0, 1).
func (b *backoff) end(now time.Time, ok bool, draw float64) {
	if ok {
		b.failures = 0
	} else {
		b.failures++
	}
	limit := float64(b.base) * math.Pow(backoffFactor, float64(max(0, b.failures-1)))
	b.until = now.Add(time.Duration(draw * min(limit, float64(b.max))))
}

// due returns the time of the next stream, which may be past.
func (b *backoff) due() time.Time {
	if t := b.begun.Add(b.base); t.After(b.until) {
		return t
	}
	return b.until
}
