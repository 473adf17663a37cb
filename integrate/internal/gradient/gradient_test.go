// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package gradient

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdslb/xdslb/xds/resource"
)

const ms = time.Millisecond

// config has Envoy's defaults.
func config(change func(*resource.AdaptiveConcurrency)) resource.AdaptiveConcurrency {
	cfg := resource.AdaptiveConcurrency{
		Enabled: true, Percentile: .5, Update: 100 * ms, Min: 3, Max: 1000,
		Interval: time.Minute, Requests: 50, Pins: true, Buffer: .25,
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// TestLimit: steps by the formula, worked out by hand.
func TestLimit(t *testing.T) {
	cfg := config(nil)
	for _, tt := range []struct {
		was       uint32
		min, took time.Duration
		want      uint32
	}{
		{100, 10 * ms, 12500 * time.Microsecond, 110}, // as it should be: headroom only
		{100, 10 * ms, 25 * ms, 57},                   // 50 + √50
		{100, 10 * ms, time.Hour, 57},                 // no more than by half
		{100, 10 * ms, Forever, 57},
		{100, 10 * ms, 10 * ms, 136},       // 125 + √125
		{100, 10 * ms, ms, 214},            // no more than twice: 200 + √200
		{3, 10 * ms, 50 * ms, 3},           // 1.5 + √1.5 is below 3
		{4, 10 * ms, 12500000, 6},          // 4 + 2
		{990, 10 * ms, 12500000, 1000},     // at most
		{4000000000, 10 * ms, ms, 1000},    // does not overflow
		{9, 100 * ms, 250 * ms, 6},         // 4.5 + 2.12 = 6.62
		{64, 10 * ms, 20 * ms, 46},         // 40 + 6.32 = 46.32
		{46, 10 * ms, 20 * ms, 34},         // 28.75 + 5.36 = 34.11
		{34, 10 * ms, 20 * ms, 25},         // 21.25 + 4.61 = 25.86
		{1, 10 * ms, 20 * ms, 3},           // at least
		{1000, 10 * ms, 14 * ms, 922},      // 892.86 + 29.88 = 922.74
		{100, 1000 * ms, 1250 * ms, 110},   // times do not matter, only their ratio
		{100, 16 * ms, 10 * ms, 214},       // exactly 2
		{100, 4 * ms, 10 * ms, 57},         // exactly 0.5
		{100, 3999 * 1000, 10 * ms, 57},    // and below
		{100, 80 * ms / 10, 20 * ms, 57},   // 0.5 again
		{100, 100 * ms, 100 * ms, 136},     // 1.25
		{100, 100 * ms, 156250 * 1000, 88}, // 0.8: 80 + √80 = 88.94
	} {
		if got := Limit(tt.was, tt.min, tt.took, &cfg); got != tt.want {
			t.Errorf("from %d, with %v instead of %v: %d, want %d", tt.was, tt.took, tt.min, got, tt.want)
		}
	}
	cfg.Min = 2000
	if got := Limit(5, ms, ms, &cfg); got != 2000 {
		t.Errorf("where the least limit is above the greatest it is %d, want 2000", got)
	}
}

// TestOracle checks that the controller behaves like the oracle in random histories.
func TestOracle(t *testing.T) {
	type rpc struct{ began, ends, took time.Duration }
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 3))
		cfg := config(func(c *resource.AdaptiveConcurrency) {
			c.Percentile = []float64{0, .5, .9, .99, 1, rng.Float64()}[rng.IntN(6)]
			c.Update = time.Duration(1+rng.IntN(300)) * ms
			c.Min, c.Requests = 1+rng.Uint32N(8), 1+rng.Uint32N(30)
			c.Interval, c.Buffer = time.Duration(1+rng.IntN(5000))*ms, 2*rng.Float64()
			c.Max = 1 + rng.Uint32N(200)
			c.Pins = rng.IntN(3) > 0
			if rng.IntN(3) == 0 {
				c.FixedRTT = time.Duration(1+rng.IntN(100)) * ms
			}
		})
		born := time.Unix(1e9, 0)
		c, o := New(&cfg, born), newOracle(cfg)
		var flying []rpc
		slow, refused := time.Duration(1), 0
		for now := time.Duration(0); now < 60*time.Second; {
			switch rng.IntN(200) {
			case 0:
				now += time.Duration(rng.Int64N(int64(10 * time.Second)))
			case 1:
				slow = time.Duration(1 + rng.IntN(20))
			default:
				now += time.Duration(rng.ExpFloat64() * float64(5*ms))
			}
			for i := 0; i < len(flying); i++ {
				if r := flying[i]; r.ends <= now {
					flying[i], flying = flying[len(flying)-1], flying[:len(flying)-1]
					i--
					c.Release()
					if r.took > 0 {
						c.Observe(born.Add(r.began), born.Add(now), r.took)
					}
					o.end(r.began, now, r.took)
				}
			}
			got, want := c.Acquire(born.Add(now)), o.begin(now)
			s := c.State(born.Add(now))
			if got != want || s.Limit != o.limit || s.Measuring != o.measuring || s.MinRTT != o.minRTT || s.SampleRTT != o.sampleRTT || int(s.InFlight) != o.inFlight {
				t.Fatalf("seed %d, %+v\nafter %v: admits %v, %+v, want %v, %+v", seed, cfg, now, got, s, want, *o)
			}
			if !got {
				refused++
				continue
			}
			r := rpc{began: now, took: time.Duration(rng.ExpFloat64()*float64(10*ms))*slow + 2*time.Microsecond}
			r.ends = now + r.took
			switch rng.IntN(12) {
			case 0:
				r.took = 0
			case 1:
				r.took = Forever
			}
			flying = append(flying, r)
		}
		if refused == 0 && cfg.Min < 5 && cfg.FixedRTT == 0 && cfg.Pins {
			t.Errorf("seed %d: nothing is refused", seed)
		}
	}
}

