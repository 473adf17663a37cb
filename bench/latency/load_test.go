// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestSchedule(t *testing.T) {
	at := schedule(1000, 10*time.Second, rand.New(rand.NewPCG(1, 2)))
	if n := float64(len(at)); math.Abs(n-10_000) > 500 { // five standard deviations
		t.Errorf("%v RPCs, want about 10000", n)
	}
	for i := range at[1:] {
		if at[i+1] < at[i] || at[i+1] >= 10*time.Second {
			t.Fatalf("RPC %d is at %v, after one at %v", i+1, at[i+1], at[i])
		}
	}
}

// One slow RPC holds up none of the others, and each latency counts from the
// time at which the RPC was due: the loop is open.
func TestSendIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := []time.Duration{0, time.Second, 2 * time.Second}
		calls := send(t.Context(), at, func(_ context.Context, i int) (string, error) {
			if i == 0 {
				time.Sleep(time.Minute)
				return "", errors.New("failed")
			}
			return "b", nil
		})
		for i, want := range []call{
			{at: 0, took: time.Minute}, {at: time.Second, backend: "b"}, {at: 2 * time.Second, backend: "b"},
		} {
			if calls[i] != want {
				t.Errorf("call %d = %+v, want %+v", i, calls[i], want)
			}
		}
	})
}

// What the generator is late by is part of the latency, and reported.
func TestSendIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := send(t.Context(), []time.Duration{-time.Second}, func(context.Context, int) (string, error) { return "b", nil })
		if c := calls[0]; c.lag != time.Second || c.took != time.Second {
			t.Errorf("an RPC that was due a second ago: %+v", c)
		}
	})
}

// A result that the generator's own lateness may explain is called so.
func TestLate(t *testing.T) {
	for _, tt := range []struct {
		latency, lag float64
		want         bool
	}{
		{10, 0, false}, {10, 2, false}, {10, 3, true}, {400, 9, false}, {400, 11, true}, {0, 0, false},
	} {
		if got := Late(tt.latency, tt.lag); got != tt.want {
			t.Errorf("Late(%v ms, %v ms) = %t, want %t", tt.latency, tt.lag, got, tt.want)
		}
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(slot - time.Duration(time.Now().UnixNano())%slot) // to the beginning of a slot
		var r rate
		for range 2 {
			for range 20 {
				r.add(time.Now())
				time.Sleep(slot / 20)
			}
		}
		if got := r.add(time.Now()); got != 200 {
			t.Errorf("20 in a tenth of a second = %v per second, want 200", got)
		}
		time.Sleep(time.Second)
		if got := r.add(time.Now()); got != 10 {
			t.Errorf("after a pause: %v per second, want 10", got)
		}
	})
}

func TestPercentile(t *testing.T) {
	list := make([]float64, 1000)
	for i := range list {
		list[i] = float64(1000 - i)
	}
	for percent, want := range map[float64]float64{50: 500, 99: 990, 99.9: 999, 100: 1000} {
		if got := percentile(list, percent); got != want {
			t.Errorf("p%v = %v, want %v", percent, got, want)
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("p50 of nothing = %v", got)
	}
}
