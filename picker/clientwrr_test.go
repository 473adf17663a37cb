// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"slices"
	"testing"
)

// wrrWorld is a newWorld with PolicyClientWRR and n endpoints.
func wrrWorld(n int) *world {
	w := newWorld(zone("a", 1, endpoints(0, make([]uint32, n)...)))
	for i := range n {
		w.leaf(0).Priorities[0].Localities[0].Endpoints[i].Weight = 7 // which does not matter
	}
	w.leaf(0).Policy = Policy{Kind: PolicyClientWRR, Flat: true}
	w.leaf(0).MaxRequests = math.MaxUint32
	return w
}

// T-WRR-1, T-WRR-3, T-WRR-4: weights become integers with a mean of 256, unknown
// ones the mean, and bounds keep everyone in the game.
func TestOwnWeights(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct {
		own  []float64
		want []uint32
	}{
		{[]float64{0, 0, 0}, []uint32{1, 1, 1}},
		{[]float64{5, 0, 0}, []uint32{1, 1, 1}}, // A58: fewer than two are known
		{[]float64{5, -1, nan}, []uint32{1, 1, 1}},
		{[]float64{1, 3}, []uint32{128, 384}},
		{[]float64{1, 3, 0}, []uint32{128, 384, 256}},
		{[]float64{1, 3, nan, inf, -inf, -3, 1e300}, []uint32{128, 384, 256, 256, 256, 256, 256}},
		{[]float64{1e-30, 3e-30, 1e-300}, []uint32{128, 384, 256}},
		{[]float64{3e38, 1e38}, []uint32{384, 128}},
		{append(slices.Repeat([]float64{1}, 99), 101), append(slices.Repeat([]uint32{128}, 99), 2560)},
		{[]float64{1e-9, 1, 1}, []uint32{3, 384, 384}},
	} {
		w := wrrWorld(len(test.own))
		for i, own := range test.own {
			w.flat(0)[i].SetWeight(own)
		}
		if got := w.build(t).clusters[0].groups[0].weights; !slices.Equal(got, test.want) {
			t.Errorf("own weights %v become %v, want %v", test.own, got, test.want)
		}
	}
}

// Only endpoints that are READY have a say in the mean.
func TestOwnWeightsOfReady(t *testing.T) {
	w := wrrWorld(4)
	for i, own := range []float64{1, 3, 1000, 0} {
		w.flat(0)[i].SetWeight(own)
	}
	w.flat(0)[2].Connectivity = Connecting
	if got, want := w.build(t).clusters[0].groups[0].weights, []uint32{128, 384, 0, 256}; !slices.Equal(got, want) {
		t.Errorf("weights %v, want %v", got, want)
	}
	w.flat(0)[1].Connectivity = TransientFailure
	w.states[0].Version++
	if got, want := w.build(t).clusters[0].groups[0].weights, []uint32{1, 0, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("with one weight known they are %v, want %v", got, want)
	}
}

// Shares follow the reports, to within 1 % if builds are as far apart as they
// should be (row 10 of the aims) and 5 % if there are next to no RPCs between them
// (row 9): the sequence never starts over (T-WRR-2).
func TestClientWRRShares(t *testing.T) {
	for _, test := range []struct {
		builds, picks int
		tolerance     float64
	}{{12000, 10, .05}, {100, 2000, .01}} {
		if raceEnabled && test.builds > 1000 {
			continue
		}
		const n = 8
		w, rng := wrrWorld(n), newRand(2)
		w.builder.start = newRand(1).Uint64
		counts, due := make([]float64, n), make([]float64, n)
		for range test.builds {
			total := 0.
			own := make([]float64, n)
			for i := range own {
				own[i] = float64(i+1) * (.9 + rng.Float64()/5)
				total += own[i]
				w.flat(0)[i].SetWeight(own[i])
			}
			w.states[0].Version++
			s := w.build(t)
			for range test.picks {
				counts[s.Pick(bg, "/s/m", 0).Index]++
			}
			for i := range own {
				due[i] += float64(test.picks) * own[i] / total
			}
		}
		for i := range counts {
			if math.Abs(counts[i]/due[i]-1) > test.tolerance {
				t.Errorf("%d picks a build: endpoint %d has %v, want %.0f ± %v", test.picks, i, counts[i], due[i], test.tolerance)
			}
		}
	}
	w := wrrWorld(3)
	for i, e := range w.flat(0) {
		e.SetWeight(float64(i + 1))
	}
	w.build(t)
	s := w.snapshot
	w.states[0].Version++
	if after := w.build(t); after.clusters[0].groups[0].schedule != s.clusters[0].groups[0].schedule {
		t.Error("a build without a new report makes a new sequence")
	}
}
