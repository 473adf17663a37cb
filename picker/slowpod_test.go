// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// playCallers is play for callers that make one RPC after the other.
// ends has the endpoints of the RPCs in flight by the time at which they end; the first time it is empty.
func (w *world) playCallers(t *testing.T, callers int, d time.Duration, ends map[time.Duration][]int32, takes func(index int32) time.Duration) (shares []float64) {
	s, list, rng := w.build(t), w.flat(0), newRand(uint64(w.time))
	shares = make([]float64, len(list))
	begun := 0.
	begin := func() {
		i := s.Pick(bg, "/s/m", rng.Uint64()).Index
		shares[i]++
		begun++
		at := (w.time + takes(i) + time.Duration(rng.Int64N(int64(time.Millisecond)))).Truncate(100 * time.Microsecond)
		ends[at] = append(ends[at], i)
	}
	if len(ends) == 0 {
		for range callers {
			begin()
		}
	}
	for end := w.time + d; w.time < end; {
		w.time += 100 * time.Microsecond
		now := ends[w.time]
		delete(ends, w.time)
		for _, i := range now {
			list[i].FinishTimed(CallOK)
		}
		for range now {
			begin()
		}
	}
	for i := range shares {
		shares[i] /= begun
	}
	return shares
}

// In small fleets with many RPCs in flight, a client finds within two seconds that an endpoint has become
// 26 times slower, although it had thousands of fast RPCs before: after that the slow one is not
// even the 99.9th percentile, unless nearly all RPCs wait for the only other endpoint. It has its
// share again within 15 s of its recovery.
func TestLeastLatencySlowPodCallers(t *testing.T) {
	for _, x := range []struct {
		endpoints int
		limit     float64
	}{{2, .005}, {3, .002}, {5, .001}, {10, .001}} {
		w := latencyWorld(zone("a", 1, endpoints(0, slices.Repeat([]uint32{1}, x.endpoints)...)))
		ends := map[time.Duration][]int32{}
		healthy := func(int32) time.Duration { return 8 * time.Millisecond }
		slow := func(i int32) time.Duration {
			return 8*time.Millisecond + max(0, time.Duration(1-i))*200*time.Millisecond
		}
		w.playCallers(t, 32, 12*time.Second, ends, healthy)
		w.playCallers(t, 32, 2*time.Second, ends, slow)
		if share := w.playCallers(t, 32, 20*time.Second, ends, slow)[0]; share > x.limit {
			t.Errorf("%d endpoints: the slow one has a share of %.3f %%, want at most %.3f %%", x.endpoints, 100*share, 100*x.limit)
		}
		w.playCallers(t, 32, 15*time.Second, ends, healthy)
		want := 1 / float64(x.endpoints)
		if share := w.playCallers(t, 32, 5*time.Second, ends, healthy)[0]; share < .9*want || share > 1.1*want {
			t.Errorf("%d endpoints: 15 s after its recovery the slow one has a share of %.3f, want about %.3f", x.endpoints, share, want)
		}
	}
}

// An endpoint without RPCs is explored by one RPC within the decay time, but by at most one RPC in
// exploreEvery, and clients that stop using it at the same time do not explore it at the same time.
func TestLeastLatencyExplores(t *testing.T) {
	times := map[time.Duration]bool{}
	for client := range time.Duration(20) {
		w := latencyWorld(zone("a", 1, endpoints(0, 1, 1, 1)))
		w.time += client * time.Millisecond
		var at []time.Duration
		takes := func(i int32) time.Duration {
			if i == 0 {
				at = append(at, w.time)
				return time.Second
			}
			return 5 * time.Millisecond
		}
		w.playEvery(t, time.Millisecond, 10*time.Second, takes)
		at = nil
		w.playEvery(t, time.Millisecond, 40*time.Second, takes)
		if len(at) < 3 || len(at) > 8 {
			t.Errorf("client %d: explored %d times in 40 s, at %v, want once in 5 to 10 s", client, len(at), at)
		}
		if len(at) > 1 {
			times[at[1].Round(500*time.Millisecond)] = true
		}
	}
	if len(times) < 5 {
		t.Errorf("20 clients explored at the times %v, want different ones", times)
	}
}

