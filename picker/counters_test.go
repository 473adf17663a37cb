// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// Written-shared words own their lines, and nothing else is that large.
func TestSizes(t *testing.T) {
	for _, test := range []struct {
		name      string
		got, want uintptr
	}{
		{"Counter", unsafe.Sizeof(Counter{}), lineSize},
		{"Breaker", unsafe.Sizeof(Breaker{}), lineSize},
		{"Load", unsafe.Sizeof(Load{}), lineSize},
		{"line of Load that RPCs write", unsafe.Offsetof(Load{}.stripes), 64},
		{"line of Breaker that RPCs write", unsafe.Offsetof(Breaker{}.stripes), 64},
		{"loadStripe", unsafe.Sizeof(loadStripe{}), lineSize},
		{"breakerStripe", unsafe.Sizeof(breakerStripe{}), lineSize},
		{"EndpointState", unsafe.Sizeof(EndpointState{}), 32},
		{"aliasCell", unsafe.Sizeof(aliasCell{}), 16},
	} {
		if unsafe.Sizeof(uintptr(0)) == 8 && test.got != test.want {
			t.Errorf("%s takes %d bytes, want %d", test.name, test.got, test.want)
		}
	}
}

// TestMoveTo checks that an RPC that moves to another endpoint counts only there, for every
// kind of binding.
func TestMoveTo(t *testing.T) {
	for name, binding := range map[string]func(*Load, *Breaker) *Binding{
		"in flight": func(l *Load, b *Breaker) *Binding { return NewBinding(l, b, true) },
		"timed": func(l *Load, b *Breaker) *Binding {
			return NewTimedBinding(l, b, NewExactClock(func() int64 { return 1 }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var breaker Breaker
			var loads [2]Load
			var endpoints [2]EndpointState
			for i := range endpoints {
				endpoints[i].Bind(binding(&loads[i], &breaker))
			}
			inFlight := func(e *EndpointState) int {
				if e.TimesRPCs() {
					return e.binding.timing.inFlight()
				}
				return int(e.inFlight.Load())
			}
			breaker.Acquire(1)
			endpoints[0].Begin()
			endpoints[0].MoveTo(&endpoints[1])
			if breaker.Acquire(1) {
				t.Error("the circuit breaker has let go of the RPC")
			}
			want := [2]LoadSnapshot{{}, {Issued: 1, InProgress: 1}}
			if got := [2]LoadSnapshot{loads[0].Snapshot(), loads[1].Snapshot()}; got != want || inFlight(&endpoints[0]) != 0 || inFlight(&endpoints[1]) != 1 {
				t.Errorf("after the move: loads %+v, %d and %d in flight; want %+v, 0 and 1", got, inFlight(&endpoints[0]), inFlight(&endpoints[1]), want)
			}
			endpoints[1].FinishTimed(CallOK)
			if n := breaker.InFlight(); n != 0 || loads[1].Snapshot() != (LoadSnapshot{Issued: 1, OK: 1}) || inFlight(&endpoints[1]) != 0 {
				t.Errorf("in the end: %d in flight, load %+v", n, loads[1].Snapshot())
			}
		})
	}
}

// TestBreakerUnlimited checks which leaves need no count, that RPCs to them are not counted, and that Build
// refuses a breaker that does not count for other leaves.
func TestBreakerUnlimited(t *testing.T) {
	for name, test := range map[string]struct {
		leaf Leaf
		want bool
	}{
		"limit":              {Leaf{MaxRequests: math.MaxUint32 - 1}, true},
		"no limit":           {Leaf{MaxRequests: math.MaxUint32}, false},
		"retry budget":       {Leaf{MaxRequests: math.MaxUint32, Retries: &RetryLimit{}}, true},
		"ring":               {Leaf{MaxRequests: math.MaxUint32, Policy: Policy{Kind: PolicyRingHash, Ring: &RingPolicy{}}}, false},
		"ring, bounded load": {Leaf{MaxRequests: math.MaxUint32, Policy: Policy{Kind: PolicyRingHash, Ring: &RingPolicy{BalanceFactor: 150}}}, true},
	} {
		if got := test.leaf.CountsRPCs(); got != test.want {
			t.Errorf("%s: CountsRPCs() = %v, want %v", name, got, test.want)
		}
	}
	w := benchWorld(1, 10, 0, false)
	w.unlimit()
	w.leaf(0).MaxRequests = 1
	if err := w.build(t).ClusterErr(0); err == nil || !strings.Contains(err.Error(), "does not count") {
		t.Errorf("Build() with a limit and a breaker that does not count: %v", err)
	}
	w.snapshot, w.leaf(0).MaxRequests = nil, math.MaxUint32
	s, states := w.build(t), w.flat(0)
	for range 3 {
		result := s.Pick(bg, "/s/m", 0)
		if result.Outcome != Picked || w.breakers[0].InFlight() != 0 {
			t.Fatalf("the outcome is %v, and %d RPCs count", result.Outcome, w.breakers[0].InFlight())
		}
		states[result.Index].Finish(CallOK)
	}
	if n := w.breakers[0].InFlight(); n != 0 {
		t.Errorf("%d RPCs count", n)
	}
}

// openStripes returns a breaker with so many RPCs in flight that is striped for 2 P, of which each keeps the
// given number of slots.
func openStripes(t testing.TB, limit uint32, inFlight int, kept ...int) *Breaker {
	t.Helper()
	b := new(Breaker)
	b.open(limit, 2)
	if b.striped.Load() == 0 {
		t.Fatal("the breaker is not striped")
	}
	total := 0
	for _, n := range kept {
		total += n
	}
	for range inFlight + total {
		if !b.acquireAt(0, limit) {
			t.Fatal("rejected")
		}
	}
	for p, n := range kept {
		for range n {
			b.releaseAt(p)
		}
	}
	if s := b.stripes.Load(); b.InFlight() != int64(inFlight) || s.free() != int64(total) {
		t.Fatalf("%d in flight, and stripes keep %d, want %d and %d", b.InFlight(), s.free(), inFlight, total)
	}
	return b
}

// TestBreakerReclaims checks that slots kept by stripes of other P are usable, and the limit holds, RPC by RPC.
func TestBreakerReclaims(t *testing.T) {
	const limit = 64
	b := openStripes(t, limit, 0, 8, 8)
	for n := range limit {
		if !b.acquireAt(0, limit) {
			t.Fatalf("rejected with %d of %d in flight", n, limit)
		}
		if got := b.InFlight(); got != int64(n)+1 {
			t.Fatalf("InFlight() = %d, want %d", got, n+1)
		}
	}
	for p := range 2 {
		if b.acquireAt(p, limit) {
			t.Errorf("admitted %d with a limit of %d", limit+1, limit)
		}
	}
	if e := b.stripes.Load().epoch.Load(); b.striped.Load() != 0 && e%2 == 0 {
		t.Error("the stripes are open at the limit")
	}
	b.Release()
	if !b.Acquire(limit) || b.Acquire(limit) {
		t.Error("a released slot is not available exactly once")
	}
	for n := range limit {
		if got := b.InFlight(); got != int64(limit-n) {
			t.Fatalf("InFlight() = %d, want %d", got, limit-n)
		}
		b.Release()
	}
}

// TestBreakerLimits checks sequences of operations on P chosen at random, with limits that differ between
// callers as if they were changed (A32), while stripes are opened and closed: an RPC is admitted if and only
// if the RPCs in flight are fewer than its limit.
func TestBreakerLimits(t *testing.T) {
	rounds := 400
	if testing.Short() || raceEnabled {
		rounds = 50
	}
	for seed := range rounds {
		rng := newRand(uint64(seed))
		limits := []uint32{8 + rng.Uint32N(100), 8 + rng.Uint32N(100)}
		var b Breaker
		inFlight := int64(0)
		for range 1000 {
			switch k := rng.IntN(100); {
			case k < 2:
				b.open(limits[0], 3)
			case k < 3:
				b.open(limits[1], 3)
			case k < 4 && b.striped.Load() != 0:
				b.stripes.Load().close()
			case k < 5 && b.stripes.Load() != nil:
				b.settle()
			case k < 55+seed%5:
				limit := limits[0]
				if rng.IntN(20) == 0 {
					limit = limits[1]
				}
				got := b.acquireAt(rng.IntN(4), limit)
				if want := inFlight < int64(limit); got != want {
					t.Fatalf("seed %d: admitted %v with %d in flight and a limit of %d", seed, got, inFlight, limit)
				}
				if got {
					inFlight++
				}
			case inFlight > 0:
				inFlight--
				if b.striped.Load() != 0 {
					b.releaseAt(rng.IntN(4))
				} else {
					b.Release()
				}
			}
			if got := b.InFlight(); got != inFlight {
				t.Fatalf("seed %d: InFlight() = %d, want %d", seed, got, inFlight)
			}
		}
	}
}

// TestBreakerLimit checks with goroutines that hold a slot each, while stripes are opened and closed all the
// time: as many as the limit are never rejected, more never exceed it, and every Release gives one slot back (T-CB-1, T-CB-2).
func TestBreakerLimit(t *testing.T) {
	rounds := 20_000
	if testing.Short() || raceEnabled {
		rounds = 2000
	}
	for _, limit := range []uint32{1, 8, 40} {
		for _, goroutines := range []int{int(limit), int(limit) + 1, 2 * int(limit)} {
			var (
				b                 Breaker
				inFlight, peak    atomic.Int64
				admitted, refused atomic.Int64
				wg, other         sync.WaitGroup
				stop              atomic.Bool
			)
			other.Go(func() {
				rng := rand.New(rand.NewPCG(1, 1))
				for !stop.Load() {
					b.open(limit, 2)
					runtime.Gosched()
					if s := b.stripes.Load(); s != nil && rng.IntN(2) == 0 {
						s.close()
						b.settle()
					}
				}
			})
			for range goroutines {
				wg.Go(func() {
					for i := range rounds {
						if !b.Acquire(limit) {
							refused.Add(1)
							runtime.Gosched()
							continue
						}
						admitted.Add(1)
						n := inFlight.Add(1)
						for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
						}
						if i%4 == 0 {
							runtime.Gosched()
						}
						inFlight.Add(-1)
						b.Release()
					}
				})
			}
			wg.Wait()
			stop.Store(true)
			other.Wait()
			if peak.Load() > int64(limit) {
				t.Errorf("limit %d: %d RPCs in flight at once", limit, peak.Load())
			}
			if n := refused.Load(); n > 0 && goroutines <= int(limit) {
				t.Errorf("limit %d: %d RPCs of %d goroutines were rejected", limit, n, goroutines)
			}
			if b.InFlight() != 0 {
				t.Errorf("limit %d: %d RPCs in flight at the end", limit, b.InFlight())
			}
		}
	}
}

