// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// prequal returns a policy with the usual parameters.
func prequal() Policy {
	return Policy{Kind: PolicyPrequal, Flat: true, Prequal: &Prequal{
		PoolSize: 16, MaxAge: time.Second, ProbesPerRPC: 3, RemovePerRPC: 1, HotQuantile: .84,
		ProbeTimeout: time.Second, MaxProbesPerSecond: 1000,
	}}
}

// prequalWorld is a newWorld with PolicyPrequal, whose endpoints are READY and whose pool
// serves picks.
func prequalWorld(t *testing.T, policy Policy, localities ...Locality) (*world, *ProbePool) {
	t.Helper()
	w := newWorld(localities...)
	w.leaf(0).Policy = policy
	w.leaf(0).MaxRequests = math.MaxUint32
	w.ready()
	w.build(t)
	return w, adopt(t, w, 0)
}

// adopt has the pools of the world's snapshot serve it, and returns the first.
func adopt(t *testing.T, w *world, now int64) *ProbePool {
	t.Helper()
	groups := w.snapshot.ProbeGroups(0)
	if len(groups) == 0 {
		t.Fatal("there is nothing to probe")
	}
	for _, g := range groups {
		g.Adopt(now)
	}
	return groups[0].Pool
}

// A slowPool is the rules of a ProbePool, one after the other, with nothing kept ready.
type slowPool struct {
	cfg     Prequal
	n       int // endpoints
	answers []slowAnswer
	loads   []float64 // of all answers
	due     float64   // removals
	oldest  bool
	load    []int // own RPCs in flight, by endpoint
}

type slowAnswer struct {
	endpoint int
	r        ProbeReport
	own      int
	at       int64
	used     bool
}

func (a *slowAnswer) latency() float64 { return float64(a.r.Latency) / max(1e-6, 1-a.r.Failing) }

func (s *slowPool) hot() float64 {
	last := slices.Clone(s.loads[max(0, len(s.loads)-32):])
	if len(last) == 0 {
		return 0
	}
	slices.Sort(last)
	return last[int(s.cfg.HotQuantile*float64(len(last)-1))]
}

func (s *slowPool) remove(i int) { s.answers = slices.Delete(s.answers, i, i+1) }

func (s *slowPool) answer(endpoint int, r ProbeReport, now int64) {
	if i := slices.IndexFunc(s.answers, func(a slowAnswer) bool { return a.endpoint == endpoint }); i >= 0 {
		s.remove(i)
	}
	if r.GoingAway {
		return
	}
	s.loads = append(s.loads, float64(r.InFlight))
	s.answers = append(s.answers, slowAnswer{endpoint, r, s.load[endpoint], now, false})
	if len(s.answers) > min(s.n, int(s.cfg.PoolSize)) {
		s.remove(0)
	}
	s.due += s.cfg.RemovePerRPC / s.cfg.ProbesPerRPC
	if s.due < 1 {
		return
	}
	s.due--
	if len(s.answers) <= 2 {
		return
	}
	worst := 0
	if !s.oldest {
		for i, a := range s.answers {
			w := s.answers[worst]
			anyHot := float64(max(a.r.InFlight, w.r.InFlight)) > s.hot()
			if anyHot && a.r.InFlight > w.r.InFlight || !anyHot && a.latency() > w.latency() {
				worst = i
			}
		}
	}
	s.oldest = !s.oldest
	s.remove(worst)
}

func (s *slowPool) expire(now int64) {
	s.answers = slices.DeleteFunc(s.answers, func(a slowAnswer) bool { return now-a.at >= int64(s.cfg.MaxAge) })
}