// TestLeastLatencyNewEndpoint: a new endpoint gets about the share of those that are as fast, at any rate of RPCs,
// although another one is slow, to which only RPCs that explore go (T-LL-2).
func TestLeastLatencyNewEndpoint(t *testing.T) {
	for _, every := range []time.Duration{2 * time.Millisecond, 12 * time.Millisecond, 100 * time.Millisecond} {
		for _, slow := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, time.Second} {
			w := latencyWorld(zone("a", 1, endpoints(0, 1, 1, 1, 1)))
			w.flat(0)[3].Connectivity = Connecting
			takes := func(i int32) time.Duration {
				if i == 0 {
					return slow
				}
				return time.Millisecond
			}
			w.playEvery(t, every, time.Minute, takes)
			w.flat(0)[3].Connectivity = Ready
			w.states[0].Version++
			w.states[0].Localities[0].Version++
			for i, share := range w.playEvery(t, every, time.Minute, takes) {
				if i > 0 && (share < .2 || share > .55) {
					t.Errorf("an RPC every %v, %v on endpoint 0: endpoint %d has a share of %.3f, want about a third", every, slow, i, share)
				}
			}
		}
	}
}

// An endpoint whose server pushes back gets no RPCs for the time that it asks for, and after that fewer than
// others, since the time counts as latency. If all push back, they share the RPCs.
func TestPushBack(t *testing.T) {
	for _, n := range []int{3, 12} {
		for _, policy := range []Policy{latencyPolicy, prequal()} {
			t.Run(fmt.Sprint(policy.Kind.Traits().Name, n), func(t *testing.T) {
				w := latencyWorld(zone("a", 1, endpoints(0, ones(n)...)))
				policy.Flat = true
				w.leaf(0).Policy = policy
				w.ready()
				list := w.flat(0)
				w.build(t)
				takes := func(int32) time.Duration { return 10 * time.Millisecond }
				w.playEvery(t, 5*time.Millisecond, 5*time.Second, takes)
				w.breakers[0].Acquire(math.MaxUint32)
				list[0].Begin()
				list[0].PushBack(2 * time.Second)
				list[0].FinishTimed(CallFailed)
				silent := func(bool) {} // it answers no probes
				if policy.Kind == PolicyPrequal {
					pool := adopt(t, w, 0)
					for _, e := range list {
						pool.Answer(e, ProbeReport{InFlight: 1, Latency: 10 * time.Millisecond}, 0)
					}
					silent = func(is bool) { pool.SetSilent(list[0], is, 0) }
				}
				silent(true)
				if s := w.playEvery(t, 5*time.Millisecond, 1990*time.Millisecond, takes); s[0] > 0 {
					t.Errorf("its share is %.4f during the time, want 0", s[0])
				}
				silent(false)
				w.time += 10 * time.Millisecond
				if list[0].PushedBack() {
					t.Error("it is kept out of choice after the time")
				}
				if s := w.playEvery(t, 5*time.Millisecond, 3*time.Second, takes); s[0] > .8/float64(n) {
					t.Errorf("its share is %.4f afterwards, want less than 1/%d", s[0], n)
				}
				if s := w.playEvery(t, 5*time.Millisecond, 60*time.Second, takes); s[0] < .15/float64(n) {
					t.Errorf("its share is %.4f in the end, want about 1/%d", s[0], n)
				}
				for _, e := range list[1:] {
					e.PushBack(20 * time.Second)
				}
				for i, e := range w.snapshot.ExplainCluster(bg, 0, 0).Endpoints {
					if (i == 0) != (e.Share > .999999) || i > 0 && e.Share > 0 {
						t.Errorf("endpoint %d is explained to have a share of %.4f while all but the first push back", i, e.Share)
					}
				}
				if s := w.playEvery(t, 5*time.Millisecond, 15*time.Second, takes); s[0] < 1 {
					t.Errorf("its share is %.4f while all others push back, want 1", s[0])
				}
				w.playEvery(t, 5*time.Millisecond, 60*time.Second, takes)
				for _, e := range list {
					e.PushBack(time.Minute)
				}
				for i, s := range w.playEvery(t, 5*time.Millisecond, 10*time.Second, takes) {
					if s < .3/float64(n) {
						t.Errorf("endpoint %d has a share of %.4f while all push back, want about 1/%d", i, s, n)
					}
				}
			})
		}
	}
}

