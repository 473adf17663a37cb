// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// zonedWorld is a world with a policy that times RPCs, in zones of equal size, and as many clients in each.
func zonedWorld(policy Policy, z ZoneAware, localities ...Locality) *world {
	w := newWorld(localities...)
	w.time = time.Second
	l := w.leaf(0)
	l.MaxRequests, l.Policy = math.MaxUint32, policy
	l.Policy.Flat, l.Policy.ZoneAware = true, &z
	l.Origin = &Origin{Locality: localities[0].ID}
	for i := range localities {
		l.Origin.Fleet = append(l.Origin.Fleet, ZoneSize{localities[i].ID, 1, 1})
	}
	w.ready()
	return w
}

var latencyPolicy = Policy{Kind: PolicyLeastLatency, Latency: &LeastLatency{Decay: 10 * time.Second}}

// measured gives the zones of a cluster latencies, in milliseconds, of many RPCs, of which a part has failed.
func (w *world) measured(latencies []float64, failed ...float64) {
	z := w.snapshot.clusters.At(0).zones
	now := w.clock.now()
	for i := range z.list {
		s := z.list[i].zoneState
		s.ended = 1e6
		s.busy = s.ended * units(time.Duration(latencies[i]*float64(time.Millisecond)))
		if len(failed) > 0 {
			s.failing = s.ended * failed[i]
		}
	}
	z.at, z.explored = now, now
	z.evaluate(now)
	z.due.Store(math.MaxInt64 - 1)
}

// An RPC leaves the zone drawn for it with a probability that grows from 0 to 1 while the ratio of its
// latency to that of the other zones goes from 2 to 4, but not to a zone that is slower still.
func TestLeavesZone(t *testing.T) {
	for _, policy := range []Policy{latencyPolicy, prequal()} {
		for _, test := range []struct {
			latencies, failed []float64
			want              []float64
		}{
			{[]float64{10, 10, 10}, nil, []float64{1, 0, 0}},
			{[]float64{19.9, 10, 10}, nil, []float64{1, 0, 0}},
			{[]float64{25, 10, 10}, nil, []float64{.75, .125, .125}},
			{[]float64{30, 10, 10}, nil, []float64{.5, .25, .25}},
			{[]float64{40, 10, 10}, nil, []float64{0, .5, .5}},
			{[]float64{900, 10, 10}, nil, []float64{0, .5, .5}},
			{[]float64{10, 90, 90}, nil, []float64{1, 0, 0}},
			{[]float64{900, 10, 901}, nil, []float64{1, 0, 0}}, // 455.5 elsewhere
			{[]float64{1100, 10, 990}, nil, []float64{.9, .05, .05}},
			{[]float64{220, 10, 30}, nil, []float64{0, .5, .5}},
			{[]float64{1, 10, 10}, []float64{.5, 0, 0}, []float64{.1, .45, .45}}, // see below
			{[]float64{10, 10, 10}, []float64{.1, .1, .1}, []float64{1, 0, 0}},
		} {
			if test.failed != nil && test.failed[0] == .5 {
				// Failing fast is slow: 1 ms, and for each failure 3 of the mean of 7 ms, by half of the RPCs.
				// (1 + 3·0.5·7)/0.5 = 23 against 10.
				test.want = []float64{1 - (23./20 - 1), (23./20 - 1) / 2, (23./20 - 1) / 2}
			}
			for _, forced := range []uint32{0, 1} {
				w := zonedWorld(policy, ZoneAware{Enabled: 1, ForceLocal: forced}, zone("a", 1, endpoints(0, 1)), zone("b", 1, endpoints(10, 1)), zone("c", 1, endpoints(20, 1)))
				s, want := w.build(t), test.want
				if forced == 0 {
					w.measured(test.latencies, test.failed...)
				} else {
					want = []float64{1}
				}
				got := s.ExplainCluster(bg, 0, 0).Endpoints
				for i := range want {
					share := 0.
					if i < len(got) {
						share = got[i].Share
					}
					if math.Abs(share-want[i]) > 1e-4 {
						t.Errorf("%s, latencies %v, failed %v, forced %d: zones get %v, want %v", policy.Kind.Traits().Name, test.latencies, test.failed, forced, got, want)
						break
					}
				}
			}
		}
	}
}

