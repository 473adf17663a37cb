// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"testing"
	"time"
)

// WaitFor waits until cond returns true, and returns how long that took. After a minute it ends
// the test and reports what it waited for. It polls every millisecond, and is for what neither
// reports an event nor happens in a bubble of testing/synctest.
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
