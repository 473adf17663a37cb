// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/big"
	"strings"
	"testing"
)

// leastWorld is a newWorld with PolicyLeastRequest.
func leastWorld(choices uint32, localities ...Locality) *world {
	w := newWorld(localities...)
	w.leaf(0).Policy = Policy{Kind: PolicyLeastRequest, Flat: true, Least: &LeastRequest{Choices: choices}}
	w.leaf(0).MaxRequests = math.MaxUint32
	w.renew(0)
	for _, e := range w.flat(0) {
		e.Connectivity = Ready
	}
	return w
}

// slowLeast is A48's rule, word for word, over the endpoints at some indexes.
func slowLeast(ready []int32, load []int32, choices int, r uint64) int32 {
	best := int32(-1)
	for k := range choices {
		x := new(big.Int).SetUint64(draw(r, drawCandidate+uint64(k)))
		x.Rsh(x.Mul(x, big.NewInt(int64(len(ready)))), 64)
		if i := ready[x.Int64()]; best < 0 || load[i] < load[best] {
			best = i
		}
	}
	return best
}

// T-LR-1: samples are drawn with replacement, as many as choices also of fewer
// endpoints, and the first of equals is picked; only READY endpoints count.
func TestLeastRequestOracle(t *testing.T) {
	for seed := range uint64(40) {
		rng := newRand(seed)
		choices := 2 + rng.Uint32N(12)
		w := leastWorld(choices, zone("a", 1, endpoints(0, 3, 3, 3)), zone("b", 9, endpoints(3, 3, 3)))
		list := w.flat(0)
		load := make([]int32, len(list))
		var running []int32
		for step := range 1000 {
			if step%50 == 0 {
				for _, e := range list {
					e.Connectivity = pick(rng, Ready, Ready, Ready, Idle, TransientFailure)
				}
				list[rng.IntN(len(list))].Connectivity = Ready
				w.states[0].Version++
				w.build(t)
			}
			var ready []int32
			for i, e := range list {
				if e.Connectivity == Ready {
					ready = append(ready, int32(i))
				}
			}
			r := rng.Uint64()
			want := slowLeast(ready, load, int(min(choices, 10)), r)
			if got := w.snapshot.Pick(bg, "/s/m", r); got != (Result{Index: want}) {
				t.Fatalf("seed %d, step %d: %+v, want %d with loads %v", seed, step, got, want, load)
			}
			load[want]++
			running = append(running, want)
			for len(running) > 0 && rng.IntN(len(running)+10) > 10 {
				k := rng.IntN(len(running))
				i := running[k]
				running[k] = running[len(running)-1]
				running = running[:len(running)-1]
				list[i].Finish(CallResult(rng.IntN(3))) // A48: for every status
				load[i]--
			}
		}
		for i, e := range list {
			if got := e.inFlight.Load(); got != load[i] {
				t.Errorf("seed %d: endpoint %d has %d RPCs in flight, want %d", seed, i, got, load[i])
			}
		}
	}
}

// Weighted endpoints share RPCs in proportion to their weights, both while nothing
// is in flight and while RPCs pile up.
func TestLeastRequestWeights(t *testing.T) {
	const rounds = 60000
	for _, ends := range []bool{true, false} {
		w := leastWorld(2, zone("a", 1, endpoints(0, 1, 2, 3, 4)))
		s, list, rng := w.build(t), w.flat(0), newRand(1)
		var counts [4]float64
		for range rounds {
			i := s.Pick(bg, "/s/m", rng.Uint64()).Index
			if counts[i]++; ends {
				list[i].Finish(CallOK)
			}
		}
		for i, n := range counts {
			if share := float64(i+1) / 10; math.Abs(n/rounds/share-1) > .04 {
				t.Errorf("RPCs end: %t, endpoint %d has a share of %.4f, want %.1f", ends, i, n/rounds, share)
			}
		}
	}
}

// An endpoint that is slow gets fewer RPCs.
func TestLeastRequestAvoidsSlow(t *testing.T) {
	w := leastWorld(2, zone("a", 1, endpoints(0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)))
	s, list, rng := w.build(t), w.flat(0), newRand(1)
	ends := make(map[int][]int32) // by time
	slow := 0.
	const rounds = 20000
	for now := range rounds {
		for _, i := range ends[now] {
			list[i].Finish(CallOK)
		}
		delete(ends, now)
		i, takes := s.Pick(bg, "/s/m", rng.Uint64()).Index, 5
		if i == 0 {
			slow++
			takes = 250
		}
		ends[now+takes] = append(ends[now+takes], i)
	}
	if slow/rounds > .03 {
		t.Errorf("an endpoint that takes 50 times as long has a share of %.3f of RPCs, round robin would give it .1", slow/rounds)
	}
}

func TestLeastRequestErrors(t *testing.T) {
	w := leastWorld(2, zone("a", 1, endpoints(0, 0, 0)))
	if err := w.build(t).ClusterErr(0); err == nil || !strings.Contains(err.Error(), "none of 2 weights is above 0") {
		t.Errorf("weights of 0: error %v", err)
	}
	w.leaf(0).Policy.Least = nil
	w.renew(0)
	if err := w.build(t).ClusterErr(0); err == nil || !strings.Contains(err.Error(), "policy least_request has no parameters") {
		t.Errorf("no parameters: error %v", err)
	}
}