// Shares of endpoints in zones of any size are as explained.
func TestLeavesZoneExplained(t *testing.T) {
	for seed := range uint64(12) {
		rng := newRand(seed)
		var localities []Locality
		latencies := make([]float64, 2+rng.IntN(2))
		for i := range latencies {
			weights := make([]uint32, pick(rng, 1, 3, 12))
			for k := range weights {
				weights[k] = pick(rng, uint32(1), 1, 1+uint32(seed%2))
			}
			localities = append(localities, zone(string(rune('a'+i)), 1, endpoints(20*i, weights...)))
			latencies[i] = 10 + 20*rng.Float64()
		}
		latencies[0] = 20 + 40*rng.Float64()
		policy := latencyPolicy
		if seed%3 == 2 {
			policy = prequal()
		}
		w := zonedWorld(policy, ZoneAware{Enabled: pick(rng, .6, 1)}, localities...)
		s, list := w.build(t), w.flat(0)
		w.measured(latencies)
		odds, got := map[Result]float64{}, map[Result]int{}
		for i, e := range s.ExplainCluster(bg, 0, 0).Endpoints {
			odds[Result{Picked, 0, 0, int32(i)}] = e.Share
		}
		const picks = 20_000
		for range picks {
			r := s.Pick(bg, "/s/m", rng.Uint64())
			got[r]++
			w.breakers[0].Release()
			list[r.Index].binding.timing.end(w.clock.now(), CallNotSent)
		}
		if z := chiSquare(odds, got, picks); z > 5 {
			t.Errorf("seed %d: picks are %.1f deviations away from the explanation %v", seed, z, odds)
		}
	}
}

// Of the RPCs of a client whose zone is as good as others, few leave it, apart from those by share. If the zone
// becomes slow, nearly all leave, and they return when it has recovered.
func TestLeavesSlowZone(t *testing.T) {
	for _, n := range []int{3, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := zonedWorld(latencyPolicy, ZoneAware{Enabled: 1}, zone("a", 1, endpoints(0, ones(n)...)), zone("b", 1, endpoints(20, ones(n)...)), zone("c", 1, endpoints(40, ones(n)...)))
			own := 10 * time.Millisecond
			takes := func(i int32) time.Duration {
				if int(i) < n {
					return own
				}
				return 10 * time.Millisecond
			}
			stay := func(d time.Duration) (share float64) {
				for _, s := range w.playEvery(t, time.Millisecond, d, takes)[:n] {
					share += s
				}
				return share
			}
			if s := stay(20 * time.Second); s < .99 {
				t.Errorf("%.4f of the RPCs stay in the zone, want nearly all", s)
			}
			own = 100 * time.Millisecond
			stay(3 * time.Second)
			if s := stay(20 * time.Second); s > .05 {
				t.Errorf("%.4f of the RPCs stay in the slow zone, want hardly any", s)
			}
			own = 10 * time.Millisecond
			stay(15 * time.Second)
			if s := stay(20 * time.Second); s < .98 {
				t.Errorf("%.4f of the RPCs stay in the zone after its recovery, want nearly all", s)
			}
		})
	}
}

func ones(n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = 1
	}
	return list
}

// Picks of several snapshots evaluate the same zones at the same time.
func TestLeavesZoneConcurrent(t *testing.T) {
	w := zonedWorld(latencyPolicy, ZoneAware{Enabled: 1}, zone("a", 1, endpoints(0, 1, 1)), zone("b", 1, endpoints(10, 1, 1)))
	list := w.flat(0)
	var now atomic.Int64
	w.clock.source = func() int64 { return now.Add(int64(time.Millisecond)) }
	var group sync.WaitGroup
	for k := range uint64(4) {
		s, rng := w.rebuild(t), newRand(k)
		group.Go(func() {
			for range 2000 {
				list[s.Pick(bg, "/s/m", rng.Uint64()).Index].FinishTimed(CallOK)
			}
		})
	}
	group.Wait()
	if n := w.breakers[0].InFlight(); n != 0 {
		t.Errorf("%d RPCs are in flight in the end", n)
	}
}

// Whether an RPC leaves its zone, and to which one, is independent of the answer with which Prequal begins.
func TestLeavesZoneIndependent(t *testing.T) {
	w := zonedWorld(prequal(), ZoneAware{Enabled: 1}, zone("a", 1, endpoints(0, 1)), zone("b", 1, endpoints(10, 1)), zone("c", 1, endpoints(20, 1)))
	s, rng := w.build(t), newRand(1)
	w.measured([]float64{30, 10, 10})
	in := s.clusters.At(0).groups[0].zoned
	const rounds, parts = 1 << 16, 8
	odds, got := map[Result]float64{}, map[Result]int{}
	for range rounds {
		r, to := rng.Uint64(), int32(0)
		if other := in.leaves(r); other != nil {
			to = other.first
		}
		got[Result{Picked, to, 0, int32(draw(r, drawProbe) >> 61)}]++
		got[Result{Picked, to, 1, int32(draw(r, drawHash) >> 61)}]++
	}
	for part := range int32(2 * parts) {
		for to, p := range []float64{.5, .25, .25} {
			to := int32(to)
			odds[Result{Picked, to, part / parts, part % parts}] = p / parts / 2
		}
	}
	if z := chiSquare(odds, got, 2*rounds); z > 5 {
		t.Errorf("zones and answers are %.1f deviations away from independence: %v", z, got)
	}
}
