// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"testing"
	"time"
)

func TestBackoffDue(t *testing.T) {
	now := time.Unix(1000, 0)
	b := backoff{base: time.Second, max: 10 * time.Second}
	if b.due().After(now) {
		t.Error("the first stream has to wait")
	}
	for _, tt := range []struct {
		lasted time.Duration
		ok     bool
		draw   float64
		want   time.Duration // from the end
	}{
		{0, false, 0, time.Second},
		{3 * time.Second, false, 0.5, 800 * time.Millisecond}, // of 1.6 s
		{3 * time.Second, false, 0.5, 1280 * time.Millisecond},
		{0, false, 0.5, 2048 * time.Millisecond},
		{0, false, 1, 6553600 * time.Microsecond},
		{0, false, 1, 10 * time.Second},
		{0, false, 1, 10 * time.Second},
		{time.Minute, true, 0.5, 500 * time.Millisecond},
		{400 * time.Millisecond, true, 0.5, 600 * time.Millisecond},
		{400 * time.Millisecond, true, 0.7, 700 * time.Millisecond},
		{0, false, 0.25, time.Second},
	} {
		b.begin(now)
		now = now.Add(tt.lasted)
		b.end(now, tt.ok, tt.draw)
		if got := b.due().Sub(now); got != tt.want {
			t.Errorf("stream of %v, ok %v, draw %v: next in %v, want %v", tt.lasted, tt.ok, tt.draw, got, tt.want)
		}
		now = b.due()
	}
}