// pick returns the index of an answer, or -1. now is the time of the last change of the
// answers, and first where to begin.
func (s *slowPool) pick(now int64, first int) int {
	var known []float64
	for _, a := range s.answers {
		if l := a.latency(); l > 0 {
			known = append(known, l)
		}
	}
	typical := 1.
	if len(known) > 0 {
		slices.Sort(known)
		typical = known[len(known)/2]
	}
	best, bestLoad, bestCost, left := -1, 0., 0., 0
	for k := range s.answers {
		i := (first + k) % len(s.answers)
		a := &s.answers[i]
		if a.used {
			continue
		}
		left++
		load := max(0, float64(a.r.InFlight+s.load[a.endpoint]-a.own))
		cost := typical
		if a.latency() > 0 {
			cost += (a.latency() - typical) * max(1./64, math.Exp(-float64(now-a.at)/(2*typical)))
		}
		cost = cost / (float64(a.r.InFlight) + 1) * (load + 1)
		hot, bestHot := load > s.hot(), bestLoad > s.hot()
		if best < 0 || !hot && (bestHot || cost < bestCost) || hot && bestHot && load < bestLoad {
			best, bestLoad, bestCost = i, load, cost
		}
	}
	if best >= 0 && bestLoad > s.hot() && left == 1 {
		return -1
	}
	return best
}

func TestProbePoolOracle(t *testing.T) {
	for seed := range uint64(60) {
		rng := newRand(seed)
		policy := prequal()
		policy.Prequal.PoolSize = 2 + rng.Uint32N(20)
		policy.Prequal.HotQuantile = rng.Float64()
		n := 2 + rng.IntN(24)
		ports := make([]uint32, n)
		for i := range ports {
			ports[i] = 1
		}
		w, pool := prequalWorld(t, policy, zone("a", 1, endpoints(0, ports...)))
		list := w.flat(0)
		slow := &slowPool{cfg: *policy.Prequal, n: n, load: make([]int, n)}
		now, changed := int64(1), int64(1)
		var running []int32
		for step := range 2000 {
			now += rng.Int64N(int64(10 * time.Millisecond))
			switch rng.IntN(4) {
			case 0:
				i := rng.IntN(n)
				r := ProbeReport{InFlight: rng.IntN(8), Latency: time.Duration(rng.IntN(40)) * time.Millisecond, GoingAway: rng.IntN(20) == 0}
				if rng.IntN(5) == 0 && r.Latency > 0 {
					r.Failing = rng.Float64()
				}
				pool.Answer(list[i], r, now)
				slow.answer(i, r, now)
				changed = now
			case 1:
				was := len(slow.answers)
				slow.expire(now)
				if len(slow.answers) != was {
					changed = now
				}
				if next := pool.Expire(now); (next == 0) != (len(slow.answers) == 0) || next > 0 && next != policy.Prequal.MaxAge-time.Duration(now-slow.answers[0].at) {
					t.Fatalf("seed %d, step %d: Expire = %v with %v", seed, step, next, slow.answers)
				}
			case 2:
				if len(running) > 0 {
					i := running[0]
					running = running[1:]
					list[i].FinishTimed(CallOK)
					slow.load[i]--
				}
			default:
				r := rng.Uint64()
				first, _ := bits.Mul64(draw(r, drawProbe), uint64(len(slow.answers)))
				want := slow.pick(changed, int(first))
				got := w.snapshot.Pick(bg, "/s/m", r).Index
				if want >= 0 {
					slow.answers[want].used = true
					if e := int32(slow.answers[want].endpoint); got != e {
						t.Fatalf("seed %d, step %d: picked %d, want %d of %+v", seed, step, got, e, slow.answers)
					}
				}
				slow.load[got]++
				running = append(running, got)
			}
			if got, _, hot := pool.Stats(); got != len(slow.answers) || hot != slow.hot() {
				t.Fatalf("seed %d, step %d: %d answers, hot above %v, want %d, %v", seed, step, got, hot, len(slow.answers), slow.hot())
			}
		}
	}
}

