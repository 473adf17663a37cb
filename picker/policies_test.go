// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"testing"
	"time"
)

// policies are one of each kind, with everything on.
var policies = []Policy{
	{Kind: PolicyEDF},
	{Kind: PolicyRoundRobin},
	{Kind: PolicyRingHash, Ring: &RingPolicy{MinSize: 100, MaxSize: 200, BalanceFactor: 120}},
	{Kind: PolicyMaglev, Ring: &RingPolicy{MinSize: 101, XXH64: true, BalanceFactor: 120}},
	{Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 3}, SlowStart: &SlowStart{Window: time.Hour, Aggression: 1}},
	{Kind: PolicyClientWRR, WRR: &ClientWRR{}, SlowStart: &SlowStart{Window: time.Hour, Aggression: 1}},
	{Kind: PolicyPickFirst, First: &PickFirst{}},
	{Kind: PolicyCustom, Custom: &CustomPolicy{}},
	{Kind: PolicyLeastLatency, Latency: &LeastLatency{Decay: 10 * time.Second}, SlowStart: &SlowStart{Window: time.Hour, Aggression: 1}},
	prequal(),
}

// eachPolicy runs a test for each policy in both arrangements.
func eachPolicy(t *testing.T, test func(t *testing.T, policy Policy)) {
	for _, policy := range policies {
		for _, flat := range []bool{true, false} {
			policy.Flat = flat
			t.Run(fmt.Sprintf("kind=%d/flat=%t", policy.Kind, flat), func(t *testing.T) { test(t, policy) })
		}
	}
}

// A50: an endpoint that is ejected gets no RPC though its connection is READY, and if
// all READY ones are ejected RPCs fail rather than wait.
func TestEjected(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		w := newWorld(zone("a", 1, endpoints(0, 1, 1)), zone("b", 1, endpoints(2, 1, 1)))
		w.leaf(0).Policy = policy
		w.leaf(0).MaxRequests = 1e9
		w.renew(0)
		rng := newRand(1)
		outcomes := func() (seen [Delegate + 1]int, picked [4]int) {
			w.states[0].Version++
			s := w.build(t)
			for range 200 {
				got := s.Pick(bg, "/s/m", rng.Uint64())
				seen[got.Outcome]++
				if got.Outcome == Picked {
					picked[got.Index]++
				}
			}
			return seen, picked
		}
		list := w.flat(0)
		for i, e := range list {
			e.Connectivity, e.Ejected = Ready, i != 2
		}
		seen, picked := outcomes()
		if policy.Kind == PolicyCustom {
			if seen[Delegate] != 200 {
				t.Errorf("outcomes %v with one READY, want Delegate", seen)
			}
		} else if picked[2] != 200 {
			t.Errorf("outcomes %v, picks %v, want all at endpoint 2", seen, picked)
		}
		list[2].Ejected = true
		if seen, _ := outcomes(); seen[Failed] != 200 {
			t.Errorf("outcomes %v with all ejected, want Failed", seen)
		}
		list[1].Connectivity = Connecting // not affected by an ejection
		if seen, _ := outcomes(); seen[Queue] != 200 {
			t.Errorf("outcomes %v with all ejected but one that is CONNECTING, want Queue", seen)
		}
	})
}
