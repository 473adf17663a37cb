// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"math"
	"time"
)

// BackoffFactor is how much longer the wait may be after each failure (A57).
const BackoffFactor = 1.6

// A Backoff decides when the next stream to a server may be opened. After a stream that had
// a response that is at a random moment within Base. Only attempts that fail back off, as
// A57 has it (1 s, factor 1.6, at most 120 s), with these differences, most of which keep a
// fleet of clients from returning to a server in step:
//
//   - The jitter is full: the wait is drawn between nothing and the limit.
//   - Two streams never begin less than Base apart, even if each got a response,
//     so a server that answers and hangs up sees at most one stream per Base
//     (T-XDS-8; A57 asks for no wait there).
//   - The limit is not above 2 Base and a third of the time since the first failure, so that
//     a client is back soon after an outage that was short.
//   - The caller can spread the return over a longer time, for a client that
//     lacks nothing.
//
// A Backoff is for one goroutine. The zero value but for Base and Max is ready.
type Backoff struct {
	Base, Max time.Duration

	failures int       // streams in a row that ended without a response
	since    time.Time // the beginning of the first of them
	begun    time.Time // the latest stream's beginning
	ended    time.Time // and end
	draw     float64   // in [0,1): this wait's place in its range
}

// Begin notes that a stream is being opened.
func (b *Backoff) Begin(now time.Time) { b.begun = now }

// End notes that the stream has ended; draw is a random number in [0,1).
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

// Earliest is when the next stream may be opened at all.
func (b *Backoff) Earliest() time.Time {
	if t := b.begun.Add(b.Base); t.After(b.ended) {
		return t
	}
	return b.ended
}

// Due is when the next stream should be opened, if the return is spread over the
// backoff's limit or over spread, whichever is longer. Any time may have passed.
func (b *Backoff) Due(spread time.Duration) time.Time {
	limit := float64(b.Base)
	if b.failures > 0 {
		limit = min(limit*math.Pow(BackoffFactor, float64(b.failures-1)), 2*limit+float64(b.ended.Sub(b.since))/3)
	}
	limit = min(max(limit, float64(spread)), float64(b.Max))
	return b.Earliest().Add(time.Duration(b.draw * limit))
}

// Connected is when the next stream should be opened if there has been a
// connection again since then, which has had gRPC's backoff: the return is spread
// over spread only. After a short outage connections do return in step.
func (b *Backoff) Connected(since time.Time, spread time.Duration) time.Time {
	at := since.Add(time.Duration(b.draw * float64(spread)))
	if earliest := b.Earliest(); at.Before(earliest) {
		return earliest
	}
	return at
}
