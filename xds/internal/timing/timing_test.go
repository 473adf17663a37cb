// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestAfter checks that a channel is ready immediately for durations up to zero, and on time
// for positive ones.
func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{-time.Second, 0} {
			select {
			case <-After(d):
			default:
				t.Errorf("After(%v) is not ready", d)
			}
		}
		begin := time.Now()
		if <-After(time.Second); time.Since(begin) != time.Second {
			t.Errorf("After(1s) took %v", time.Since(begin))
		}
	})
}

// TestAfterConcurrent lets many goroutines receive from After(0) concurrently. With timers that
// are due this crashes the race detector's runtime.
func TestAfterConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 2000 {
					<-After(0)
				}
			})
		}
		wg.Wait()
	})
}

// TestTimer checks that a timer calls only the latest function, once and with the mutex held,
// and that a stopped timer calls none, even if it was waiting for the mutex.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var timer Timer
		var got string
		start := func(name string) {
			timer.StartLocked(time.Second, &mu, func() {
				if mu.TryLock() {
					t.Error("the mutex is free")
				}
				got += name
			})
		}
		mu.Lock()
		start("a")
		start("b")
		mu.Unlock()
		<-time.After(time.Minute)
		mu.Lock()
		if got != "b" || timer.RunningLocked() {
			t.Errorf("called %q, running: %v; want b, not running", got, timer.RunningLocked())
		}
		start("c")
		mu.Unlock()
		<-time.After(time.Second - 1)
		mu.Lock()
		if !timer.RunningLocked() {
			t.Error("timer does not run before its deadline")
		}
		timer.StopLocked()
		timer.StopLocked()
		mu.Unlock()
		<-time.After(time.Minute)
		if got != "b" {
			t.Errorf("called %q, want b: c was stopped", got)
		}
	})
}

// spread is the value for clients that have all their resources.
const spread = 13 * time.Second

// TestBackoffRange checks the range of the wait after each outcome (A57).
func TestBackoffRange(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name     string
		failures int // in a row
		length   time.Duration
		response bool
		spread   time.Duration
		min, max time.Duration // from the end of the stream
	}{
		{"long stream, nothing missing", 0, time.Hour, true, spread, 0, spread},
		{"long stream, resources missing", 0, time.Hour, true, 0, 0, s},
		{"short stream with response", 0, 100 * time.Millisecond, true, 0, 900 * time.Millisecond, 1900 * time.Millisecond},
		{"refused once", 0, 0, false, 0, s, 2 * s},
		{"refused twice", 1, 0, false, 0, s, 2600 * time.Millisecond},
		{"refused once, nothing missing", 0, 0, false, spread, s, s + spread},
		{"refused 100 times in 1000 s", 99, 0, false, 0, s, 121 * s},
		{"refused 100 times in 1000 s, nothing missing", 99, 0, false, spread, s, 121 * s},
		{"refused 9 times in 30 s", 8, -30 * s, false, 0, s, 13 * s},
		{"response after failures", 50, time.Hour, true, 0, 0, s},
	} {
		for _, draw := range []float64{0, 1} {
			start := time.Unix(1000, 0)
			b := Backoff{Base: s, Max: 120 * s, failures: tt.failures, since: start.Add(-1000 * s)}
			if tt.length < 0 { // the time since the first failure
				b.since = start.Add(tt.length)
			}
			b.Begin(start)
			end := start.Add(max(0, tt.length))
			b.End(end, tt.response, draw)
			want := tt.min
			if draw == 1 {
				want = tt.max
			}
			if got := b.Due(tt.spread).Sub(end); got != want {
				t.Errorf("%s: due after %v with draw %v, want %v", tt.name, got, draw, want)
			}
			if b.Earliest().After(b.Due(tt.spread)) {
				t.Errorf("%s: due before Earliest", tt.name)
			}
		}
	}
}

// TestBackoffStorm checks that the clients of a fleet do not return simultaneously after their
// server restarts: at most 15 % return in any second.
func TestBackoffStorm(t *testing.T) {
	const clients = 10000
	rng := rand.New(rand.NewPCG(3, 4))
	for _, response := range []bool{true, false} {
		perSecond := map[int64]int{}
		for range clients {
			b := Backoff{Base: time.Second, Max: 120 * time.Second}
			b.Begin(time.Unix(0, 0))
			end := time.Unix(500, 0)
			if !response {
				end = time.Unix(0, 0)
			}
			b.End(end, response, rng.Float64())
			perSecond[b.Due(spread).Unix()]++
		}
		for second, n := range perSecond {
			if n > clients*15/100 {
				t.Errorf("response=%v: %d of %d clients return in second %d", response, n, clients, second)
			}
		}
	}
}

// TestDeadlineTimer checks that a DeadlineTimer calls its function once and on time, and not
// after Stop.
func TestDeadlineTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, calls := time.Now(), 0
		NewDeadlineTimer(time.Second, func() {
			if calls++; time.Since(begin) != time.Second {
				t.Errorf("called after %v, want 1s", time.Since(begin))
			}
		})
		for _, after := range []time.Duration{0, time.Second - 1} {
			stopped := NewDeadlineTimer(time.Second, func() { t.Error("called after it was stopped") })
			time.AfterFunc(after, stopped.Stop)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("called %d times, want once", calls)
		}
	})
}

// TestDeadlineTimerSuspended checks that a process that is stopped for long, so that timers are
// late, loses only one part of the duration.
func TestDeadlineTimerSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var called atomic.Bool
		l := NewDeadlineTimer(time.Hour, func() { called.Store(true) })
		defer l.Stop()
		for range deadlineParts - 1 {
			if l.part(time.Hour) { // regardless of how late it is
				t.Fatal("expired before the last part")
			}
		}
		time.Sleep(time.Hour - 1)
		if synctest.Wait(); called.Load() {
			t.Error("called before the last part has expired")
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); !called.Load() {
			t.Error("not called after the last part")
		}
	})
}

// TestPace checks that continuous events are limited to 5000 per second after a burst of 1000,
// and that rarer events are not delayed.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		begin, n := time.Now(), 0
		for ; time.Since(begin) < 10*time.Second; n++ {
			p.Wait(t.Context(), time.Now())
		}
		if n < 45_000 || n > 52_000 {
			t.Errorf("%d events in 10 s, want 50,000 and a burst", n)
		}
		<-time.After(time.Second)
		begin = time.Now()
		for range 1000 {
			p.Wait(t.Context(), time.Now())
		}
		if d := time.Since(begin); d > 0 {
			t.Errorf("a burst of 1000 takes %v", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin = time.Now()
		for range 10_000 {
			p.Wait(ctx, time.Now())
		}
		if d := time.Since(begin); d > 0 {
			t.Errorf("waited for %v after the end of the context", d)
		}
	})
}
