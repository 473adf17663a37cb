// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"runtime"
	"testing"
)

// Spend runs f and fails the test if it allocated more than limit bytes. Other goroutines may
// allocate concurrently, so it has three attempts.
func Spend(t testing.TB, limit int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	least := uint64(1 << 63)
	for range 3 {
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if least = min(least, after.TotalAlloc-before.TotalAlloc); least <= uint64(limit) {
			return
		}
	}
	t.Errorf("allocated %d bytes, want at most %d", least, limit)
}