// TestBuckets: each time has one bucket, whose shortest is at most a 32nd shorter.
func TestBuckets(t *testing.T) {
	last := -1
	for d := time.Duration(1); d < 1<<mostLog; d += max(1, d/1000) {
		b := bucket(d)
		if b < last || b >= forever {
			t.Fatalf("%v has bucket %d, after %d", d, b, last)
		}
		last = b
		if d >= 1<<leastLog && (shortest(b) > d || d-shortest(b) > d/32) {
			t.Fatalf("%v has bucket %d from %v", d, b, shortest(b))
		}
	}
	if bucket(Forever) != forever || shortest(forever) != Forever || bucket(Forever-1) != forever-1 || bucket(0) != 0 || bucket(-1) != 0 {
		t.Error("wrong bucket for a very short or long time")
	}
	var l latencies
	if got := l.take(.5); got != 0 {
		t.Errorf("of no times the half is %v", got)
	}
}

// TestJitter: measurements begin after the interval and up to a part of it.
func TestJitter(t *testing.T) {
	cfg := config(func(c *resource.AdaptiveConcurrency) { c.Jitter, c.Requests = .5, 1 })
	least, most := Forever, time.Duration(0)
	for range 200 {
		c := New(&cfg, time.Time{})
		c.Observe(time.Time{}, time.Time{}, ms)
		least, most = min(least, c.measureAt), max(most, c.measureAt)
	}
	if least < time.Minute || most >= 90*time.Second || most-least < 20*time.Second {
		t.Errorf("measurements begin after %v to %v, want 1m to 1m30s", least, most)
	}
}

// TestTimeouts checks that the limit falls while RPCs time out, and that minRTT is not
// measured.
func TestTimeouts(t *testing.T) {
	cfg := config(func(c *resource.AdaptiveConcurrency) { c.Requests = 4; c.Min = 2 })
	now := time.Time{}
	c := New(&cfg, now)
	observe := func(n int, took time.Duration) State {
		for range n {
			c.Observe(now, now, took)
		}
		now = now.Add(cfg.Update)
		return c.State(now)
	}
	if s := observe(9, Forever); !s.Measuring || s.MinRTT != 0 {
		t.Errorf("RPCs that time out have a time: %+v", s)
	}
	for range 20 {
		observe(4, 10*ms)
	}
	if s := c.State(now); s.Limit < 500 || s.MinRTT < 9*ms {
		t.Fatalf("RPCs are fast, and the controller is at %+v", s)
	}
	for range 15 {
		observe(4, Forever)
	}
	if s := c.State(now); s.Limit != 2 && !s.Measuring || s.SampleRTT != Forever {
		t.Errorf("all RPCs time out, and the controller is at %+v", s)
	}
	for range 20 {
		observe(4, Forever)
	}
	if s := c.State(now); s.MinRTT < 9*ms || s.MinRTT > 10*ms {
		t.Errorf("minRTT is measured with RPCs that time out: %+v", s)
	}
}

