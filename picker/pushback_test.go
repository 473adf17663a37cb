// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// An endpoint whose server pushes back gets no RPCs for the time that it asks for, and after that fewer than
// others, since the time counts as latency. If all push back, they share the RPCs.
func TestPushBack(t *testing.T) {
	for _, n := range []int{3, 12} {
		for _, policy := range []Policy{latencyPolicy, prequal()} {
			t.Run(fmt.Sprint(policy.Kind.Traits().Name, n), func(t *testing.T) {
				w := latencyWorld(zone("a", 1, endpoints(0, ones(n)...)))
				policy.Flat = true
				w.leaf(0).Policy = policy
				w.renew(0)
				list := w.flat(0)
				for _, e := range list {
					e.Connectivity = Ready
				}
				w.build(t)
				takes := func(int32) time.Duration { return 10 * time.Millisecond }
				w.playEvery(t, 5*time.Millisecond, 5*time.Second, takes)
				w.breakers[0].Acquire(math.MaxUint32)
				list[0].Begin()
				list[0].PushBack(2 * time.Second)
				list[0].FinishTimed(CallFailed)
				if policy.Kind == PolicyPrequal {
					pool := adopt(t, w, 0)
					for _, e := range list {
						pool.Answer(e, ProbeReport{InFlight: 1, Latency: 10 * time.Millisecond}, 0)
					}
				}
				if s := w.playEvery(t, 5*time.Millisecond, 2*time.Second, takes); s[0] > 0 {
					t.Errorf("its share is %.4f during the time, want 0", s[0])
				}
				if list[0].PushedBack() {
					t.Error("it is kept out of choice after the time")
				}
				if s := w.playEvery(t, 5*time.Millisecond, 3*time.Second, takes); s[0] > .8/float64(n) {
					t.Errorf("its share is %.4f afterwards, want less than 1/%d", s[0], n)
				}
				if s := w.playEvery(t, 5*time.Millisecond, 60*time.Second, takes); s[0] < .15/float64(n) {
					t.Errorf("its share is %.4f in the end, want about 1/%d", s[0], n)
				}
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
