// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/ringhash"
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
	if got, want := w.rebuild(t).clusters.At(0).groups[0].schedule.Weights(), []uint32{1, 0, 0, 1}; !slices.Equal(got, want) {
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
			s := w.rebuild(t)
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
	if after := w.rebuild(t); after.clusters.At(0).groups[0].schedule != s.clusters.At(0).groups[0].schedule {
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
				s := w.rebuild(t)
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
	if s := w.rebuild(t); !s.InSlowStart(0) || s.ClusterErr(0) != nil {
		t.Errorf("InSlowStart = %t, error %v", s.InSlowStart(0), s.ClusterErr(0))
	}
	if s := w.build(t); !s.InSlowStart(0) || s.InSlowStart(1) || s.InSlowStart(-1) {
		t.Error("a reused group does not report slow start")
	}
	w.env.Now = 1100
	s := w.rebuild(t)
	if got := s.clusters.At(0).groups[0].schedule.Weights(); s.InSlowStart(0) || got[0] != 1 || got[1] != 2 {
		t.Errorf("after the window InSlowStart = %t, weights %v", s.InSlowStart(0), got)
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

const fadeWindow = 100 * time.Second

// A fadeWorld has ten endpoints, of which those with an age are cold and have been READY for that long.
type fadeWorld struct {
	*world
	t    *testing.T
	hash *uint64
	some *bool
	ages map[int]time.Duration
}

func newFadeWorld(t *testing.T, kind PolicyKind, ring RingPolicy, ages map[int]time.Duration) *fadeWorld {
	w, hash, some := ringWorld(kind, ring, zone("a", 1, endpoints(0, 1, 2, 1, 1, 1)), zone("b", 1, endpoints(5, 1, 1, 1, 3, 1)))
	w.leaf(0).Policy.SlowStart = &SlowStart{Window: fadeWindow, Aggression: 1, MinWeightPercent: 10}
	w.env.Now = int64(time.Hour)
	for i, age := range ages {
		w.flat(0)[i].Cold, w.flat(0)[i].StateSince = true, w.env.Now-int64(age)
	}
	return &fadeWorld{w, t, hash, some, ages}
}

// owners returns the endpoints to which some hashes belong after d.
func (w *fadeWorld) owners(d time.Duration) []int {
	w.t.Helper()
	w.env.Now = int64(time.Hour + d)
	s, rng := w.rebuild(w.t), newRand(1)
	kit.Must(w.t, s.ClusterErr(0))
	list := make([]int, 5000)
	for i := range list {
		*w.hash = rng.Uint64()
		got := s.Pick(bg, "/s/m", 0)
		if got.Outcome != Picked {
			w.t.Fatalf("outcome %+v", got)
		}
		list[i] = int(got.Index)
		w.flat(0)[got.Index].Finish(CallOK)
	}
	return list
}

// without returns the endpoints to which the hashes belong without the cold endpoints, by another ring or table.
func (w *fadeWorld) without() []int {
	p := w.snapshot.clusters.At(0).groups[0].hashing.placement
	pick := func(hash uint64) int {
		for host := range p.ring.Walk(hash) {
			if _, cold := w.ages[host]; !cold {
				return host
			}
		}
		return -1
	}
	if p.table != nil {
		hosts := append([]ringhash.Host(nil), p.hosts...)
		for i := range w.ages {
			hosts[i].Weight = 0
		}
		table, err := ringhash.NewMaglev(hosts, 1009, ringhash.XXH3)
		kit.Must(w.t, err)
		pick = table.Pick
	}
	list, rng := make([]int, 5000), newRand(1)
	for i := range list {
		list[i] = pick(rng.Uint64())
	}
	return list
}

// TestFadeIn: during slow start an endpoint gets a growing part of the hashes that belong to it in the end.
// The rest stays with the endpoints that they belong to without it, and no other hash moves.
func TestFadeIn(t *testing.T) {
	for _, kind := range []PolicyKind{PolicyRingHash, PolicyMaglev} {
		for _, ages := range []map[int]time.Duration{{3: 0}, {8: 0}, {0: 0, 4: 0, 8: 0}, {1: 0, 7: 20 * time.Second}} {
			w := newFadeWorld(t, kind, RingPolicy{MinSize: 1009, MaxSize: 1009}, ages)
			final := w.owners(2 * fadeWindow)
			if w.snapshot.InSlowStart(0) {
				t.Error("in slow start after the window")
			}
			before := w.without()
			var was []int
			for _, d := range []time.Duration{0, 5 * time.Second, 30 * time.Second, 70 * time.Second} {
				now := w.owners(d)
				if !w.snapshot.InSlowStart(0) {
					t.Errorf("not in slow start after %v", d)
				}
				total, own := map[int]float64{}, map[int]float64{}
				for i, host := range now {
					_, cold := ages[final[i]]
					total[final[i]]++
					switch {
					case host == final[i]:
						own[host]++
					case !cold:
						t.Fatalf("kind %d, %v: a hash of endpoint %d moves to %d", kind, ages, final[i], host)
					case host != before[i]:
						t.Fatalf("kind %d, %v: a hash of cold endpoint %d moves from %d to %d", kind, ages, final[i], before[i], host)
					case was != nil && was[i] == final[i]:
						t.Fatalf("kind %d, %v: a hash leaves endpoint %d again", kind, ages, final[i])
					}
				}
				for host, age := range ages {
					if got, want := own[host]/total[host], max(.1, float64(age+d)/float64(fadeWindow)); math.Abs(got-want) > .1 {
						t.Errorf("kind %d, %v: after %v endpoint %d has %.2f of its hashes, want %.2f", kind, ages, d, host, got, want)
					}
				}
				was = now
			}
		}
	}
}

// TestFadeInOnlyIfOthersAreWarm: endpoints that have not failed are not slow-started, and neither are any if
// all usable ones are cold. Cold endpoints that are not READY yet get their RPCs, which connect them.
func TestFadeInOnlyIfOthersAreWarm(t *testing.T) {
	for _, kind := range []PolicyKind{PolicyRingHash, PolicyMaglev} {
		ages := map[int]time.Duration{3: 0}
		w := newFadeWorld(t, kind, RingPolicy{MinSize: 1009, MaxSize: 1009}, ages)
		final, list := w.owners(2*fadeWindow), w.flat(0)
		same := func(what string) {
			t.Helper()
			for i, host := range w.owners(0) {
				if host != final[i] {
					t.Fatalf("kind %d, %s: a hash of endpoint %d moves to %d", kind, what, final[i], host)
				}
			}
		}
		list[3].Cold = false
		same("an endpoint that connects late")
		for _, e := range list {
			e.Cold, e.StateSince = true, w.env.Now
		}
		same("all are cold")
		list[5].Cold = false
		list[5].Ejected = true
		moved := 0
		for i, host := range w.owners(0) {
			if final[i] == 5 {
				moved++
			} else if host != final[i] {
				t.Fatalf("kind %d: a hash of endpoint %d moves to %d, while the only warm one is ejected", kind, final[i], host)
			}
		}
		if moved == 0 {
			t.Error("no hash belongs to endpoint 5")
		}

		list[5].Ejected, list[7].Connectivity = false, Idle
		s, rng, connects := w.rebuild(t), newRand(2), 0
		for range 1000 {
			*w.hash = rng.Uint64()
			switch got := s.Pick(bg, "/s/m", 0); {
			case got.Outcome == QueueConnect && got.Index == 7:
				connects++
			case got.Outcome != Picked || list[got.Index].Connectivity != Ready:
				t.Fatalf("outcome %+v", got)
			default:
				list[got.Index].Finish(CallOK)
			}
		}
		if connects < 30 {
			t.Errorf("kind %d: %d of 1000 RPCs connect a cold endpoint, want about 70", kind, connects)
		}
	}
}

// TestFadeInBounds: bounded loads bound an endpoint in slow start by its reduced share.
func TestFadeInBounds(t *testing.T) {
	w := newFadeWorld(t, PolicyRingHash, RingPolicy{MinSize: 1009, MaxSize: 1009, BalanceFactor: 100}, map[int]time.Duration{8: 0})
	s, rng := w.build(t), newRand(1)
	for range 2000 {
		*w.hash = rng.Uint64()
		s.Pick(bg, "/s/m", rng.Uint64())
	}
	// It has a weight of 3 of 7 in its zone, so 3/14 of the RPCs in the end.
	want := 2000 * .1 * 3 / 14 / (1 - .9*3/14)
	if n := float64(w.flat(0)[8].inFlight.Load()); n > 1.2*want {
		t.Errorf("%v of 2000 RPCs in flight are at the endpoint in slow start, want at most %.0f", n, want)
	}
}

// TestFadeInExplained: explanations have the shares of picks, also for RPCs without a hash, and picks do not
// allocate.
func TestFadeInExplained(t *testing.T) {
	for _, header := range []string{"", "absent"} {
		w := newFadeWorld(t, PolicyRingHash, RingPolicy{MinSize: 1009, MaxSize: 1009, RequestHeader: header}, map[int]time.Duration{8: 30 * time.Second})
		w.env.RandomHashes = forgotten{}
		w.flat(0)[2].Connectivity = Connecting
		s, rng := w.build(t), newRand(1)
		for range 100 {
			*w.hash = rng.Uint64()
			got := s.Pick(bg, "/s/m", 0)
			if e := s.ExplainCluster(bg, 0, 0).Endpoints[got.Index]; got.Outcome == Picked && e.Share != 1 {
				t.Fatalf("endpoint %d is picked, and explained with share %v", got.Index, e.Share)
			}
		}
		*w.some = false
		counts, one := [10]float64{}, 1./40000
		for range 40000 {
			if got := s.Pick(bg, "/s/m", rng.Uint64()); got.Outcome == Picked {
				counts[got.Index] += one
			}
		}
		for i, e := range s.ExplainCluster(bg, 0, 0).Endpoints {
			if math.Abs(e.Share-counts[i]) > .01 {
				t.Errorf("header %q: endpoint %d has %.3f of RPCs, explained with %.3f", header, i, counts[i], e.Share)
			}
		}
		if n := testing.AllocsPerRun(1000, func() { s.Pick(bg, "/s/m", rng.Uint64()) }); n > 0 {
			t.Errorf("a pick allocates %v times", n)
		}
	}
}
