// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"slices"
	"strings"
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

// TestRefusalsFollow: what RPCs are refused with is made once for all configurations that say
// the same of drops and breaker, and follows each that does not.
func TestRefusalsFollow(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	leaf := picker.Leaf{Service: "s", MaxRequests: 1, Drops: []picker.Drop{{Category: "d", PerMillion: 1}, {Category: "e"}}}
	made := func(change func(*picker.Leaf)) (*rejections, string) {
		cfg := configOf(clusterOf("followed", prio(eps(0))))
		of := &cfg.Clusters[0].Leaves[0]
		of.Service, of.MaxRequests, of.Drops = leaf.Service, leaf.MaxRequests, slices.Clone(leaf.Drops)
		change(of)
		b.set(cfg)
		cc.conn(t, 0).to(ready)
		b.flush()
		r := b.picker.current.Load().clusters.At(0).rejections
		return r, fmt.Sprint(r.overload, r.drops)
	}
	first, _ := made(func(*picker.Leaf) {})
	if r, _ := made(func(l *picker.Leaf) { l.Priorities = []picker.Priority{prio(eps(0, 1))} }); r != first {
		t.Error("another endpoint, and they are made anew")
	}
	for want, change := range map[string]func(*picker.Leaf){
		`max requests 7 exceeded on service "s"`:        func(l *picker.Leaf) { l.MaxRequests = 7 },
		`max requests 1 exceeded on service "other"`:    func(l *picker.Leaf) { l.Service = "other" },
		`dropped by category "f" of cluster "followed"`: func(l *picker.Leaf) { l.Drops[1].Category = "f" },
	} {
		made(func(*picker.Leaf) {})
		if _, text := made(change); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}