// TestTogether checks that concurrent use never exceeds the maximum limit, and leaves no RPC in
// flight.
func TestTogether(t *testing.T) {
	cfg := config(func(c *resource.AdaptiveConcurrency) {
		c.Update, c.Interval, c.Requests, c.Min, c.Max = ms, 5*ms, 5, 1, 1
	})
	born := time.Now()
	c := New(&cfg, born)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 100_000 {
				now := born.Add(time.Duration(n*8+i) * 10 * time.Microsecond)
				if !c.Acquire(now) {
					continue
				}
				if s := c.State(now); s.InFlight > cfg.Max || s.Limit > cfg.Max {
					t.Errorf("at %+v", s)
				}
				c.Release()
				c.Observe(now, now.Add(ms), ms)
			}
		})
	}
	all.Wait()
	if s := c.State(born.Add(time.Hour)); s.InFlight != 0 || s.MinRTT == 0 {
		t.Errorf("in the end it is at %+v", s)
	}
}

// TestContended checks that exactly as many concurrent RPCs are admitted as the limit allows.
// They start from a barrier at which they spin, so that they race for the last slot each time.
func TestContended(t *testing.T) {
	const rounds = 20_000
	racers := max(2, min(runtime.GOMAXPROCS(0), 8))
	cfg := config(func(c *resource.AdaptiveConcurrency) { c.Min, c.FixedRTT = uint32(racers/2), ms })
	now := time.Now()
	c := New(&cfg, now)
	var lined, admitted atomic.Int64
	wrong := 0
	meet := func(n int) {
		lined.Add(1)
		for spins := 1; lined.Load() < int64(n*racers); spins++ {
			if spins%1000 == 0 {
				runtime.Gosched()
			}
		}
	}
	var all sync.WaitGroup
	for i := range racers {
		all.Go(func() {
			for round := range rounds {
				meet(3*round + 1)
				in := c.Acquire(now)
				if in {
					admitted.Add(1)
				}
				meet(3*round + 2)
				if i == 0 && admitted.Load() != int64(cfg.Min) {
					wrong++
				}
				meet(3*round + 3)
				if in {
					admitted.Add(-1)
					c.Release()
				}
			}
		})
	}
	all.Wait()
	if wrong > 0 {
		t.Errorf("in %d rounds of %d not %d RPCs of %d are admitted, which is the limit", wrong, rounds, cfg.Min, racers)
	}
}

// TestAllocates: nothing.
func TestAllocates(t *testing.T) {
	cfg := config(func(c *resource.AdaptiveConcurrency) { c.Update, c.Interval, c.Requests = ms, 5*ms, 5 })
	now := time.Time{}
	c := New(&cfg, now)
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(ms)
		if c.Acquire(now) {
			c.Release()
			c.Observe(now, now, ms)
		}
	}); n > 0 {
		t.Errorf("%v allocations for each RPC", n)
	}
}

// TestLongTimes: with times near the limit of a time.Duration minRTT is measured once.
func TestLongTimes(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, interval := range []time.Duration{time.Hour, 100 * year, 260 * year, Forever} {
		cfg := config(func(c *resource.AdaptiveConcurrency) { c.Interval, c.Jitter, c.Requests = interval, 1, 5 })
		now := time.Unix(1e9, 0)
		c := New(&cfg, now)
		for range 2000 {
			now = now.Add(10 * ms)
			if c.Acquire(now) {
				c.Release()
				c.Observe(now, now.Add(ms), ms)
			}
		}
		if s := c.State(now); s.Limit < 500 || s.Measuring {
			t.Errorf("interval %v: state %+v after 2000 fast RPCs, want a limit of at least 500", interval, s)
		}
	}
	cfg := config(func(c *resource.AdaptiveConcurrency) { c.Update, c.Requests = Forever, 1 })
	c := New(&cfg, time.Unix(0, 0))
	c.Observe(time.Unix(1, 0), time.Unix(1, 0), ms)
	if c.updateAt != Forever {
		t.Errorf("update period %v: the next update is due at %v", Forever, c.updateAt)
	}
}
