// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestAfter: what is due is ready at once, and what is not comes in its time.
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

// TestAfterConcurrent: many goroutines may wait for nothing at a time. With timers
// that are due this crashes the race detector's runtime.
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

// TestTimer: a timer calls the latest function, once and with the mutex held, and
// one that was stopped calls none, even if it was waiting for the mutex.
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
			t.Errorf("%q was called, running: %v; want b, which has run", got, timer.RunningLocked())
		}
		start("c")
		mu.Unlock()
		<-time.After(time.Second - 1)
		mu.Lock()
		if !timer.RunningLocked() {
			t.Error("not running before its time")
		}
		timer.StopLocked()
		timer.StopLocked()
		mu.Unlock()
		<-time.After(time.Minute)
		if got != "b" {
			t.Errorf("%q was called, and c was stopped", got)
		}
	})
}
