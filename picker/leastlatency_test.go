// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/big"
	"slices"
	"testing"
	"time"
)

// latencyWorld is a newWorld with PolicyLeastLatency.
func latencyWorld(localities ...Locality) *world {
	w := newWorld(localities...)
	w.time = time.Second
	w.leaf(0).Policy = Policy{Kind: PolicyLeastLatency, Flat: true, Latency: &LeastLatency{Decay: 10 * time.Second}}
	w.leaf(0).MaxRequests = math.MaxUint32
	w.ready()
	return w
}

// slowChoice returns the candidate for the random word r by the documented rule, from costs that
// consider weights. explored is the candidate whose exploration is due, or -1.
func slowChoice(r uint64, costs []float64, weights []float64, alias *Alias) int {
	n := len(costs)
	draws := func(k uint64, n int) int {
		x := new(big.Int).SetUint64(draw(r, drawCandidate+k))
		return int(x.Rsh(x.Mul(x, big.NewInt(int64(n))), 64).Int64())
	}
	sample := func(k uint64) int {
		if alias != nil {
			return alias.Pick(draw(r, drawCandidate+k))
		}
		return draws(k, n)
	}
	first, mean := sample(0), 0.
	for _, w := range weights {
		mean += w / float64(n)
	}
	if n > 8 { // the cheaper of two different endpoints
		second := first
		if alias == nil {
			if second = draws(1, n-1); second == first {
				second = n - 1
			}
		} else {
			for k := uint64(1); k <= 4 && second == first; k++ {
				second = sample(k)
			}
		}
		if costs[second] < costs[first] {
			return second
		}
		return first
	}
	best, least := first, costs[first]/1.1
	for i, c := range costs {
		if i == first {
			continue
		}
		if c *= max(1, mean/weights[i]); c < least {
			best, least = i, c
		}
	}
	return best
}

func TestLeastLatencyOracle(t *testing.T) {
	for seed := range uint64(120) {
		rng := newRand(seed)
		var a, b []uint32
		even := rng.IntN(2) == 0
		for range 2 + rng.IntN(3)*rng.IntN(4) {
			w := uint32(3)
			if !even {
				w = 1 + rng.Uint32N(5)
			}
			if rng.IntN(2) == 0 {
				a = append(a, w)
			} else {
				b = append(b, w)
			}
		}
		w := latencyWorld(zone("a", 1, endpoints(0, append(a, 3)...)), zone("b", 9, endpoints(len(a)+1, append(b, 3)...)))
		list := w.flat(0)
		load := make([]int, len(list))
		weight := append(append(append(append([]uint32(nil), a...), 3), b...), 3)
		var running []int32
		for step := range 1000 {
			if step%50 == 0 {
				for _, e := range list {
					e.Connectivity = pick(rng, Ready, Ready, Ready, Idle, TransientFailure)
				}
				list[rng.IntN(len(list))].Connectivity = Ready
				w.rebuild(t)
			}
			w.time += time.Duration(rng.IntN(30)) * time.Millisecond
			now, l := w.clock.now(), w.snapshot.clusters.At(0).groups[0].latency
			var ready []int32
			var costs, weights []float64
			mean := 0.
			for i, e := range list {
				if e.Connectivity == Ready {
					ready, weights = append(ready, int32(i)), append(weights, float64(weight[i]))
					mean += float64(weight[i])
				}
			}
			mean /= float64(len(ready))
			for _, i := range ready {
				latency := float64(list[i].binding.timing.meanLatency(now, l.peers)) // no exploration: estimates are renewed here
				costs = append(costs, latency*(1+float64(load[i])*mean/float64(weight[i])))
			}
			r := rng.Uint64()
			got := w.snapshot.Pick(bg, "/s/m", r)
			// Costs that are equal but for rounding may be compared either way.
			ok := false
			for _, error := range []float64{0, 1e-6, -1e-6} {
				near := slices.Clone(costs)
				k := slices.Index(ready, got.Index)
				near[k] *= 1 - error
				ok = ok || ready[slowChoice(r, near, weights, l.alias)] == got.Index
			}
			if got.Outcome != Picked || !ok {
				t.Fatalf("seed %d, step %d: got %+v, want endpoint %d: costs %v, weights %v of %v", seed, step, got, ready[slowChoice(r, costs, weights, l.alias)], costs, weights, ready)
			}
			want := got.Index
			load[want]++
			running = append(running, want)
			for len(running) > 0 && rng.IntN(len(running)+10) > 10 {
				k := rng.IntN(len(running))
				i := running[k]
				running[k] = running[len(running)-1]
				running = running[:len(running)-1]
				list[i].FinishTimed(CallResult(rng.IntN(3)))
				load[i]--
			}
		}
		for i, e := range list {
			if e.InFlight() != load[i] {
				t.Errorf("seed %d: endpoint %d has %d RPCs in flight, want %d", seed, i, e.InFlight(), load[i])
			}
		}
		if n := w.breakers[0].InFlight(); n != int64(len(running)) {
			t.Errorf("seed %d: the breaker has %d in flight, want %d", seed, n, len(running))
		}
	}
}

