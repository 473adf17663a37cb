// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"math"
	"time"
)

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
