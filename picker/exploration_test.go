// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"testing"
	"time"
)

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
// although another one is slow, to which only RPCs that explore go.
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
