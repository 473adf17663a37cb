// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
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

// slowTiming is a timing with a record of each RPC.
type slowTiming struct {
	rpcs                 []slowRPC
	at                   int64
	busy, ended, failing float64
}

type slowRPC struct {
	begin, end int64 // end is 0 while it is in flight
	result     CallResult
}

// renew returns the estimate at now, given the decay and the mean of all.
func (s *slowTiming) renew(now int64, decay, mean float64) float64 {
	if s.at == 0 {
		s.at = now
	}
	var busy, ended, failed float64
	for _, r := range s.rpcs {
		end := r.end
		if end == 0 {
			end = now
		}
		busy += float64(max(end-max(r.begin, s.at), 0))
		if r.end >= s.at && r.end != 0 && r.result != CallNotSent {
			ended++
			if r.result == CallFailed {
				failed++
			}
		}
	}
	x := float64(now-s.at) / decay
	keep, spread := math.Exp(-x), 1.
	if x > 0 {
		spread = -math.Expm1(-x) / x
	}
	s.busy, s.ended, s.failing = s.busy*keep+busy*spread, s.ended*keep+ended*spread, s.failing*keep+failed*spread
	s.at = now
	return (s.busy + (2+3*s.failing)*mean) / (s.ended - s.failing + 2)
}

// The estimate equals that of an implementation that records each RPC: of those that fail, that hang, and that
// were never sent (T-LL-1, T-LL-2).
func TestTimingOracle(t *testing.T) {
	for seed := range uint64(200) {
		rng := newRand(seed)
		decay := pick(rng, 5*time.Millisecond, time.Second, 10*time.Second)
		p := newPeers(nil, 1+rng.IntN(5), decay)
		e, slow, now := &timing{}, &slowTiming{}, 1+rng.Int64N(1<<50)
		e.meanLatency(now, p)
		slow.renew(now, units(decay), 0)
		var running []int
		for step := range 400 {
			now += 1 + rng.Int64N(pick(rng, 10, 1000, int64(units(decay))/50+2, int64(units(decay))))
			if len(running) == 0 || rng.IntN(2) == 0 {
				e.begin(now)
				running = append(running, len(slow.rpcs))
				slow.rpcs = append(slow.rpcs, slowRPC{begin: now})
			} else {
				k := rng.IntN(len(running))
				r := CallResult(rng.IntN(4))
				e.end(now, r)
				slow.rpcs[running[k]].end, slow.rpcs[running[k]].result = now, r
				running[k] = running[len(running)-1]
				running = running[:len(running)-1]
			}
			if e.inFlight() != len(running) {
				t.Fatalf("seed %d, step %d: %d in flight, want %d", seed, step, e.inFlight(), len(running))
			}
			if rng.IntN(3) > 0 {
				continue
			}
			now++
			due := e.due.Load()
			got := float64(e.meanLatency(now, p))
			if now < due {
				continue
			}
			if want := slow.renew(now, units(decay), p.add(0, 0, 0)); math.Abs(got/want-1) > 1e-4 {
				t.Fatalf("seed %d, step %d: latency %v, want %v", seed, step, got, want)
			}
		}
	}
}

// Unknown and outdated latencies count as average.
func TestTimingUnknown(t *testing.T) {
	p, ms := newPeers(nil, 3, time.Second), int64(units(time.Millisecond))
	var fast, slow, fresh timing
	if got := fresh.meanLatency(1, p); math.Abs(float64(got)/units(unmeasured)-1) > .01 {
		t.Errorf("latency %v where nothing is known, want %v", got, units(unmeasured))
	}
	if got := fresh.estimate(); got != 0 {
		t.Errorf("latency %v of an endpoint without RPCs, want none", got)
	}
	now := int64(1)
	run := func(e *timing, d int64, r CallResult) {
		e.begin(now)
		now += d
		e.end(now, r)
		e.meanLatency(now, p)
	}
	for range 200 {
		run(&fast, 2*ms, CallOK)
		run(&slow, 30*ms, CallOK)
	}
	f, s := fast.meanLatency(now, p), slow.meanLatency(now, p)
	if got := slow.estimate(); got < 25*time.Millisecond || got > 35*time.Millisecond {
		t.Errorf("latency %v of RPCs of 30 ms", got)
	}
	fresh = timing{}
	if got := fresh.meanLatency(now, p); got < 2*f || got > s/1.5 {
		t.Errorf("latency %v of a new endpoint beside %v and %v", got, f, s)
	}
	for range 3 {
		now += 30000 * ms
		fast.meanLatency(now, p)
		slow.meanLatency(now, p)
	}
	if a, b := fast.meanLatency(now, p), slow.meanLatency(now, p); math.Abs(float64(a/b)-1) > .01 {
		t.Errorf("latencies %v and %v after 90 time constants, want the same", a, b)
	}
}

