// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"math"
	"time"
)

const (
	// backoffFactor is how much longer the wait may be after each failure.
	backoffFactor = 1.6
	// storm is over how many times the base a client spreads its return to a
	// server when it can do without: a server that restarts sees at most one
	// in thirteen of its clients in each base interval.
	storm = 13
)

// backoff decides when the next stream to a server may be opened. It is
// A57's (1 s, factor 1.6, at most 120 s) with three differences, each of which
// keeps a fleet of clients from returning to a server in step:
//
//   - The jitter is full: the wait is drawn between nothing and the limit.
//   - Two streams never begin less than base apart, also when each got a
//     response, so a server that answers and hangs up sees at most one stream
//     per base interval (T-XDS-8; A57 asks for no wait there).
//   - A client that has all it needs from its cache spreads its return over
//     storm times base.
//
// The zero failures are the state after a response. It is for one goroutine.
type backoff struct {
	base, max time.Duration

	failures int       // streams in a row that ended without a response
	begun    time.Time // the latest stream's beginning
	ended    time.Time // and end
	draw     float64   // in [0,1): this wait's place in its range
}

// begin notes that a stream is being opened.
func (b *backoff) begin(now time.Time) { b.begun = now }

// end notes how it ended; draw is a random number in [0,1).
func (b *backoff) end(now time.Time, responded bool, draw float64) {
	if responded {
		b.failures = 0
	} else {
		b.failures++
	}
	b.ended, b.draw = now, draw
}

// earliest is when the next stream may be opened at all.
func (b *backoff) earliest() time.Time {
	if t := b.begun.Add(b.base); t.After(b.ended) {
		return t
	}
	return b.ended
}

// connected is when the next stream should be opened if there has been a
// connection again since then: at once if that is urgent, and otherwise within
// storm times base. After a short outage connections do return in step: they
// have gRPC's backoff, and do not know what is urgent.
func (b *backoff) connected(since time.Time, urgent bool) time.Time {
	at := since.Add(time.Duration(b.draw * storm * float64(b.base)))
	if earliest := b.earliest(); urgent || at.Before(earliest) {
		return earliest
	}
	return at
}

// due is when the next stream should be opened. It is urgent if somebody waits
// for a resource that is not in the cache; that may change during the wait.
func (b *backoff) due(urgent bool) time.Time {
	limit := float64(b.base) * math.Pow(backoffFactor, float64(max(0, b.failures-1)))
	if !urgent {
		limit = max(limit, float64(storm*b.base))
	}
	limit = min(limit, float64(b.max))
	return b.earliest().Add(time.Duration(b.draw * limit))
}
