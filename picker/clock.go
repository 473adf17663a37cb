// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"sync/atomic"
	"time"
)

// A Clock is what RPCs are timed by (PolicyLeastLatency). Its unit is 1024 ns.
//
// Reading a system's clock takes about 25 ns, and an RPC reads it twice. So while it is read
// often, a timer keeps the time in a word, a millisecond coarse, which takes 1 ns to read.
// A time between two readings is then off by up to a millisecond either way, but not on
// average, since RPCs do not begin and end by the timer. Means of many are right also where
// RPCs take less than that.
//
//	exact ──32 readings within a millisecond──→ coarse
//	  └←──────────100 milliseconds later───────────┘
//
// So the timer runs only while its cost is small beside that of the RPCs, and nothing is
// left of it in a channel that is idle or closed.
//
// A Clock must not be copied. Any number of goroutines may use it.
type Clock struct {
	coarse atomic.Int64 // the time while the clock is coarse, otherwise 0
	_      [lineSize - 8]byte

	now    func() int64  // nanoseconds
	window atomic.Int64  // in which readings are counted
	reads  atomic.Uint32 // in the window

	running atomic.Bool // the clock is coarse; whoever sets it starts the timer
	timer   *time.Timer // nil if the clock is always exact
	ticks   int         // until the clock is exact again; the timer's
}

const (
	unitShift   = 10               // from nanoseconds to units
	windowShift = 10               // from units to windows, of 1.05 ms
	oftenRead   = 32               // readings in a window from which on the clock is coarse
	coarseTick  = time.Millisecond // of the coarse clock
	coarseTicks = 100              // after which the clock is exact again
)

// units returns a duration in units of a Clock.
func units(d time.Duration) float64 { return float64(d) / (1 << unitShift) }

// NewClock returns a clock that goes by now: nanoseconds that do not go back.
func NewClock(now func() int64) *Clock {
	c := NewExactClock(now)
	c.timer = time.AfterFunc(time.Hour, c.tick)
	c.timer.Stop()
	return c
}

// NewExactClock returns a clock that is never coarse, for time that is not package time's.
func NewExactClock(now func() int64) *Clock { return &Clock{now: now} }

// Now returns the time, which is above 0. It may be before what another goroutine has read,
// by up to a millisecond. Does not allocate.
func (c *Clock) Now() int64 {
	if t := c.coarse.Load(); t != 0 {
		return t
	}
	return c.exact()
}

// exact reads the time, and makes the clock coarse if that happens often.
//
//go:noinline
func (c *Clock) exact() int64 {
	t := max(c.now()>>unitShift, 1)
	if c.timer == nil {
		return t
	}
	if w := t >> windowShift; c.window.Load() != w {
		c.window.Store(w)
		c.reads.Store(0)
	}
	if c.reads.Add(1) >= oftenRead && c.running.CompareAndSwap(false, true) {
		c.coarse.Store(t)
		c.ticks = coarseTicks
		c.timer.Reset(coarseTick)
	}
	return t
}

// tick is what the timer calls.
func (c *Clock) tick() {
	if c.ticks--; c.ticks > 0 {
		c.coarse.Store(max(c.now()>>unitShift, 1))
		c.timer.Reset(coarseTick)
		return
	}
	c.coarse.Store(0)
	c.reads.Store(0)
	c.running.Store(false)
}
