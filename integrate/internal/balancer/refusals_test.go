// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		"breaker":         func(c *picker.Config) { c.Clusters[0].Leaves[0].MaxRequests = 0 },
		"default breaker": func(c *picker.Config) { c.Clusters[0].Leaves[0].DefaultLimit = true },
		"no route":        func(c *picker.Config) { c.Routes[0].Path = picker.StringMatch{Kind: picker.MatchExact, Value: "/x"} },
		"not forwarding":  func(c *picker.Config) { c.Routes[0].Clusters = nil },
		"no endpoints":    func(c *picker.Config) { c.Clusters[0].Leaves[0].Priorities = nil },
	}
	for name, change := range tests {
		b, cc := newTestLB(t, Config{DefaultMaxRequests: 1, Logger: slog.New(slog.DiscardHandler)})
		cfg := configOf(clusterOf("refused", prio(eps(0)))) // the process shares breakers by name
		change(cfg)
		b.set(cfg)
		if cc.has(0) {
			cc.conn(t, 0).to(ready)
		}
		b.flush()
		info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()}
		_, _ = b.picker.Pick(info) // uses up the default limit
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := b.picker.Pick(info); err == nil {
				t.Fatalf("%s: no error", name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for each refused pick, want none", name, n)
		}
	}
}

// TestRefusalsFollow: the errors of rejected RPCs are built once for all configurations with the
// same drops and breaker, and rebuilt for each that differs.
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
		t.Error("the statuses are rebuilt for another endpoint")
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

// TestDefaultMaxRequests: the channel's default limit applies to clusters without a configured
// limit. Channels share the counter of a cluster and compare it with their own limits. A warning
// is logged once a minute while the default limit refuses RPCs.
func TestDefaultMaxRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()}
		channel := func(limit uint32, name string, configured bool) (started func(n int) int) {
			b, cc := newTestLB(t, Config{DefaultMaxRequests: limit, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			cfg := configOf(clusterOf(name, prio(eps(0))))
			leaf := &cfg.Clusters[0].Leaves[0]
			leaf.MaxRequests, leaf.DefaultLimit = 1024, !configured
			b.set(cfg)
			cc.conn(t, 0).to(ready)
			b.flush()
			return func(n int) (ok int) {
				for range n {
					if _, err := b.picker.Pick(info); err == nil {
						ok++
					}
				}
				return ok
			}
		}
		warnings := func() int { synctest.Wait(); return strings.Count(log.String(), "default circuit breaker") }
		two, five := channel(2, "shared", false), channel(5, "shared", false)
		unlimited := channel(math.MaxUint32, "shared", false)
		for i, tt := range []struct {
			started  func(int) int
			n, want  int
			warnings int
		}{
			{two, 3, 2, 1}, {two, 3, 0, 1}, {five, 5, 3, 2}, {unlimited, 5000, 5000, 2},
			{channel(0, "other", false), 1025, 1024, 3}, {channel(7, "configured", true), 1025, 1024, 3},
		} {
			if got := tt.started(tt.n); got != tt.want {
				t.Errorf("step %d: %d of %d RPCs started, want %d", i, got, tt.n, tt.want)
			}
			if n := warnings(); n != tt.warnings {
				t.Errorf("step %d: %d warnings, want %d:\n%s", i, n, tt.warnings, log.String())
			}
		}
		time.Sleep(time.Minute)
		two(10)
		if n := warnings(); n != 4 {
			t.Errorf("%d warnings after a minute, want 4:\n%s", n, log.String())
		}
	})
}
