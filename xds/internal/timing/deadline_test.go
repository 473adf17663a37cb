// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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