// TestDemand checks that probes are requested as RPCs are picked, up to the capacity of the
// pool and the limit of the caller; answers are reused only while probes are scarce.
func TestDemand(t *testing.T) {
	w, pool := prequalWorld(t, prequal(), zone("a", 1, endpoints(0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)))
	woken := 0
	pool.Serve(func() { woken++ })
	picks := func(n int) {
		for range n {
			w.flat(0)[w.snapshot.Pick(bg, "/s/m", uint64(woken)).Index].FinishTimed(CallOK)
		}
	}
	if n := pool.Demand(100); n != 0 || woken != 0 {
		t.Errorf("without RPCs %d probes are wanted, and %d calls were made", n, woken)
	}
	for _, test := range []struct{ picks, limit, want int }{{1, 100, 3}, {2, 100, 6}, {0, 100, 0}, {50, 100, 10}, {1, 2, 2}, {0, 100, 0}, {1, 100, 4}} {
		before := woken
		picks(test.picks)
		if n := pool.Demand(test.limit); n != test.want {
			t.Errorf("after %d picks %d probes are wanted of %d, want %d", test.picks, n, test.limit, test.want)
		}
		if calls := woken - before; calls != min(1, test.picks) {
			t.Errorf("%d picks made %d calls", test.picks, calls)
		}
	}
	for range 100 {
		picks(1)
		pool.Demand(3)
	}
	if got := pool.reuseLocked(); got != 1 {
		t.Errorf("with 3 probes for an RPC an answer is used %d times", got)
	}
	for range 100 {
		picks(16)
		pool.Demand(4)
	}
	if got := pool.reuseLocked(); got != 12 { // 2/(1/4·2/3)
		t.Errorf("with a probe for 4 RPCs an answer is used %d times", got)
	}
}

// TestSilent checks that endpoints that do not answer get their share, and that the pool picks
// the other RPCs.
func TestSilent(t *testing.T) {
	w, pool := prequalWorld(t, prequal(), zone("a", 1, endpoints(0, 1, 1, 1, 1)))
	list := w.flat(0)
	pool.SetSilent(list[0], true, 1)
	pool.SetSilent(list[0], true, 1)
	got := [4]int{}
	rng := newRand(1)
	const n = 10_000
	for range n {
		pool.Answer(list[2], ProbeReport{Latency: 1}, 1)
		pool.Answer(list[3], ProbeReport{Latency: time.Second}, 1)
		res := w.snapshot.Pick(bg, "/s/m", rng.Uint64())
		got[res.Index]++
		list[res.Index].FinishTimed(CallOK)
	}
	// 5 standard deviations
	if d := 5 * math.Sqrt(n*.25*.75); math.Abs(float64(got[0])-n/4) > d || got[1] != 0 || got[3] != 0 {
		t.Errorf("picked %v of %d; the first is silent, the third is the best", got, n)
	}
	pool.Answer(list[0], ProbeReport{Latency: 2}, 1)
	if _, silent, _ := pool.Stats(); silent != 0 {
		t.Errorf("%d are silent after an answer", silent)
	}
}

// TestPoolFollows: answers survive a new form of the group, as far as their endpoints are
// READY. Picks of a form that is not adopted do without the pool.
func TestPoolFollows(t *testing.T) {
	w, pool := prequalWorld(t, prequal(), zone("a", 1, endpoints(0, 1, 1, 1, 1)))
	list := w.flat(0)
	for i, e := range list {
		pool.Answer(e, ProbeReport{InFlight: i, Latency: time.Duration(i+1) * time.Millisecond}, 1)
	}
	pool.SetSilent(list[3], true, 1)
	before, _, _ := pool.Stats()
	list[0].Connectivity = TransientFailure
	list[3].Connectivity = TransientFailure
	w.rebuild(t)
	if g := w.snapshot.ProbeGroups(0); len(g) != 1 || g[0].Pool != pool || g[0].Len() != 2 {
		t.Fatalf("the new form has groups %v", g)
	}
	picks := pool.picks.Load()
	for r := range uint64(50) {
		if res := w.snapshot.Pick(bg, "/s/m", r<<40); res.Index != 1 && res.Index != 2 {
			t.Fatalf("picked %d before the form was adopted", res.Index)
		} else {
			list[res.Index].FinishTimed(CallOK)
		}
	}
	if got, _, _ := pool.Stats(); got != before || pool.picks.Load() != picks+50 {
		t.Errorf("%d answers of %d before the form is adopted, %d picks", got, before, pool.picks.Load()-picks)
	}
	adopt(t, w, 1)
	if got, silent, _ := pool.Stats(); got >= before || silent != 0 {
		t.Errorf("%d answers of %d, %d silent", got, before, silent)
	}
	if _, index := w.snapshot.ProbeGroups(0)[0].Endpoint(0); index != 1 {
		t.Errorf("the first endpoint is %d", index)
	}
}

