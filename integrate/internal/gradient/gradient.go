// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package gradient provides a limit of concurrent RPCs that adapts to their latency. It
// implements the gradient controller of Envoy's adaptive_concurrency filter:
//
//	gradient = (minRTT + minRTT*buffer) / sampleRTT, from 0.5 to 2
//	limit    = gradient*limit + √(gradient*limit), truncated to an integer, from Min to Max
//
// minRTT is the latency while few RPCs are in flight, and sampleRTT the recent latency, both as
// a percentile. While latencies are not above minRTT plus buffer, the limit grows without
// bound. When they are, because of a queue somewhere, the limit falls by up to a half in each
// Update. The square root is headroom, without which a small limit would stay small.
//
//	          Requests RPCs have ended
//	  ┌──────────┐ ────────────▶ ┌──────────┐ ──┐ Update: sampleRTT, limit
//	  │ measures │               │  limits  │   │
//	─▶│  minRTT  │ ◀──────────── │          │ ◀─┘
//	  └──────────┘   Interval,   └──────────┘
//	                 or Min for the fifth time in a row
//
// The initial limit is Min. It is also Min during a measurement if Pins is set, and is then
// restored. With a FixedRTT there are no measurements. The formulas, the limits of the gradient
// and the five times are Envoy's:
// https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/adaptive_concurrency_filter
//
// # Differences
//
// Envoy samples responses only: RPCs abandoned by the caller are not samples. For a client,
// which abandons RPCs itself, queues longer than its deadlines would then be invisible. So an
// RPC whose deadline expires counts as longer than any completed RPC (Forever). A minRTT of
// Forever is not used: the previous one remains, or the measurement continues.
//
// There is no timer. The first RPC after a step is due performs it, so an idle channel has no
// cost, and the first RPC after an idle time finds the limit unchanged. Latencies are stored in
// buckets, which underestimates them by at most 3 %.
package gradient

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdslb/xdslb/xds/resource"
)

// Forever is the latency of RPCs that did not complete before their deadline.
const Forever = time.Duration(math.MaxInt64)

// atMin is the number of consecutive updates with the minimum limit after which minRTT is
// measured again.
const atMin = 5

// A Controller limits RPCs in flight. It is safe for concurrent use and does not block. An RPC
// costs some atomic additions and no allocation.
type Controller struct {
	cfg  *resource.AdaptiveConcurrency
	born time.Time

	limit     atomic.Uint32
	inFlight  atomic.Int64
	measuring atomic.Bool
	epoch     atomic.Int64 // start of the latest measurement, since born
	due       atomic.Int64 // time of the next step, since born
	samples   latencies

	minRTT, sampleRTT atomic.Int64 // 0 means unknown

	mu        sync.Mutex // held by the goroutine that performs a step
	kept      uint32     // the limit before a measurement that pins it
	updateAt  time.Duration
	measureAt time.Duration
	least     int // consecutive updates with the limit at Min
}

// New returns a controller with the given configuration.
func New(cfg *resource.AdaptiveConcurrency, now time.Time) *Controller {
	c := &Controller{cfg: cfg, born: now, kept: cfg.Min}
	c.limit.Store(cfg.Min)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updateAt, c.measureAt = cfg.Update, Forever
	if cfg.FixedRTT > 0 {
		c.minRTT.Store(int64(cfg.FixedRTT))
		c.dueLocked()
	} else {
		c.measureLocked(0)
	}
	return c
}