// The end of an RPC must mean the same as its beginning, so endpoints count RPCs in
// flight for as long as they are used, or never.
func TestCountInFlightMismatch(t *testing.T) {
	w := leastWorld(2, zone("a", 1, endpoints(0, 1)))
	w.leaf(0).Policy.Kind = PolicyEDF
	if err := w.build(t).ClusterErr(0); err == nil || !strings.Contains(err.Error(), "counts RPCs in flight: true, want false for its policy") {
		t.Errorf("endpoints that count RPCs needlessly: error %v", err)
	}
	w.renew(0)
	for _, e := range w.flat(0) {
		e.Connectivity = Ready
	}
	if s := w.build(t); s.ClusterErr(0) != nil || s.Pick(bg, "/s/m", 0).Outcome != Picked {
		t.Errorf("endpoints that do not count: error %v", s.ClusterErr(0))
	}
	w.leaf(0).Policy.Kind = PolicyLeastRequest
	w.states[0].Version++
	if err := w.build(t).ClusterErr(0); err == nil || !strings.Contains(err.Error(), "counts RPCs in flight: false, want true for its policy") {
		t.Errorf("endpoints that should count: error %v", err)
	}
}

func TestLeastRequestAllocs(t *testing.T) {
	w := leastWorld(10, zone("a", 1, endpoints(0, 1, 2, 3)))
	s, list, r := w.build(t), w.flat(0), uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		r += 0x9e3779b97f4a7c15
		list[s.Pick(bg, "/s/m", r).Index].Finish(CallOK)
	}); n != 0 {
		t.Errorf("Pick and Finish allocate %v times", n)
	}
	if !s.NeedsRandom() {
		t.Error("samples take no random word")
	}
}

// TestRandom: PolicyRandom picks each READY endpoint with equal probability, whatever it weighs and
// however many RPCs it has in flight, and does not allocate.
func TestRandom(t *testing.T) {
	for _, flat := range []bool{false, true} {
		w := leastWorld(2, zone("a", 1, endpoints(0, 1, 9, 3, 1)), zone("b", 1, endpoints(4, 1, 50, 1, 7)))
		w.leaf(0).Policy = Policy{Kind: PolicyRandom, Flat: flat}
		w.renew(0)
		list := w.flat(0)
		for _, e := range list {
			e.Connectivity = Ready
		}
		list[2].Connectivity, list[7].Connectivity = TransientFailure, Idle
		s := w.build(t)
		rng := newRand(1)
		counts, draws := make([]float64, len(list)), 60_000
		if n := testing.AllocsPerRun(100, func() { s.Pick(bg, "/s/m", rng.Uint64()) }); n != 0 {
			t.Errorf("flat %t: a pick allocates %v times, want 0", flat, n)
		}
		for range draws {
			r := s.Pick(bg, "/s/m", rng.Uint64())
			if r.Outcome != Picked {
				t.Fatalf("outcome %v", r.Outcome)
			}
			counts[r.Index]++ // RPCs stay in flight
		}
		var chi float64
		for i, n := range counts {
			if i == 2 || i == 7 {
				if n > 0 {
					t.Errorf("flat %t: endpoint %d is not READY and was picked", flat, i)
				}
				continue
			}
			want := float64(draws) / 6 // both localities have three READY endpoints and equal weights
			chi += (n - want) * (n - want) / want
		}
		if chi > 20.5 { // 5 degrees of freedom, p = 0.001
			t.Errorf("flat %t: chi-square of %v draws = %.1f, want at most 20.5", flat, counts, chi)
		}
	}
}

// BenchmarkRandom picks by PolicyRandom, and ends the RPC.
func BenchmarkRandom(b *testing.B) {
	w := leastWorld(2, zone("a", 1, endpoints(0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)))
	w.leaf(0).Policy = Policy{Kind: PolicyRandom, Flat: true}
	w.renew(0)
	states := w.flat(0)
	for _, e := range states {
		e.Connectivity = Ready
	}
	s, rng := w.build(b), newRand(1)
	b.ReportAllocs()
	for b.Loop() {
		if r := s.Pick(bg, "/s/m", rng.Uint64()); r.Outcome == Picked {
			states[r.Index].Finish(CallOK)
		}
	}
}

// A full scan picks an endpoint with the fewest RPCs in flight for its weight, and draws among equals
// by weight.
func TestLeastRequestFullScan(t *testing.T) {
	for seed := range uint64(60) {
		rng := newRand(seed)
		weights := make([]uint32, 1+rng.IntN(12))
		for i := range weights {
			weights[i] = pick(rng, 1, 1+rng.Uint32N(4))
		}
		w := leastWorld(0, zone("a", 1, endpoints(0, weights...)))
		for _, e := range w.flat(0) {
			e.Connectivity = Ready
		}
		s, list := w.build(t), w.flat(0)
		load := make([]int, len(list))
		for range 30 { // RPCs that stay in flight
			i := s.Pick(bg, "/s/m", rng.Uint64()).Index
			for k := range list {
				if load[k]*int(weights[i]) < load[i]*int(weights[k]) {
					t.Fatalf("seed %d: endpoint %d was picked with %d RPCs in flight of %v, weights %v", seed, i, load[i], load, weights)
				}
			}
			load[i]++
		}
		want := map[int32]float64{}
		total := 0.
		for i := range list {
			least := true
			for k := range list {
				least = least && load[k]*int(weights[i]) >= load[i]*int(weights[k])
			}
			if least {
				want[int32(i)] = float64(weights[i])
				total += float64(weights[i])
			}
		}
		const picks = 4000
		got := map[int32]float64{}
		for range picks {
			i := s.Pick(bg, "/s/m", rng.Uint64()).Index
			got[i]++
			list[i].Finish(CallOK)
		}
		for i := range list {
			p := want[int32(i)] / total
			if math.Abs(got[int32(i)]-p*picks) > 6*math.Sqrt(picks*p*(1-p)+1) {
				t.Errorf("seed %d: endpoint %d of weights %v and loads %v was picked %.0f times of %d, want about %.0f", seed, i, weights, load, got[int32(i)], picks, p*picks)
			}
		}
	}
}