// Pushing back does not allocate, and a longer time is not shortened by a second answer.
func TestPushBackLonger(t *testing.T) {
	w := latencyWorld(zone("a", 1, endpoints(0, 1, 1)))
	e := w.flat(0)[0]
	e.PushBack(3 * time.Second)
	if n := testing.AllocsPerRun(100, func() { e.PushBack(time.Second) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for after, want := range map[time.Duration]bool{2900 * time.Millisecond: true, 3100 * time.Millisecond: false} {
		w.time = time.Second + after
		if got := e.PushedBack(); got != want {
			t.Errorf("kept out of choice after %v: %t, want %t", after, got, want)
		}
	}
	plain := newWorld(zone("a", 1, endpoints(0, 1)))
	plain.leaf(0).MaxRequests = math.MaxUint32
	if e := plain.flat(0)[0]; e.PushedBack() {
		t.Error("an endpoint that does not time RPCs is kept out of choice")
	} else if e.PushBack(time.Second); e.PushedBack() {
		t.Error("an endpoint that does not time RPCs is kept out of choice after a pushback")
	}
}

// A pushback at the time of a renewal is not lost.
func TestPushBackConcurrent(t *testing.T) {
	const rounds = 20_000
	list := make([]timing, rounds)
	p := newPeers(nil, 2, 10*time.Second)
	c := NewExactClock(func() int64 { return int64(time.Hour + 500*time.Millisecond) })
	now, lost := int64(units(time.Hour)), 0
	var round [2]atomic.Int64
	meet := func(k, i int) {
		round[k].Store(int64(i))
		for round[1-k].Load() < int64(i) {
			runtime.Gosched()
		}
	}
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for i := range list {
			meet(0, i+1)
			list[i].meanLatency(now, p)
		}
	})
	for i := range list {
		meet(1, i+1)
		list[i].pushBack(now, time.Second)
	}
	renewals.Wait()
	for i := range list {
		if !list[i].isPushedBack(c) {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d pushbacks are lost", lost, rounds)
	}
}

// A pushback that comes during a renewal, or is due before the next one, takes effect at its end.
func TestPushBackDuringRenewal(t *testing.T) {
	now := int64(units(time.Hour))
	for _, decay := range []time.Duration{time.Second, time.Hour} { // renewals every 1 ms, 3.6 s
		for _, during := range []bool{false, true} {
			var e timing
			p := newPeers(nil, 2, decay)
			e.due.Store(renewing)
			e.renew(now, p)
			if during {
				e.pushBack(now, time.Second)
				e.pushBack(now, time.Millisecond)
			}
			if pushed := e.endRenewal(now + p.interval); pushed != during {
				t.Errorf("decay %v: a renewal reports a pushback: %t, want %t", decay, pushed, during)
			}
			if !during {
				e.pushBack(now, time.Second)
			}
			for after, want := range map[time.Duration]bool{0: true, 999 * time.Millisecond: true, 1001 * time.Millisecond: false} {
				c := NewExactClock(func() int64 { return int64(time.Hour + after) })
				if got := e.isPushedBack(c); got != want {
					t.Errorf("decay %v, pushback during a renewal %t: kept out of choice after %v: %t, want %t", decay, during, after, got, want)
				}
			}
		}
	}
}
