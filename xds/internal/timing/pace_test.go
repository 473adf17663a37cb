// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

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
