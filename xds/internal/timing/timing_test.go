// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"sync"
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
