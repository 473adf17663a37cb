// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// wrrWorld is a newWorld with PolicyClientWRR and n endpoints.
func wrrWorld(n int) *world {
	w := newWorld(zone("a", 1, endpoints(0, make([]uint32, n)...)))
	for i := range n {
		w.reweigh(i, 7) // which does not matter
	}
	w.leaf(0).Policy = Policy{Kind: PolicyClientWRR, Flat: true, WRR: &ClientWRR{}}
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
		if got := w.build(t).clusters.At(0).groups[0].schedule.Weights(); !slices.Equal(got, test.want) {
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
	if got, want := w.build(t).clusters.At(0).groups[0].schedule.Weights(), []uint32{128, 384, 0, 256}; !slices.Equal(got, want) {
		t.Errorf("weights %v, want %v", got, want)
	}
	w.flat(0)[1].Connectivity = TransientFailure
	w.states[0].Version++
	if got, want := w.build(t).clusters.At(0).groups[0].schedule.Weights(), []uint32{1, 0, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("with one weight known they are %v, want %v", got, want)
	}
}

// Shares follow the reports, to within 1 % if builds are as far apart as they
// should be and 5 % if there are next to no RPCs between them:
// the sequence never starts over (T-WRR-2).
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
	if after := w.build(t); after.clusters.At(0).groups[0].schedule != s.clusters.At(0).groups[0].schedule {
		t.Error("a build without a new report makes a new sequence")
	}
}

func TestSlowStartFactor(t *testing.T) {
	for _, test := range []struct {
		aggression, percent float64
		age                 time.Duration
		want                float64
	}{
		{1, 10, 0, .1}, {1, 10, 5 * time.Second, .1}, {1, 10, 30 * time.Second, .5}, {1, 10, time.Minute, 1}, {1, 10, time.Hour, 1},
		{1, 0, 0, 1. / 60000}, {2, 10, 15 * time.Second, .5}, {.5, 10, 30 * time.Second, .25}, {1, 100, 0, 1}, {math.MaxFloat64, 0, 0, 1},
	} {
		s := SlowStart{Window: time.Minute, Aggression: test.aggression, MinWeightPercent: test.percent}
		if got := s.factor(test.age); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%+v after %v: factor %v, want %v", s, test.age, got, test.want)
		}
	}
	short := SlowStart{Window: time.Microsecond, Aggression: 1, MinWeightPercent: 10}
	if got := short.factor(0); got != 1 {
		t.Errorf("a window of a microsecond starts at %v", got)
	}
}

// A new endpoint's share follows Envoy's curve to within 5 % with every policy that has
// weights, and InSlowStart reports how long builds are useful.
func TestSlowStartShares(t *testing.T) {
	const second = int64(time.Second)
	for _, policy := range []Policy{
		{Kind: PolicyEDF}, {Kind: PolicyEDF, Flat: true}, {Kind: PolicyRoundRobin}, {Kind: PolicyClientWRR, WRR: &ClientWRR{}}, {Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 2}},
	} {
		for _, weight := range []uint32{1, 3, 100000, 1 << 29} {
			w := newWorld(zone("a", 1, endpoints(0, weight, weight, weight, weight)))
			policy.SlowStart = &SlowStart{Window: time.Minute, Aggression: 2, MinWeightPercent: 10}
			w.leaf(0).Policy = policy
			w.leaf(0).MaxRequests = math.MaxUint32
			w.renew(0)
			for i, e := range w.flat(0) {
				e.Connectivity = Ready
				e.SetWeight(5)
				e.StateSince = int64(i) * 1000 * second
			}
			list, rng := w.flat(0), newRand(1)
			for _, age := range []int64{0, 1, 15, 40, 60} {
				w.env.Now = (3000 + age) * second
				w.states[0].Version++
				s := w.build(t)
				if got, want := s.InSlowStart(0), age < 60; got != want {
					t.Errorf("%+v after %d s: InSlowStart = %t", policy, age, got)
				}
				const rounds = 20000
				n := 0.
				for range rounds {
					i := s.Pick(bg, "/s/m", rng.Uint64()).Index
					list[i].Finish(CallOK)
					if i == 3 {
						n++
					}
				}
				factor := max(math.Sqrt(float64(age)/60), .1)
				share, tolerance := factor/(3+factor), .02
				if policy.Kind == PolicyLeastRequest { // which draws
					tolerance = .05 + 4/math.Sqrt(rounds*share)
				}
				if math.Abs(n/rounds/share-1) > tolerance {
					t.Errorf("%+v, weight %d, after %d s: a share of %.4f, want %.4f", policy, weight, age, n/rounds, share)
				}
			}
		}
	}
}

// Slow start leaves weights and place unchanged once it has ended.
func TestSlowStartEnds(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 2)))
	w.leaf(0).Policy.SlowStart = &SlowStart{Window: 100, Aggression: 1}
	w.flat(0)[0].StateSince, w.env.Now = 1000, 900 // in the future, if clocks are odd
	w.states[0].Version++
	if s := w.build(t); !s.InSlowStart(0) || s.ClusterErr(0) != nil {
		t.Errorf("InSlowStart = %t, error %v", s.InSlowStart(0), s.ClusterErr(0))
	}
	if s := w.build(t); !s.InSlowStart(0) || s.InSlowStart(1) || s.InSlowStart(-1) {
		t.Error("a reused group does not report slow start")
	}
	w.env.Now = 1100
	w.states[0].Version++
	s := w.build(t)
	if got := s.clusters.At(0).groups[0].schedule.Weights(); s.InSlowStart(0) || got[0] != 1 || got[1] != 2 {
		t.Errorf("after the window InSlowStart = %t, weights %v", s.InSlowStart(0), got)
	}
}

// Scaling weights up must not make them overflow, however far apart they are.
func TestSlowStartScale(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 1<<31)))
	w.leaf(0).Policy.SlowStart = &SlowStart{Window: 100, Aggression: 1}
	w.flat(0)[0].StateSince, w.env.Now = 1000, 1050
	if got := w.build(t).clusters.At(0).groups[0].schedule.Weights(); got[0] != 1 || got[1] != 1<<31 {
		t.Errorf("weights %v", got)
	}
}

// One cluster's slow start is not another's.
func TestWarmingByCluster(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)))
	w.leaf(0).Policy.SlowStart = &SlowStart{Window: 100, Aggression: 1}
	w.add(Leaf{Priorities: []Priority{{Localities: []Locality{zone("a", 1, endpoints(0, 1))}}}})
	if s := w.build(t); !s.InSlowStart(0) || s.InSlowStart(1) {
		t.Errorf("InSlowStart = %t, %t, want true, false", s.InSlowStart(0), s.InSlowStart(1))
	}
}

func TestSlowStartErrors(t *testing.T) {
	for _, test := range []struct {
		start SlowStart
		want  string
	}{
		{SlowStart{0, 1, 10}, "window 0s is not positive"},
		{SlowStart{1, 0, 10}, "aggression 0 is not positive"},
		{SlowStart{1, math.NaN(), 10}, "aggression NaN is not positive"},
		{SlowStart{1, 1, -1}, "minimum weight -1 % is not within"},
		{SlowStart{1, 1, math.NaN()}, "minimum weight NaN % is not within"},
	} {
		w := newWorld(zone("a", 1, endpoints(0, 1)))
		w.leaf(0).Policy.SlowStart = &test.start
		if err := w.build(t).ClusterErr(0); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: error %v, want one with %q", test.start, err, test.want)
		}
	}
}
