// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/big"
	"testing"
)

// leastWorld is a newWorld with PolicyLeastRequest.
func leastWorld(choices uint32, localities ...Locality) *world {
	w := newWorld(localities...)
	w.leaf(0).Policy = Policy{Kind: PolicyLeastRequest, Flat: true, Least: &LeastRequest{Choices: choices}}
	w.leaf(0).MaxRequests = math.MaxUint32
	w.ready()
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
				w.rebuild(t)
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
