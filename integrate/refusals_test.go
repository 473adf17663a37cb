// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/picker"
)

// TestRefusalsAllocateNothing: a pick that ends an RPC, or finds no endpoint, returns an
// error that was made before, however often.
func TestRefusalsAllocateNothing(t *testing.T) {
	tests := map[string]func(*picker.Config){
		"dropped": func(c *picker.Config) {
			c.Clusters[0].Leaves[0].Drops = []picker.Drop{{Category: "d", PerMillion: 1e6}}
		},
		"breaker":        func(c *picker.Config) { c.Clusters[0].Leaves[0].MaxRequests = 0 },
		"no route":       func(c *picker.Config) { c.Routes[0].Path = picker.StringMatch{Kind: picker.MatchExact, Value: "/x"} },
		"not forwarding": func(c *picker.Config) { c.Routes[0].Clusters = nil },
		"no endpoints":   func(c *picker.Config) { c.Clusters[0].Leaves[0].Priorities = nil },
	}
	for name, change := range tests {
		b, cc := newTestLB(t, Config{})
		cfg := configOf(clusterOf("refused", prio(eps(0)))) // the process shares breakers by name
		change(cfg)
		b.set(cfg)
		if cc.has(0) {
			cc.conn(t, 0).to(ready)
		}
		b.flush()
		info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()}
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := b.picker.Pick(info); err == nil {
				t.Fatalf("%s: no error", name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for each refused pick, want none", name, n)
		}
	}
}
