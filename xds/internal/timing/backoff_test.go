// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"math/rand/v2"
	"testing"
	"time"
)

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