// The mean decays by the time that passes, however many peers there are.
func TestPeersDecay(t *testing.T) {
	for _, n := range []int{1, 2, 30} {
		p := newPeers(nil, n, time.Second)
		p.add(1e9, 1e6, 0)
		for range 10 {
			for range n {
				p.add(0, 0, .1)
			}
		}
		if left := float64(math.Float32frombits(uint32(p.mean.Load()))); math.Abs(left/1e6*math.E-1) > .001 {
			t.Errorf("of a million RPCs %.0f count after one time constant of %d peers, want 1/e", left, n)
		}
	}
}

// Sums that wrap, and clocks that goroutines read one after the other, make no estimate
// that is out of bounds.
func TestTimingBounds(t *testing.T) {
	p := newPeers(nil, 1, 10*time.Second)
	var e timing
	now := int64(1) << 50
	e.meanLatency(now, p)
	for range 1000 {
		e.begin(now + 5) // ahead of the goroutine that renews next
	}
	now += p.interval
	e.area += 1 << 24 // more than has come together
	if e.meanLatency(now, p); e.busy != 0 {
		t.Errorf("RPCs have taken %v before they began", e.busy)
	}
	now += int64(units(365 * 24 * time.Hour)) // 1000 RPCs for a year are more than a sum holds
	e.meanLatency(now, p)
	if want := 1000 * units(10*time.Second); math.Abs(e.busy/want-1) > .01 {
		t.Errorf("RPCs have taken %v of late after a year, want %v", e.busy, want)
	}
	now -= 1 << 30 // as no clock does
	e.due.Store(0)
	if again := float64(e.meanLatency(now, p)); !(again > 0) || math.IsInf(again, 0) {
		t.Errorf("latency %v when the clock went back", again)
	}
	if e.inFlight() != 1000 {
		t.Errorf("%d in flight, want 1000", e.inFlight())
	}
}

// Any number of goroutines use a timing.
func TestTimingConcurrent(t *testing.T) {
	p := newPeers(nil, 4, time.Second)
	timings := make([]timing, 4)
	begin := time.Now()
	clock := NewClock(func() int64 { return int64(time.Since(begin)) + 1 })
	var all sync.WaitGroup
	for g := range uint64(4) {
		all.Go(func() {
			rng := newRand(g)
			for range 20000 {
				e := &timings[rng.IntN(len(timings))]
				if c := costOf(e, clock.now(), p); !(c >= 0) || math.IsInf(float64(c), 0) {
					t.Errorf("cost %v", c)
				}
				e.begin(clock.now())
				e.end(clock.now(), CallResult(rng.IntN(3)))
			}
		})
	}
	all.Wait()
	for i := range timings {
		if n := timings[i].inFlight(); n != 0 {
			t.Errorf("%d in flight at the end", n)
		}
	}
}

// costOf returns the cost of an RPC by definition: the mean latency times the RPCs in flight with it.
func costOf(e *timing, now int64, p *peers) float32 {
	return e.meanLatency(now, p) * float32(1+e.inFlight())
}

// The fields that RPCs to an endpoint write and read are on one line.
func TestTimingSize(t *testing.T) {
	if n := unsafe.Sizeof(timedBinding{}); n > lineSize {
		t.Errorf("a timed endpoint has %d bytes, more than a line of %d", n, lineSize)
	}
}

func TestTimingAllocs(t *testing.T) {
	p, now := newPeers(nil, 1, time.Second), int64(0)
	var e timing
	if n := testing.AllocsPerRun(1000, func() {
		now += 300 // some renew
		costOf(&e, now, p)
		e.begin(now)
		e.end(now+100, CallOK)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