// Acquire reports whether an RPC that begins now may be sent. If so, it counts as in flight
// until Release.
func (c *Controller) Acquire(now time.Time) bool {
	c.step(now)
	limit := int64(c.limit.Load())
	for {
		n := c.inFlight.Load()
		if n >= limit {
			return false
		}
		if c.inFlight.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release ends an RPC that Acquire admitted.
func (c *Controller) Release() { c.inFlight.Add(-1) }

// Observe records the latency of an RPC that ended now, or Forever.
func (c *Controller) Observe(began, now time.Time, took time.Duration) {
	c.step(now)
	if int64(began.Sub(c.born)) < c.epoch.Load() {
		return // it began before the measurement
	}
	if n := c.samples.add(took); c.measuring.Load() && n >= c.cfg.Requests && c.mu.TryLock() {
		if c.measuring.Load() && c.samples.count.Load() >= c.cfg.Requests {
			c.measuredLocked(now.Sub(c.born))
		}
		c.mu.Unlock()
	}
}

// step performs the step that is due.
func (c *Controller) step(now time.Time) {
	at := now.Sub(c.born)
	if int64(at) < c.due.Load() || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	if c.measuring.Load() {
		return
	}
	if c.updateAt <= at {
		if c.updateAt <= c.measureAt {
			c.updateLocked(c.updateAt)
		}
		c.updateAt += (1 + (at-c.updateAt)/c.cfg.Update) * c.cfg.Update
	}
	if c.measureAt <= at {
		c.measureLocked(at)
	}
	c.dueLocked()
}

// dueLocked sets the time of the next step. A measurement ends by itself.
func (c *Controller) dueLocked() {
	due := min(c.updateAt, c.measureAt)
	if c.measuring.Load() {
		due = Forever
	}
	c.due.Store(int64(due))
}

// updateLocked updates the limit from the latencies since the last update, if there are any.
func (c *Controller) updateLocked(at time.Duration) {
	rtt := c.samples.take(c.cfg.Percentile)
	if rtt == 0 {
		return
	}
	c.sampleRTT.Store(int64(rtt))
	was := c.limit.Load()
	limit := Limit(was, time.Duration(c.minRTT.Load()), rtt, c.cfg)
	c.limit.Store(limit)
	if limit != c.cfg.Min || was != c.cfg.Min {
		c.least = 0
	} else if c.least++; c.least >= atMin && c.cfg.FixedRTT == 0 {
		c.measureAt = at // the minRTT may be outdated
	}
}

// Limit returns the next limit by the formula above.
func Limit(was uint32, minRTT, sampleRTT time.Duration, cfg *resource.AdaptiveConcurrency) uint32 {
	gradient := min(max(float64(minRTT)*(1+cfg.Buffer)/float64(sampleRTT), .5), 2)
	limit := gradient * float64(was)
	limit += math.Sqrt(limit)
	return max(uint32(min(limit, float64(cfg.Max))), cfg.Min)
}

// measureLocked starts a measurement of minRTT.
func (c *Controller) measureLocked(at time.Duration) {
	c.kept, c.least = c.limit.Load(), 0
	if c.cfg.Pins {
		c.limit.Store(c.cfg.Min)
	}
	c.epoch.Store(int64(at))
	c.samples.take(0)
	c.measuring.Store(true)
	c.dueLocked()
}

// later returns at + d, or Forever if the sum overflows. Both are at least 0.
func later(at, d time.Duration) time.Duration { return at + min(d, Forever-at) }

// measuredLocked ends a measurement.
func (c *Controller) measuredLocked(at time.Duration) {
	rtt := c.samples.take(c.cfg.Percentile)
	if rtt == Forever && c.minRTT.Load() == 0 {
		return
	}
	if rtt != Forever {
		c.minRTT.Store(int64(rtt))
	}
	c.limit.Store(c.kept)
	c.updateAt = later(at, c.cfg.Update)
	c.measureAt = later(at, c.cfg.Interval)
	if jitter := min(c.cfg.Jitter*float64(c.cfg.Interval), 1<<62); jitter >= 1 {
		c.measureAt = later(c.measureAt, time.Duration(rand.Int64N(int64(jitter))))
	}
	c.measuring.Store(false)
	c.dueLocked()
}

// A State describes a controller for diagnostics. Times of 0 are unknown.
type State struct {
	Limit, InFlight   uint32
	MinRTT, SampleRTT time.Duration
	Measuring         bool // the limit is Min during a measurement, if Pins is set
}

// State returns the current state.
func (c *Controller) State(now time.Time) State {
	c.step(now)
	return State{
		Limit: c.limit.Load(), InFlight: uint32(max(c.inFlight.Load(), 0)), Measuring: c.measuring.Load(),
		MinRTT: time.Duration(c.minRTT.Load()), SampleRTT: time.Duration(c.sampleRTT.Load()),
	}
}
