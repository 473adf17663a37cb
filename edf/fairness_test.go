// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// The figures in the package documentation: over one period, the furthest that an endpoint's
// picks get from its share of the picks so far, and the longest run of one endpoint (T-EDF-3).
func TestFairness(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	upTo := func(n int, most uint32) []uint32 {
		weights := make([]uint32, n)
		for i := range weights {
			weights[i] = 1 + r.Uint32N(most)
		}
		return weights
	}
	for _, test := range []struct {
		name    string
		weights []uint32
		want    string // deviation, run
	}{
		{"10 endpoints of weight 1 to 10", upTo(10, 10), "1.23 1"},
		{"100 endpoints of weight 1 to 1000", upTo(100, 1000), "1.73 1"},
		{"weight 1000 beside 1000 of weight 1", append([]uint32{1000}, slices.Repeat([]uint32{1}, 1000)...), "500.00 1000"},
		{"weight 1000 behind 1000 of weight 1", append(slices.Repeat([]uint32{1}, 1000), 1000), "499.50 999"},
	} {
		h, err := Config{Weights: test.weights}.queue()
		kit.Must(t, err)
		deviation, run := unfairness(h, test.weights)
		if got := fmt.Sprintf("%.2f %d", deviation, run); got != test.want {
			t.Errorf("%s: deviation and run %s, want %s", test.name, got, test.want)
		}
	}
}

// unfairness draws a period from h.
func unfairness(h *queue, weights []uint32) (deviation float64, run int) {
	picks := make([]float64, len(weights))
	share := make([]float64, len(weights))
	for i, w := range weights {
		share[i] = float64(w) / float64(h.total.sum)
	}
	last, length := -1, 0
	for n := range h.total.period() {
		i := h.next()
		picks[i]++
		if i != last {
			last, length = i, 0
		}
		length++
		run = max(run, length)
		for i := range picks {
			deviation = max(deviation, math.Abs(picks[i]-float64(n+1)*share[i]))
		}
	}
	return deviation, run
}
