// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/ringhash"
)

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
	w.states[0].Version++
	s, rng := w.build(w.t), newRand(1)
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
		w.states[0].Version++
		s, rng, connects := w.build(t), newRand(2), 0
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
