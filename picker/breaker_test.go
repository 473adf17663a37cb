// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

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
