// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
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

// T-LRS-3: issued = OK + failed + in progress and no count is negative during concurrent
// updates, and the counts are exact afterwards.
func TestLoadSnapshot(t *testing.T) {
	const goroutines = 8
	rounds := 100000
	if raceEnabled {
		rounds = 5000
	}
	var (
		load    Load
		breaker Breaker
		calls   sync.WaitGroup
		stop    atomic.Bool
	)
	for g := range goroutines {
		calls.Go(func() {
			var e EndpointState
			e.Bind(NewBinding(&load, &breaker, false))
			for i := range rounds {
				if breaker.Acquire(goroutines) {
					load.issue()
					e.Finish(CallResult((g + i) % 3))
				}
			}
		})
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for !stop.Load() {
			if s := load.Snapshot(); s.InProgress > uint64(goroutines*rounds) || s.Issued != s.OK+s.Failed+s.InProgress {
				t.Errorf("inconsistent snapshot %+v", s)
				return
			}
		}
	})
	calls.Wait()
	stop.Store(true)
	reader.Wait()
	s := load.Snapshot()
	if s.InProgress != 0 || s.Issued != s.OK+s.Failed {
		t.Errorf("at rest: %+v", s)
	}
	if total := s.Issued + load.counts[CallNotSent].Load() + load.stripes.Load().counted(int(CallNotSent)); total != uint64(goroutines*rounds) {
		t.Errorf("%d calls were counted, want %d", total, goroutines*rounds)
	}
	if breaker.InFlight() != 0 {
		t.Errorf("%d calls are in flight at rest", breaker.InFlight())
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

func TestFinish(t *testing.T) {
	for _, test := range []struct {
		result CallResult
		want   LoadSnapshot
	}{
		{CallOK, LoadSnapshot{Issued: 2, OK: 1, InProgress: 1}},
		{CallFailed, LoadSnapshot{Issued: 2, Failed: 1, InProgress: 1}},
		{CallNotSent, LoadSnapshot{Issued: 1, InProgress: 1}},
		{CallCanceled, LoadSnapshot{Issued: 2, InProgress: 1}},
	} {
		var (
			load    Load
			breaker Breaker
			e       EndpointState
		)
		e.Bind(NewBinding(&load, &breaker, false))
		for range 2 {
			breaker.Acquire(10)
			load.issue()
		}
		e.Finish(test.result)
		if got := load.Snapshot(); got != test.want {
			t.Errorf("after result %d: %+v, want %+v", test.result, got, test.want)
		}
		if breaker.InFlight() != 1 {
			t.Errorf("after result %d: %d in flight, want 1", test.result, breaker.InFlight())
		}
	}
}

// T-CB-1, T-CB-2: the limit is hard and every Release gives one place back.
func TestBreakerLimit(t *testing.T) {
	const goroutines, rounds = 64, 2000
	for _, limit := range []uint32{1, 7, 40} {
		var (
			b              Breaker
			inFlight, peak atomic.Int64
			admitted       atomic.Int64
			wg             sync.WaitGroup
		)
		for range goroutines {
			wg.Go(func() {
				for range rounds {
					if !b.Acquire(limit) {
						runtime.Gosched()
						continue
					}
					admitted.Add(1)
					n := inFlight.Add(1)
					for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
					}
					runtime.Gosched()
					inFlight.Add(-1)
					b.Release()
				}
			})
		}
		wg.Wait()
		if peak.Load() > int64(limit) {
			t.Errorf("limit %d: %d RPCs in flight at once", limit, peak.Load())
		}
		if b.InFlight() != 0 {
			t.Errorf("limit %d: %d RPCs in flight at the end", limit, b.InFlight())
		}
		if admitted.Load() == 0 {
			t.Errorf("limit %d: no RPC was admitted", limit)
		}
	}
}

func TestBreakerZero(t *testing.T) {
	var b Breaker
	if b.Acquire(0) {
		t.Error("Acquire(0) admits an RPC")
	}
	if !b.Acquire(1) {
		t.Error("a refused RPC holds its place")
	}
}

// A32: RPCs that are in flight stay when the limit is lowered, and it refuses
// until they are fewer.
func TestBreakerLowered(t *testing.T) {
	var b Breaker
	for range 5 {
		if !b.Acquire(5) {
			t.Fatal("Acquire(5) refuses below the limit")
		}
	}
	for n := 5; n >= 2; n-- {
		if b.Acquire(2) {
			t.Errorf("Acquire(2) admits with %d in flight", n)
		}
		b.Release()
	}
	if !b.Acquire(2) {
		t.Error("Acquire(2) refuses with 1 in flight")
	}
	if !b.Acquire(3) || b.Acquire(2) {
		t.Error("two views of the limit do not both hold")
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
