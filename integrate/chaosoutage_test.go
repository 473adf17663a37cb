// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestOutage: while the control plane is down for a minute RPCs go on, on channels
// that are there, idle ones that come back, and new ones; none fails, and no
// connection is touched (A57).
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, false, 1)
		cc := w.dial("steady")
		rng := rand.New(rand.NewPCG(3, 3))
		calls := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); w.pass(50 * time.Millisecond) {
				if err := w.unary("steady", cc, rng); err != nil {
					w.fail("%v", err)
				}
			}
		}
		calls(5 * time.Second)
		before := w.conns.of("steady")
		w.cutControl()
		calls(30 * time.Second)
		late := w.dial("late")
		for range 10 {
			if err := w.unary("late", late, rng); err != nil {
				w.fail("a new channel: %v", err)
			}
		}
		calls(30 * time.Second)
		w.joinControl()
		calls(5 * time.Second)
		w.check()
		if after := w.conns.of("steady"); len(after) != len(before) || len(after) == 0 {
			t.Errorf("connections are %v, before the outage they were %v", after, before)
		}
		w.hangUp(cc)
		w.hangUp(late)
		w.gone()
	})
}

// TestRedials: channels that are dialed, used once and closed leave nothing behind:
// no stream, no connection, no subscription, no memory, and no goroutine, with which
// the bubble would not end.
func TestRedials(t *testing.T) {
	cycles := 4000
	if raceEnabled {
		cycles = 2000
	}
	if testing.Short() {
		cycles = 500
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, false, 1)
		p := w.plan.clone()
		p.routed, p.clusters["a"].endpoints = map[string]uint32{"a": 1}, p.clusters["a"].endpoints[:1]
		p.silent = true // the test's own server would remember the reports
		w.push(p, noDefect)
		rng := rand.New(rand.NewPCG(4, 4))
		var heap uint64
		for i := range cycles {
			if i == cycles/4 {
				heap = w.residue()
			}
			who := fmt.Sprint("redialed ", i)
			cc := w.dial(who)
			if err := w.unary(who, cc, rng); err != nil {
				w.fail("cycle %d: %v", i, err)
			}
			w.hangUp(cc)
			w.oracle.settle()
		}
		w.check()
		// A channel has some 100 KiB. The allowance for each cycle is for stopped timers of virtual
		// time, which the runtime keeps. The total allowance is for gRPC's pools of buffers, which
		// are fuller at one time than at another, and for objects of earlier tests, which may be
		// freed.
		if after := w.residue(); after > heap+16<<20+uint64(512*cycles) {
			t.Errorf("%d cycles hold %d bytes", cycles-cycles/4, after-heap)
		} else {
			t.Logf("live heap is %d bytes, %d cycles earlier it was %d", after, cycles-cycles/4, heap)
		}
	})
}

// residue returns the size of the heap once nothing is left of channels that were
// closed, and all timers have run out.
func (w *world) residue() uint64 {
	w.t.Helper()
	w.gone()
	<-time.After(5 * time.Hour) // gRPC servers have timers of two
	synctest.Wait()
	return liveHeap()
}
