// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestLoadShares begins with the worked example of Envoy's documentation.
func TestLoadShares(t *testing.T) {
	for _, test := range []struct {
		name      string
		own       int
		all       []localityLoad
		want      []float64
		preferred bool
	}{
		{"Envoy's worked example", 0, []localityLoad{{10, .7, false}, {10, .3, false}, {10, .4, false}}, []float64{3. / 16, 7. / 16, 6. / 16}, false},
		{"its end", 0, []localityLoad{{10, .45, false}, {10, .45, false}, {10, .45, false}}, []float64{.97, .015, .015}, true},
		{"at the threshold", 0, []localityLoad{{10, .5, false}, {10, .4, false}}, []float64{.97, .03}, true},
		{"beyond the threshold", 0, []localityLoad{{10, .5, false}, {10, .25, false}}, []float64{.4, .6}, false},
		{"less busy", 1, []localityLoad{{10, .9, false}, {10, .1, false}}, []float64{.03, .97}, true},
		{"probes by endpoints", 0, []localityLoad{{10, .1, false}, {30, .1, false}, {10, .9, false}}, []float64{.97, .0225, .0075}, true},
		{"the mean is by endpoint", 0, []localityLoad{{10, .6, false}, {30, .6, false}, {10, .2, false}}, []float64{.97, .0225, .0075}, true},
		{"nothing is known", 0, []localityLoad{{10, 0, false}, {30, 0, false}}, []float64{.97, .03}, true},
		{"nothing is known and nowhere is home", -1, []localityLoad{{10, 0, false}, {30, 0, false}}, []float64{.25, .75}, false},
		{"a stale one weighs its endpoints", -1, []localityLoad{{10, .9, true}, {10, .5, false}}, []float64{2. / 3, 1. / 3}, false},
		{"all are full", 0, []localityLoad{{10, 1, false}, {30, 1.2, false}}, []float64{.25, .75}, false},
		{"the own one is full, others nearly", 0, []localityLoad{{10, 1, false}, {10, .95, false}}, []float64{0, 1}, false},
		{"the own one is down", 0, []localityLoad{{0, .1, false}, {10, .5, false}}, []float64{0, 1}, false},
		{"the others are down", 0, []localityLoad{{10, .9, false}, {0, .1, false}}, []float64{1, 0}, false},
		{"alone", 0, []localityLoad{{10, .9, false}}, []float64{1}, false},
		{"spill-over below the probes", 0, []localityLoad{{100, .5, false}, {1, .3, false}}, []float64{.97, .03}, false},
	} {
		got, preferred := loadShares(test.own, test.all, .1, .03)
		for i := range got {
			if math.Abs(got[i]-test.want[i]) > 1e-9 || len(got) != len(test.want) {
				t.Errorf("%s: %v, want %v", test.name, got, test.want)
				break
			}
		}
		if preferred != test.preferred {
			t.Errorf("%s: preferred %v", test.name, preferred)
		}
	}
}

// slowLoadShares follows the five stages of Envoy's documentation, one after the other, in
// weights instead of shares. Other than the text, and as the code of Envoy, it does not
// prefer a locality that has nothing left.
func slowLoadShares(own int, all []localityLoad, threshold, probe float64) []float64 {
	base, weights, total := make([]float64, len(all)), make([]float64, len(all)), 0.
	for i, l := range all {
		switch {
		case l.stale:
			base[i] = l.endpoints
		case l.utilization < 1:
			base[i] = l.endpoints * (1 - l.utilization)
		}
		total += base[i]
	}
	if total == 0 {
		for i, l := range all {
			weights[i] = l.endpoints
		}
	} else {
		copy(weights, base)
		remote, sum := 0., 0.
		for i, l := range all {
			if i != own {
				remote += l.endpoints
				sum += l.utilization * l.endpoints
			}
		}
		if own >= 0 && remote > 0 {
			if base[own] > 0 && all[own].utilization <= sum/remote+threshold {
				for i := range weights {
					weights[i] = 0
				}
				weights[own] = total
			}
			away := 0.
			for i := range weights {
				if i != own {
					away += weights[i]
				}
			}
			if away/total < probe {
				take := min(probe*total-away, weights[own])
				weights[own] -= take
				for i, l := range all {
					if i != own {
						weights[i] += take * l.endpoints / remote
					}
				}
			}
		}
	}
	sum := 0.
	for _, w := range weights {
		sum += w
	}
	for i := range weights {
		weights[i] /= sum
	}
	return weights
}

func TestLoadSharesOracle(t *testing.T) {
	for seed := range uint64(5000) {
		rng := newRand(seed)
		all := make([]localityLoad, 1+rng.IntN(5))
		total := 0.
		for i := range all {
			all[i] = localityLoad{float64(rng.IntN(20)), pick(rng, 0, 1, 1.5, rng.Float64(), rng.Float64(), rng.Float64()), rng.IntN(5) == 0}
			total += all[i].endpoints
		}
		if total == 0 {
			continue
		}
		own, threshold, probe := rng.IntN(len(all)+1)-1, rng.Float64()/2, pick(rng, 0, .03, rng.Float64())
		got, _ := loadShares(own, all, threshold, probe)
		want, sum := slowLoadShares(own, all, threshold, probe), 0.
		for i, s := range got {
			if math.Abs(s-want[i]) > 1e-9 || s < 0 || all[i].endpoints == 0 && s > 0 {
				t.Fatalf("seed %d: own %d of %+v, threshold %v, probes %v: %v, want %v", seed, own, all, threshold, probe, got, want)
			}
			sum += s
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("seed %d: shares %v sum to %v", seed, got, sum)
		}
	}
}

