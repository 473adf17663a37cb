// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// TestSlowStart: the share of an endpoint that becomes READY beside others follows
// Envoy's curve, the weight times max(min, (t/window)^(1/aggression)), as time goes
// by and without anything else happening; and so it does after a reconnection.
func TestSlowStart(t *testing.T) {
	const n, window, step = 20_000, 30 * time.Second, time.Second
	curve := func(age time.Duration) float64 {
		return min(max(math.Sqrt(float64(max(age, 0))/float64(window)), 0.1), 1)
	}
	policies := map[string]picker.Policy{
		"edf":           {Kind: picker.PolicyEDF},
		"least_request": {Kind: picker.PolicyLeastRequest, Least: &picker.LeastRequest{Choices: 2}},
		"client_wrr":    {Kind: picker.PolicyClientWRR, WRR: &picker.ClientWRR{UpdatePeriod: time.Second}},
	}
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy.SlowStart = &picker.SlowStart{Window: window, Aggression: 2, MinWeightPercent: 10}
				c := clusterOf("c", prio(eps(1, 2, 3, 4)))
				c.Leaves[0].Policy = policy
				b, cc := newTestLB(t, Config{})
				b.Update(configOf(c))
				for e := 1; e <= 3; e++ {
					cc.conn(t, e).to(ready)
				}
				kit.Pass(window + 5*step)
				for range 2 {
					b.lock()
					if b.clusters["c"].slowStartTimer != nil {
						t.Error("the timer runs though no endpoint warms up")
					}
					b.unlock()
					cc.conn(t, 4).to(idle)
					cc.conn(t, 4).to(ready)
					since := time.Now()
					for _, pause := range []time.Duration{1, 4, 10, 14, 3} {
						kit.Pass(pause*step + 100*time.Millisecond)
						got := 0
						for range n {
							a, err := b.pick()
							kit.Must(t, err)
							if a == addr(4).String() {
								got++
							}
						}
						age := time.Since(since)
						share := func(f float64) float64 { return f / (3 + f) }
						low, high := share(curve(age-2*step)), share(curve(age))
						if s := float64(got) / n; s < 0.93*low || s > 1.07*high {
							t.Errorf("%v after it became READY the endpoint gets %.4f of RPCs, want %.4f to %.4f", age, s, low, high)
						}
					}
				}
			})
		})
	}
}

// TestFadeIn: with policies that hash, slow start begins when an endpoint becomes READY that an update has
// added, or that has failed before. Its part of the hashes that belong to it grows from a tenth to all of them
// as time goes by. An endpoint that connects late because no RPC has needed it, or that reconnects without
// having failed, has all of them at once.
func TestFadeIn(t *testing.T) {
	const n, window = 2000, 40 * time.Second
	for name, policy := range map[string]picker.Policy{
		"ring_hash": {Kind: picker.PolicyRingHash, Ring: &picker.RingPolicy{MinSize: 1000, MaxSize: 4096}},
		"maglev":    {Kind: picker.PolicyMaglev, Ring: &picker.RingPolicy{MinSize: 1009}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy.Flat = true
				policy.SlowStart = &picker.SlowStart{Window: window, Aggression: 1, MinWeightPercent: 10}
				cluster := func(numbers ...int) *picker.Cluster {
					c := clusterOf("c", prio(eps(numbers...)))
					c.Leaves[0].Policy = policy
					return c
				}
				b, cc := newTestLB(t, Config{})
				owned := func(of int) (hashes []uint64) {
					for i := range uint64(n) {
						hash := i * 0x9e3779b97f4a7c15
						if a, err := b.pickHash(hash); err == nil && a == addr(of).String() {
							hashes = append(hashes, hash)
						}
					}
					return hashes
				}
				connect := func(number int) {
					t.Helper()
					owned(number) // RPCs connect it
					synctest.Wait()
					cc.conn(t, number).to(ready)
					b.flush()
				}
				b.set(configOf(cluster(1, 2, 3)))
				third := 0
				for number := 1; number <= 3; number++ {
					connect(number)
					third = len(owned(3))
					kit.Pass(2 * window)
				}
				if got := len(owned(3)); got != third {
					t.Errorf("an endpoint that connects late has %d hashes at first, then %d", third, got)
				}

				fades := func(what string, all []uint64) (grown []uint64) {
					t.Helper()
					since, share := time.Now(), 0.
					for range 5 {
						grown = owned(4)
						age := float64(time.Since(since)) / float64(window)
						if share = float64(len(grown)) / float64(len(all)); all != nil && (share < max(.06, age-.12) || share > max(.15, age+.08)) {
							t.Errorf("%s: %v after it became READY the endpoint has %.2f of its hashes", what, time.Since(since), share)
						}
						kit.Pass(window / 4)
					}
					return grown
				}
				b.set(configOf(cluster(1, 2, 3, 4)))
				connect(4)
				first := len(owned(4))
				all := fades("added", nil)
				if ratio := float64(first) / float64(len(all)); ratio < .06 || ratio > .15 {
					t.Errorf("an endpoint that was added has %.2f of its hashes at first, want 0.1", ratio)
				}
				c := cc.conn(t, 4)
				c.to(idle)
				connect(4)
				if got := len(owned(4)); got != len(all) {
					t.Errorf("an endpoint that reconnects has %d of its %d hashes", got, len(all))
				}
				c.to(failure)
				kit.Pass(time.Second)
				c.to(ready)
				b.flush()
				fades("failed", all)
				b.lock()
				if b.clusters["c"].slowStartTimer != nil {
					t.Error("the timer runs though no endpoint warms up")
				}
				b.unlock()
			})
		})
	}
}
