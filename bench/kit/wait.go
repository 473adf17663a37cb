// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"testing"
	"testing/synctest"
	"time"
)

// WaitFor waits until cond returns true, and returns the time taken. After a minute it fails
// the test with the given description. It polls every millisecond, for conditions without an
// event and outside of bubbles of testing/synctest.
func WaitFor(t testing.TB, what string, cond func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !cond() {
		if time.Since(begin) > time.Minute {
			t.Fatalf("waited a minute for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begin)
}

// Pass lets time pass in a bubble of testing/synctest, and waits until its goroutines are blocked. It
// takes at least a nanosecond: two goroutines of a bubble that start timers which are due at once can
// crash the race detector (Go 1.26).
func Pass(d time.Duration) {
	<-time.After(max(d, 1))
	synctest.Wait()
}
