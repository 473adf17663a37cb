// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"sync/atomic"
	"time"
)

// A Clock provides the time by which RPCs are timed (least latency). Its unit is 1024 ns.
//
// Reading a system's clock takes about 25 ns, and an RPC reads it twice. So while the clock is
// read often, a timer stores the time in a word every millisecond, and reading that takes 1 ns.
// The time between two readings then has an error of up to a millisecond in either direction,
// but no bias, since RPCs do not begin and end in step with the timer. Means over many RPCs are
// accurate even if RPCs are shorter than that.
//
//	exact ──32 readings within a millisecond──→ coarse
//	  └←──────────100 milliseconds later───────────┘
//
// So the timer runs only while its cost is small compared with that of the RPCs, and an idle or
// closed channel has no timer.
//
// A Clock must not be copied. It is safe for concurrent use.
type Clock struct {
	coarse atomic.Int64 // the time in coarse mode, otherwise 0
	_      [lineSize - 8]byte

	source func() int64  // nanoseconds
	window atomic.Int64  // the current window for counting readings
	reads  atomic.Uint32 // readings in the window

	running atomic.Bool // coarse mode is on; the goroutine that sets it starts the timer
	timer   *time.Timer // nil if the clock is always exact
	ticks   int         // remaining ticks of coarse mode; used by the timer only
}

const (
	unitShift   = 10               // from nanoseconds to units
	windowShift = 10               // from units to windows, of 1.05 ms
	oftenRead   = 32               // readings in a window that switch to coarse mode
	coarseTick  = time.Millisecond // resolution of coarse mode
	coarseTicks = 100              // duration of coarse mode
)

// units returns a duration in units of a Clock.
func units(d time.Duration) float64 { return float64(d) / (1 << unitShift) }

// NewClock returns a clock based on now, which returns monotonic nanoseconds.
func NewClock(now func() int64) *Clock {
	c := NewExactClock(now)
	c.timer = time.AfterFunc(time.Hour, c.tick)
	c.timer.Stop()
	return c
}

// NewExactClock returns a clock without coarse mode, for time sources other than package time.
func NewExactClock(now func() int64) *Clock { return &Clock{source: now} }

// now returns the time, which is above 0. It may be up to a millisecond before the time that
// another goroutine has read. Does not allocate.
func (c *Clock) now() int64 {
	if t := c.coarse.Load(); t != 0 {
		return t
	}
	return c.exact()
}

// exact reads the time, and turns on coarse mode if that happens often.
//
//go:noinline
func (c *Clock) exact() int64 {
	t := max(c.source()>>unitShift, 1)
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

// tick is the callback of the timer.
func (c *Clock) tick() {
	if c.ticks--; c.ticks > 0 {
		c.coarse.Store(max(c.source()>>unitShift, 1))
		c.timer.Reset(coarseTick)
		return
	}
	c.coarse.Store(0)
	c.reads.Store(0)
	c.running.Store(false)
}
