// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit/slow"
)

var raceEnabled bool

// scaled returns how often to repeat something: n, or a tenth where that takes ten times
// as long.
func scaled(n int) int {
	if raceEnabled || testing.Short() {
		return max(1, n/10)
	}
	return n
}

// oneGoroutine skips a test that takes long under the race detector and has nothing to race.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine only")
	}
}

func TestInvalidWeights(t *testing.T) {
	for _, test := range []struct {
		name    string
		weights []uint32
		want    string
	}{
		{"nil", nil, "edf: weights: none of 0 is above zero"},
		{"zeros", make([]uint32, 3), "edf: weights: none of 3 is above zero"},
		{"sum", []uint32{1 << 31, 1 << 31}, "edf: weights: sum 4294967296 is more than 4294967295"},
		{"large sum", slices.Repeat([]uint32{1<<32 - 1}, 5), "edf: weights: sum 21474836475 is more than 4294967295"},
		{"endpoints", make([]uint32, 1<<24+1), "edf: weights: 16777217 endpoints, more than 16777216"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, err := Config{Weights: test.weights}.queue()
			if h != nil || err == nil || err.Error() != test.want {
				t.Errorf("queue = %v, %v, want error %q", h, err, test.want)
			}
			s, err := Config{Weights: test.weights}.Schedule()
			if s != nil || err == nil || err.Error() != test.want {
				t.Errorf("Schedule = %v, %v, want error %q", s, err, test.want)
			}
		})
	}
}

// The largest sum is valid (T-EDS-3), and one endpoint may have all of it.
func TestLargestWeights(t *testing.T) {
	for _, weights := range [][]uint32{{1<<32 - 1}, {1<<31 - 1, 1 << 31}, {1, 1<<32 - 2}} {
		forEachImpl(t, Config{Weights: weights}, func(t *testing.T, next func() int) {
			if got, want := take(next, 300), slow.NewEDF(weights).Take(300); !slices.Equal(got, want) {
				t.Errorf("weights %v: got %v, want %v", weights, got, want)
			}
		})
	}
}

func TestReweighRejects(t *testing.T) {
	weights := []uint32{3, 2, 1}
	s, _ := Config{Weights: weights}.Schedule()
	for _, test := range []struct {
		weights []uint32
		want    string
	}{
		{[]uint32{1, 2}, "edf: weights: 2 endpoints, want 3 as before"},
		{nil, "edf: weights: 0 endpoints, want 3 as before"},
		{[]uint32{0, 0, 0}, "none of 3 is above zero"},
	} {
		if next, err := s.Reweigh(test.weights, 0); next != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Reweigh(%v) = %v, %v, want error %q", test.weights, next, err, test.want)
		}
	}
	// The old one remains usable.
	if got, want := take(draw(s).next, 6), slow.NewEDF(weights).Take(6); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
