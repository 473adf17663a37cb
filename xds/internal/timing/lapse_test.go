// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLapse: a Lapse calls its function once, in its time, and not if it was stopped before.
func TestLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, calls := time.Now(), 0
		StartLapse(time.Second, func() {
			if calls++; time.Since(begin) != time.Second {
				t.Errorf("called after %v, want 1s", time.Since(begin))
			}
		})
		for _, after := range []time.Duration{0, time.Second - 1} {
			stopped := StartLapse(time.Second, func() { t.Error("called after it was stopped") })
			time.AfterFunc(after, stopped.Stop)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("called %d times, want once", calls)
		}
	})
}

// TestLapseOfSuspended: a process that stands still, so that timers are late, loses a part of the time only.
func TestLapseOfSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var called atomic.Bool
		l := StartLapse(time.Hour, func() { called.Store(true) })
		defer l.Stop()
		for range lapseParts - 1 {
			if l.part(time.Hour) { // however late it is
				t.Fatal("over before the last part")
			}
		}
		time.Sleep(time.Hour - 1)
		if synctest.Wait(); called.Load() {
			t.Error("called before the last part is over")
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); !called.Load() {
			t.Error("not called after the last part")
		}
	})
}