// TestBest is the rule of the synchronous mode.
func TestBest(t *testing.T) {
	w, pool := prequalWorld(t, prequal(), zone("a", 1, endpoints(0, 1, 1, 1, 1)))
	for i, e := range w.flat(0) {
		pool.Answer(e, ProbeReport{InFlight: i}, 1) // hot is above 2
	}
	g := w.snapshot.ProbeGroup(0, 0)
	const ms = time.Millisecond
	for _, test := range []struct {
		want    int
		reports []ProbeReport
	}{
		{-1, nil},
		{0, []ProbeReport{{InFlight: 9}}},
		{1, []ProbeReport{{InFlight: 1, Latency: 5 * ms}, {InFlight: 2, Latency: 4 * ms}}},
		{0, []ProbeReport{{InFlight: 2, Latency: 5 * ms}, {InFlight: 3, Latency: 4 * ms}}},
		{1, []ProbeReport{{InFlight: 5, Latency: 1 * ms}, {InFlight: 4, Latency: 4 * ms}}},
		{1, []ProbeReport{{InFlight: 1, Latency: 5 * ms}, {InFlight: 0}}},
		{0, []ProbeReport{{InFlight: 1, Latency: 5 * ms}, {InFlight: 2}}},
		{1, []ProbeReport{{GoingAway: true}, {InFlight: 9}}},
		{0, []ProbeReport{{InFlight: 9}, {GoingAway: true}}},
		{1, []ProbeReport{{InFlight: 0, Latency: 1 * ms, Failing: .9}, {InFlight: 1, Latency: 5 * ms}}},
		{1, []ProbeReport{{InFlight: 3}, {InFlight: 8, Weight: 4}}},
	} {
		if got := g.Best(test.reports); got != test.want {
			t.Errorf("Best(%+v) = %d, want %d", test.reports, got, test.want)
		}
	}
}

func TestPrequalErrors(t *testing.T) {
	for _, change := range []func(p *Prequal){
		func(p *Prequal) { p.PoolSize = 1 }, func(p *Prequal) { p.PoolSize = 65 },
		func(p *Prequal) { p.MaxAge = 0 }, func(p *Prequal) { p.ProbeTimeout = 0 }, func(p *Prequal) { p.MaxProbesPerSecond = 0 },
		func(p *Prequal) { p.ProbesPerRPC = 1 }, func(p *Prequal) { p.ProbesPerRPC = math.NaN() }, func(p *Prequal) { p.ProbesPerRPC = math.Inf(1) },
		func(p *Prequal) { p.RemovePerRPC = -1 }, func(p *Prequal) { p.RemovePerRPC = math.NaN() },
		func(p *Prequal) { p.HotQuantile = math.NaN() }, func(p *Prequal) { p.HotQuantile = 1.1 },
		func(p *Prequal) { p.Synchronous = 1 }, func(p *Prequal) { p.Synchronous = 11 },
	} {
		policy := prequal()
		kit.Must(t, policy.Check())
		change(policy.Prequal)
		if policy.Check() == nil {
			t.Errorf("%+v is accepted", *policy.Prequal)
		}
	}
	if (&Policy{Kind: PolicyPrequal}).Check() == nil {
		t.Error("no parameters are accepted")
	}
}

