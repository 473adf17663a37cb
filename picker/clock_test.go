// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"testing"
	"testing/synctest"
	"time"
)

// A clock that is read often is coarse for a while, and never off by more than its tick.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		now := func() int64 { return int64(time.Since(begin)) + 1<<unitShift }
		c, last := NewClock(now), int64(0)
		read := func() int64 {
			got, exact := c.now(), now()>>unitShift
			if off := exact - got; off < 0 || off > int64(units(coarseTick))+1 {
				t.Fatalf("after %v the time is %d, off by %d", time.Since(begin), got, off)
			}
			if got < last {
				t.Fatalf("after %v the time is %d, was %d before", time.Since(begin), got, last)
			}
			last = got
			return got
		}
		for range 3 {
			for range 300 { // seldom
				pass(100 * time.Microsecond)
				if got := read(); got != now()>>unitShift || c.coarse.Load() != 0 {
					t.Fatalf("the time is %d, coarse %d: read seldom it is exact", got, c.coarse.Load())
				}
			}
			for range 500 { // often
				pass(10 * time.Microsecond)
				read()
			}
			if c.coarse.Load() == 0 {
				t.Fatal("read often it is not coarse")
			}
			pass(coarseTicks * coarseTick)
			if c.coarse.Load() != 0 || c.timer.Stop() {
				t.Fatal("still coarse without readings")
			}
		}
	})
}

// A clock whose time is not package time's is always exact.
func TestExactClock(t *testing.T) {
	now := int64(0)
	c := NewExactClock(func() int64 { return now })
	for i := range int64(1000) {
		now = i << unitShift
		if got := c.now(); got != max(i, 1) {
			t.Fatalf("at %d ns the time is %d", now, got)
		}
	}
}

// RPCs that take less than a tick are timed right on average, since they do not begin and end
// by the timer.
func TestCoarseMean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := NewClock(func() int64 { return int64(time.Since(begin)) + 1<<unitShift })
		p, rng := newPeers(nil, 1, time.Second), newRand(1)
		var e timing
		sum, count, coarse := 0., 0., 0
		for range 20000 {
			e.meanLatency(c.now(), p)
			e.begin(c.now())
			d := time.Duration(20+rng.IntN(60)) * time.Microsecond
			pass(d)
			e.end(c.now(), CallOK)
			sum, count = sum+units(d), count+1
			if c.coarse.Load() != 0 {
				coarse++
			}
		}
		if coarse < 15000 {
			t.Errorf("coarse for %d of 20000 RPCs", coarse)
		}
		if got, want := float64(e.meanLatency(c.now()+p.interval, p)), sum/count; got < .9*want || got > 1.15*want {
			t.Errorf("mean latency %v, want about %v", got, want)
		}
	})
}

// pass lets so much of a bubble's time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