// loadWorld has three localities of ten endpoints, and a client in the first.
func loadWorld(policy Policy) *world {
	ten := []uint32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	w := newWorld(zone("a", 1, endpoints(0, ten...)), zone("b", 7, endpoints(10, ten...)), zone("c", 2, endpoints(20, ten...)))
	policy.LoadAware = &LoadAware{Threshold: .1, Probe: .03}
	l := w.leaf(0)
	l.MaxRequests, l.Policy, l.Origin = math.MaxUint32, policy, &Origin{Locality: LocalityID{Region: "r", Zone: "a"}}
	w.renew(0)
	for _, e := range w.flat(0) {
		e.Connectivity = Ready
	}
	return w
}

func (w *world) utilize(values ...float64) {
	for i, u := range values {
		w.states[0].Localities[i].Utilization = u
	}
}

// A hot locality sheds RPCs as in Envoy's worked example, with every policy within a locality.
func TestLoadAware(t *testing.T) {
	for _, policy := range []Policy{
		{},
		{Kind: PolicyRoundRobin},
		{Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 2}},
		{Kind: PolicyClientWRR, WRR: &ClientWRR{}},
	} {
		w := loadWorld(policy)
		w.utilize(.7, .3, .4)
		if got := zoneOdds(t, w); !near(got, []float64{.1875, .4375, .375}) {
			t.Errorf("policy %d: localities get %v", policy.Kind, got)
		}
		s, rng, counts, n := w.snapshot, newRand(1), [3]float64{}, 10000.
		for range int(n) {
			counts[s.Pick(bg, "/s/m", rng.Uint64()).Index/10]++
		}
		for i, want := range []float64{.1875, .4375, .375} {
			if d := counts[i]/n - want; math.Abs(d) > .02 { // four deviations at most, with a fixed seed
				t.Errorf("policy %d: localities get %v of %v picks", policy.Kind, counts, n)
			}
		}
		w.utilize(.45, .45, .45)
		if got := zoneOdds(t, w); !near(got, []float64{.97, .015, .015}) {
			t.Errorf("policy %d: localities get %v when they are equally busy", policy.Kind, got)
		}
		w.utilize(math.NaN(), math.Inf(1), -1)
		if got := zoneOdds(t, w); !near(got, []float64{.97, .015, .015}) {
			t.Errorf("policy %d: localities get %v by nonsense", policy.Kind, got)
		}
	}
}

func TestLoadAwareReasons(t *testing.T) {
	for _, test := range []struct {
		change func(w *world)
		reason string
		want   []float64
	}{
		{func(w *world) {}, "97 % of the RPCs stay in the client's locality: its utilization exceeds that of the other localities by at most 0.1; no endpoint has reported yet", []float64{.97, .015, .015}},
		{func(w *world) { w.utilize(.7, .3, .4) }, "exceeds that of the other localities by more", []float64{.1875, .4375, .375}},
		{func(w *world) { w.leaf(0).Origin.Locality = LocalityID{} }, "no locality", []float64{1. / 3, 1. / 3, 1. / 3}},
		{func(w *world) { w.leaf(0).Origin.Locality.Zone = "x" }, "the client's locality has no READY endpoint", []float64{1. / 3, 1. / 3, 1. / 3}},
		{func(w *world) { w.states[0].Localities[0].Stale = true; w.utilize(.9, .5, .5) }, "exceeds that of the other localities by more", []float64{.5, .25, .25}},
		{func(w *world) {
			for _, e := range w.flat(0)[5:10] {
				e.Connectivity = TransientFailure
			}
			w.utilize(.7, .3, .4)
		}, "exceeds that of the other localities by more", []float64{1.5 / 14.5, 7 / 14.5, 6 / 14.5}},
	} {
		w := loadWorld(Policy{})
		test.change(w)
		got := zoneOdds(t, w)
		if r := w.snapshot.LocalityRouting(0); !near(got, test.want) || !strings.Contains(r.Reason, test.reason) {
			t.Errorf("%s: %v, want %v: %+v", test.reason, got, test.want, r)
		}
	}
	w := loadWorld(Policy{})
	for _, e := range w.flat(0) {
		e.Connectivity = Connecting
	}
	w.states[0].Version++
	if r := w.build(t).LocalityRouting(0); r.InForce || r.Reason != "no endpoint is READY" {
		t.Errorf("%+v", r)
	}
}

func TestLoadAwareErrors(t *testing.T) {
	for name, policy := range map[string]Policy{
		"flat":              {Flat: true, LoadAware: &LoadAware{}},
		"zone-aware":        {ZoneAware: &ZoneAware{}, LoadAware: &LoadAware{}},
		"threshold above 1": {LoadAware: &LoadAware{Threshold: 1.1}},
		"threshold NaN":     {LoadAware: &LoadAware{Threshold: math.NaN()}},
		"probes of 1":       {LoadAware: &LoadAware{Probe: 1}},
		"probes below 0":    {LoadAware: &LoadAware{Probe: -.1}},
	} {
		if policy.check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// randomLoads makes a policy load-aware now and then, if it can be.
func randomLoads(rng *rand.Rand, leaf *Leaf) {
	if l := (&LoadAware{Threshold: rng.Float64(), Probe: pick(rng, 0, .03, .5)}); rng.IntN(4) == 0 && l.check(&leaf.Policy) == nil {
		leaf.Policy.LoadAware = l
		leaf.Origin = &Origin{Locality: LocalityID{Region: "r", Zone: pick(rng, "0", "1", "9")}}
	}
}
