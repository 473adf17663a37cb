// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
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
		{"EndpointState", unsafe.Sizeof(EndpointState{}), 40},
		{"aliasCell", unsafe.Sizeof(aliasCell{}), 16},
	} {
		if unsafe.Sizeof(uintptr(0)) == 8 && test.got != test.want {
			t.Errorf("%s takes %d bytes, want %d", test.name, test.got, test.want)
		}
	}
}

// T-LRS-3: issued = OK + failed + in progress and nothing is negative, whatever
// happens meanwhile, and the counts are exact once nothing does.
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
			e.Bind(&load, &breaker)
			for i := range rounds {
				if breaker.Acquire(goroutines) {
					load.ticket()
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
	if total := s.Issued + load.done[CallVoid].Load(); total != uint64(goroutines*rounds) {
		t.Errorf("%d calls were counted, want %d", total, goroutines*rounds)
	}
	if breaker.InFlight() != 0 {
		t.Errorf("%d calls are in flight at rest", breaker.InFlight())
	}
}

func TestFinish(t *testing.T) {
	for _, test := range []struct {
		result CallResult
		want   LoadSnapshot
	}{
		{CallOK, LoadSnapshot{Issued: 2, OK: 1, InProgress: 1}},
		{CallFailed, LoadSnapshot{Issued: 2, Failed: 1, InProgress: 1}},
		{CallVoid, LoadSnapshot{Issued: 1, InProgress: 1}},
	} {
		var (
			load    Load
			breaker Breaker
			e       EndpointState
		)
		e.Bind(&load, &breaker)
		for range 2 {
			breaker.Acquire(10)
			load.ticket()
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