// Two samples are different endpoints, and each pair is equally likely if weights are equal.
func TestLeastLatencySamplesDiffer(t *testing.T) {
	rng := newRand(1)
	for _, n := range []int{9, 10, 30} {
		l := &leastLatency{sampler: sampler{candidates: make([]candidate, n)}}
		pairs := make([]int, n*n)
		const draws = 200_000
		for range draws {
			r := rng.Uint64()
			first := l.sample(r, 0)
			second := l.other(r, first)
			for i := range l.candidates {
				for k := range l.candidates {
					if first == &l.candidates[i] && second == &l.candidates[k] {
						pairs[i*n+k]++
					}
				}
			}
		}
		for i, got := range pairs {
			want := float64(draws) / float64(n*(n-1))
			if i/n == i%n {
				want = 0
			}
			if math.Abs(float64(got)-want) > 6*math.Sqrt(want) {
				t.Errorf("%d endpoints: the pair %d, %d was drawn %d times, want about %.0f", n, i/n, i%n, got, want)
			}
		}
	}
}

// One or two slow endpoints of a small fleet get far less than 1 % of the RPCs, and a slow one that has
// recovered has its share again soon, both with and without weights (T-LL-1, D17).
func TestLeastLatencySlowPod(t *testing.T) {
	for _, x := range []struct {
		weights []uint32
		slow    int
	}{
		{[]uint32{1, 1}, 1}, {[]uint32{1, 1, 1}, 1}, {[]uint32{1, 1, 1, 1, 1}, 1}, {[]uint32{1, 1, 1, 1, 1}, 2}, {[]uint32{1, 1, 1, 1, 1, 1, 1}, 4},
		{[]uint32{1, 2, 3, 4, 5}, 1}, {[]uint32{3, 2, 1}, 1}, {[]uint32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1},
	} {
		for _, every := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
			w := latencyWorld(zone("a", 1, endpoints(0, x.weights...)))
			isSlow := func(i int32) bool { return int(i) < x.slow }
			takes := func(i int32) time.Duration {
				if isSlow(i) {
					return 208 * time.Millisecond
				}
				return 8 * time.Millisecond
			}
			w.playEvery(t, every, 30*time.Second, takes)
			share := 0.
			for i, s := range w.playEvery(t, every, 60*time.Second, takes) {
				if isSlow(int32(i)) {
					share += s
				}
			}
			if share > .005 {
				t.Errorf("weights %v, %d slow, an RPC every %v: the slow ones have a share of %.4f, want at most 0.005", x.weights, x.slow, every, share)
			}
			if every > time.Millisecond {
				continue // exploration is rarer than an RPC in 512, and with it the recovery
			}
			recovered := func(int32) time.Duration { return 8 * time.Millisecond }
			w.playEvery(t, every, 11*time.Second, recovered)
			total := 0.
			for _, weight := range x.weights {
				total += float64(weight)
			}
			for i, s := range w.playEvery(t, every, 4*time.Second, recovered) {
				if want := float64(x.weights[i]) / total; s < .7*want || s > 1.4*want {
					t.Errorf("weights %v, %d slow: 11 s after the recovery endpoint %d has a share of %.3f, want about %.3f", x.weights, x.slow, i, s, want)
				}
			}
		}
	}
}

// playEvery makes an RPC every so often for a time, with the durations that takes returns for their
// endpoints, and returns the endpoints' shares.
func (w *world) playEvery(t *testing.T, every, d time.Duration, takes func(index int32) time.Duration) []float64 {
	s, list, rng := w.build(t), w.flat(0), newRand(uint64(w.time))
	shares, begun := make([]float64, len(list)), 0.
	ends := map[time.Duration][]int32{}
	for end := w.time + d; w.time < end; {
		w.time += time.Millisecond
		for _, i := range ends[w.time] {
			list[i].FinishTimed(CallOK)
		}
		delete(ends, w.time)
		if w.time%every == 0 {
			i := s.Pick(bg, "/s/m", rng.Uint64()).Index
			shares[i]++
			begun++
			end := w.time + takes(i)
			ends[end] = append(ends[end], i)
		}
	}
	for _, running := range ends {
		for _, i := range running {
			list[i].FinishTimed(CallOK)
		}
	}
	for i := range shares {
		shares[i] /= begun
	}
	return shares
}

// The mean survives builds, and other policies in between.
func TestLeastLatencyKeepsMean(t *testing.T) {
	w := latencyWorld(zone("a", 1, endpoints(0, 1, 1)))
	w.playEvery(t, time.Millisecond, 5*time.Second, func(int32) time.Duration { return 2 * time.Millisecond })
	latency := w.leaf(0).Policy
	for _, p := range []Policy{latency, {}, latency} {
		w.leaf(0).Policy = p
		w.ready()
		w.build(t)
	}
	if got := w.snapshot.clusters.At(0).peers.add(0, 0, 0) / units(time.Millisecond); math.Abs(got-2) > .1 {
		t.Errorf("the mean is %.2f ms, want 2", got)
	}
}

// If few RPCs are made, and they take much less than the assumed latency of unknown endpoints,
// all endpoints get RPCs.
func TestLeastLatencySeldom(t *testing.T) {
	w := latencyWorld(zone("a", 1, endpoints(0, 1, 1, 1, 1, 1)))
	s, list, rng := w.build(t), w.flat(0), newRand(1)
	counts := make([]float64, len(list))
	const rpcs = 3000
	for range rpcs {
		w.time += 100 * time.Millisecond
		i := s.Pick(bg, "/s/m", rng.Uint64()).Index
		w.time += time.Duration(80+rng.IntN(40)) * time.Microsecond
		list[i].FinishTimed(CallOK)
		counts[i]++
	}
	for i, n := range counts {
		if n < .6*rpcs/5 || n > 1.5*rpcs/5 {
			t.Errorf("endpoint %d of 5 that are the same got %.0f of %d RPCs", i, n, rpcs)
		}
	}
}
