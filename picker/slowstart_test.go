// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"strings"
	"testing"
	"time"
)

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

// A new endpoint's share follows Envoy's curve to within 5 % with every policy that
// has weights (users' row 19), and Warming says for how long builds are worth while.
func TestSlowStartShares(t *testing.T) {
	const second = int64(time.Second)
	for _, policy := range []Policy{
		{Kind: PolicyEDF}, {Kind: PolicyEDF, Flat: true}, {Kind: PolicyRoundRobin}, {Kind: PolicyClientWRR}, {Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 2}},
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
				e.ReadySince = int64(i) * 1000 * second
			}
			list, rng := w.flat(0), newRand(1)
			for _, age := range []int64{0, 1, 15, 40, 60} {
				w.env.Now = (3000 + age) * second
				w.states[0].Version++
				s := w.build(t)
				if got, want := s.Warming(0), age < 60; got != want {
					t.Errorf("%+v after %d s: Warming = %t", policy, age, got)
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

// Slow start leaves weights and place alone once it is over.
func TestSlowStartEnds(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 2)))
	w.leaf(0).Policy.SlowStart = &SlowStart{Window: 100, Aggression: 1}
	w.flat(0)[0].ReadySince, w.env.Now = 1000, 900 // in the future, if clocks are odd
	w.states[0].Version++
	if s := w.build(t); !s.Warming(0) || s.ClusterErr(0) != nil {
		t.Errorf("Warming = %t, error %v", s.Warming(0), s.ClusterErr(0))
	}
	if s := w.build(t); !s.Warming(0) || s.Warming(1) || s.Warming(-1) {
		t.Error("what is taken over does not say that it is warming")
	}
	w.env.Now = 1100
	w.states[0].Version++
	s := w.build(t)
	if got := s.clusters[0].groups[0].weights; s.Warming(0) || got[0] != 1 || got[1] != 2 {
		t.Errorf("after the window Warming = %t, weights %v", s.Warming(0), got)
	}
}

// Scaling weights up must not make them overflow, however far apart they are.
func TestSlowStartScale(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 1<<31)))
	w.leaf(0).Policy.SlowStart = &SlowStart{Window: 100, Aggression: 1}
	w.flat(0)[0].ReadySince, w.env.Now = 1000, 1050
	if got := w.build(t).clusters[0].groups[0].weights; got[0] != 1 || got[1] != 1<<31 {
		t.Errorf("weights %v", got)
	}
}

// One cluster's slow start is not another's.
func TestWarmingByCluster(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)))
	w.leaf(0).Policy.SlowStart = &SlowStart{Window: 100, Aggression: 1}
	w.add(Leaf{Priorities: []Priority{{Localities: []Locality{zone("a", 1, endpoints(0, 1))}}}})
	if s := w.build(t); !s.Warming(0) || s.Warming(1) {
		t.Errorf("Warming = %t, %t, want true, false", s.Warming(0), s.Warming(1))
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
