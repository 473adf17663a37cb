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