// TestBreakerOpens checks when stripes are used: not with little room below the limit, not on a single P, and
// not if picks read the total.
func TestBreakerOpens(t *testing.T) {
	for _, test := range []struct {
		name     string
		limit    uint32
		inFlight int
		n        int
		total    bool
		want     bool
	}{
		{"room", 1024, 512, 2, false, true},
		{"little room", 1024, 513, 2, false, false},
		{"small limit", 4, 0, 2, false, false},
		{"one P", 1024, 0, 1, false, false},
		{"bounded loads", 1024, 0, 2, true, false},
	} {
		var b Breaker
		for range test.inFlight {
			b.Acquire(test.limit)
		}
		if test.total {
			b.needTotal()
		}
		b.open(test.limit, test.n)
		if got := b.striped.Load() != 0; got != test.want {
			t.Errorf("%s: striped: %v, want %v", test.name, got, test.want)
		}
		if b.InFlight() != int64(test.inFlight) {
			t.Errorf("%s: InFlight() = %d, want %d", test.name, b.InFlight(), test.inFlight)
		}
	}
	w, _ := hashWorld(PolicyRingHash, 10, 1000, 150)
	w.breakers[0].open(1024, 2)
	if w.build(t); w.breakers[0].striped.Load() != 0 || !w.breakers[0].total.Load() {
		t.Error("the breaker of a cluster with bounded loads is striped")
	}
}

// TestBreakerFallsBack checks that a breaker that one P uses alone stops using stripes, that one used by two does
// not, and that stripes are made only once.
func TestBreakerFallsBack(t *testing.T) {
	for _, users := range []int{1, 2} {
		b := openStripes(t, 1024, 0, 1, 1)
		before := b.stripes.Load()
		for i := range 4 * 512 * aloneTurns {
			if b.striped.Load() == 0 {
				break
			}
			p := i / 512 % users
			b.acquireAt(p, 1024)
			b.releaseAt(p)
		}
		if striped := b.striped.Load() != 0; striped != (users > 1) {
			t.Errorf("striped with %d users: %v", users, striped)
		}
		if b.open(1024, 2); b.striped.Load() == 0 || b.stripes.Load() != before {
			t.Errorf("with %d users, stripes are not used again", users)
		}
		if n := b.InFlight(); n != 0 {
			t.Errorf("with %d users, %d are in flight", users, n)
		}
	}
}
