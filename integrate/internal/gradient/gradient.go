// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package gradient limits how many RPCs may be in flight by how long they take: numbers in, a
// limit out. It is the gradient controller of Envoy's adaptive_concurrency filter:
//
//	gradient = (minRTT + minRTT*buffer) / sampleRTT, from 0.5 to 2
//	limit    = gradient*limit + √(gradient*limit), cut to a whole number, from Min to Max
//
// minRTT is what RPCs take while few are in flight, and sampleRTT what they took of late: a
// percentile of both. While RPCs take no longer than they should, the limit grows without an
// end; when they do, by a queue somewhere, it falls by up to a half in each Update. The root
// is headroom, without which a small limit would stay small.
//
//	          Requests RPCs have ended
//	  ┌──────────┐ ────────────▶ ┌──────────┐ ──┐ Update: sampleRTT, limit
//	  │ measures │               │  limits  │   │
//	─▶│  minRTT  │ ◀──────────── │          │ ◀─┘
//	  └──────────┘   Interval,   └──────────┘
//	                 or Min for the fifth time in a row
//
// The first limit is Min, and so is the one while it measures, if Pins is set; then it is what it was. With a FixedRTT
// it never measures. The formulas, the limits of the gradient and the five times are those of
// Envoy:
// https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/adaptive_concurrency_filter
//
// # Differences
//
// Envoy knows answers: what a client gives up is no sample. Where a client is what gives up,
// queues that are longer than its deadlines would go unseen, all the more the longer they are.
// So an RPC whose deadline passes counts as longer than any that ends (Forever). A minRTT
// that comes out so is none: the one before stays, or the measurement goes on.
//
// There is no timer. Whoever comes when something is due does it, so an idle channel costs
// nothing, and the first RPC after an idle time finds the limit as it was. Latencies are kept
// in buckets, by which they are 3 % too short at most.
package gradient

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdslb/xdslb/xds/resource"
)

// Forever is how long RPCs take that nobody waits for to the end.
const Forever = time.Duration(math.MaxInt64)

// atMin is how many times in a row the limit is the least one before minRTT is measured again.
const atMin = 5

// A Controller limits RPCs in flight. Any number of goroutines may use it; none waits.
// An RPC costs it some atomic additions and no allocation.
type Controller struct {
	cfg  *resource.AdaptiveConcurrency
	born time.Time

	limit     atomic.Uint32
	inFlight  atomic.Int64
	measuring atomic.Bool
	epoch     atomic.Int64 // when the latest measurement began, since born
	due       atomic.Int64 // when there is something to do, since born
	samples   latencies

	minRTT, sampleRTT atomic.Int64 // 0 is unknown

	mu        sync.Mutex // held by whoever steps
	kept      uint32     // the limit, while a measurement pins it
	updateAt  time.Duration
	measureAt time.Duration
	least     int // times in a row that the limit was Min
}

// New returns the controller of a configuration.
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

// Acquire reports whether an RPC that begins now may be sent. It counts as in flight then
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

// Observe takes in how long an RPC took that has ended now, or that it took Forever.
func (c *Controller) Observe(began, now time.Time, took time.Duration) {
	c.step(now)
	if int64(began.Sub(c.born)) < c.epoch.Load() {
		return // it began in worse times than those that are measured
	}
	if n := c.samples.add(took); c.measuring.Load() && n >= c.cfg.Requests && c.mu.TryLock() {
		if c.measuring.Load() && c.samples.count.Load() >= c.cfg.Requests {
			c.measuredLocked(now.Sub(c.born))
		}
		c.mu.Unlock()
	}
}

// step does what is due.
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

// dueLocked notes when there is something to do next. A measurement ends by itself.
func (c *Controller) dueLocked() {
	due := min(c.updateAt, c.measureAt)
	if c.measuring.Load() {
		due = Forever
	}
	c.due.Store(int64(due))
}

// updateLocked changes the limit by the latencies since the last time. If there are none it stays.
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
		c.measureAt = at // the minRTT may be that of other times
	}
}

// Limit is the limit after one of so much, by the formula above.
func Limit(was uint32, minRTT, sampleRTT time.Duration, cfg *resource.AdaptiveConcurrency) uint32 {
	gradient := min(max(float64(minRTT)*(1+cfg.Buffer)/float64(sampleRTT), .5), 2)
	limit := gradient * float64(was)
	limit += math.Sqrt(limit)
	return max(uint32(min(limit, float64(cfg.Max))), cfg.Min)
}

// measureLocked begins to measure minRTT.
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

// measuredLocked ends that.
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

// A State is what a controller is at. A time of 0 is unknown.
type State struct {
	Limit, InFlight   uint32
	MinRTT, SampleRTT time.Duration
	Measuring         bool // the limit is Min for that, if Pins is set
}

// State returns what the controller is at.
func (c *Controller) State(now time.Time) State {
	c.step(now)
	return State{
		Limit: c.limit.Load(), InFlight: uint32(max(c.inFlight.Load(), 0)), Measuring: c.measuring.Load(),
		MinRTT: time.Duration(c.minRTT.Load()), SampleRTT: time.Duration(c.sampleRTT.Load()),
	}
}