func TestPrequalAllocs(t *testing.T) {
	w, pool := prequalWorld(t, prequal(), zone("a", 1, endpoints(0, 1, 1, 1, 1, 1, 1, 1, 1)))
	list := w.flat(0)
	pool.Serve(func() {})
	for i, e := range list {
		pool.Answer(e, ProbeReport{InFlight: i, Latency: 1}, 1)
	}
	pool.supply = .01 // answers serve for many picks
	pool.Answer(list[0], ProbeReport{}, 1)
	rng := newRand(1)
	if n := testing.AllocsPerRun(1000, func() {
		res := w.snapshot.Pick(bg, "/s/m", rng.Uint64())
		list[res.Index].FinishTimed(CallOK)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestProbeOdds checks that the explanation equals the results of picks, before they change the
// pool.
func TestProbeOdds(t *testing.T) {
	rng := newRand(5)
	for range 30 {
		w, pool := prequalWorld(t, prequal(), zone("a", 1, endpoints(0, 1, 1, 1, 1, 1, 1)))
		list := w.flat(0)
		for i, e := range list {
			switch rng.IntN(4) {
			case 0:
				pool.SetSilent(e, true, 1)
			case 1, 2: // of two kinds, so that some are alike
				pool.Answer(e, ProbeReport{InFlight: rng.IntN(3), Latency: time.Duration(1+i%2) * time.Millisecond}, 1)
			}
		}
		want := w.snapshot.ExplainCluster(bg, 0, 0)
		got := make([]float64, len(list))
		const n = 4000
		for range n {
			view := pool.view.Load()
			i := w.snapshot.Pick(bg, "/s/m", rng.Uint64()).Index
			got[i] += 1. / n
			list[i].FinishTimed(CallNotSent)
			for k := range view.entries { // as if it had not been
				view.entries[k].probe.used.Store(0)
			}
			view.spent.Store(0)
		}
		for i, share := range got {
			p := want.Endpoints[i].Share
			if math.Abs(share-p) > 5*math.Sqrt(p*(1-p)/n)+1e-9 {
				t.Fatalf("endpoint %d got %v, want %v of %v", i, share, p, got)
			}
		}
	}
}

// BenchmarkPrequal picks by a pool of 16 answers, and ends the RPC.
func BenchmarkPrequal(b *testing.B) {
	w := benchWorld(1, 30, 0, false)
	w.leaf(0).Policy = prequal()
	w.leaf(0).Policy.Prequal.RemovePerRPC = 0
	w.ready()
	list := w.flat(0)
	s := w.build(b)
	pool := s.ProbeGroups(0)[0].Pool
	s.ProbeGroups(0)[0].Adopt(0)
	for i, e := range list {
		pool.Answer(e, ProbeReport{InFlight: i % 4, Latency: time.Duration(1+i%7) * time.Millisecond}, 0)
	}
	pool.view.Load().reuse = math.MaxInt32
	rng := newRand(1)
	b.ReportAllocs()
	for b.Loop() {
		list[s.Pick(bg, "/s/m", rng.Uint64()).Index].FinishTimed(CallOK)
	}
}

// TestExtremeProbes checks that loads, costs and demands are finite for all reports and
// policies.
func TestExtremeProbes(t *testing.T) {
	policy := prequal()
	policy.Prequal.ProbesPerRPC = math.MaxFloat64
	w, pool := prequalWorld(t, policy, zone("a", 1, endpoints(0, 1, 1, 1)))
	for range 3 {
		w.flat(0)[w.snapshot.Pick(bg, "/s/m", 1).Index].FinishTimed(CallOK)
	}
	if n := pool.Demand(2); n != 2 {
		t.Errorf("with %v probes for an RPC %d probes are wanted, want 2", policy.Prequal.ProbesPerRPC, n)
	}
	for _, weight := range []float64{5e-324, 1e-300, 1, math.MaxFloat64, math.Inf(1), math.NaN(), -1} {
		for i, e := range w.flat(0) {
			pool.Answer(e, ProbeReport{InFlight: math.MaxInt32 - i, Latency: math.MaxInt64, Failing: 1, Weight: weight}, int64(i))
		}
		for _, e := range pool.view.Load().entries {
			if sum := e.load + e.perRPC + e.share + e.weight; math.IsNaN(sum) || math.IsInf(sum, 0) {
				t.Errorf("weight %v: load %v, cost %v, share %v", weight, e.load, e.perRPC, e.share)
			}
		}
	}
}
