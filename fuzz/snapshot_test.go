// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// What a test needs of package picker beyond its configuration types is here.

// A target is a configuration, and what the caller of Build keeps beside it.
type target struct {
	cfg      picker.Config
	states   []picker.ClusterState
	snapshot *picker.Snapshot
}

// anyRoute sends everything to cluster "c".
var anyRoute = []picker.Route{{Clusters: []picker.WeightedCluster{{Name: "c", Weight: 1}}}}

// use makes one priority of a leaf the only destination, with all its endpoints
// READY, as after a change of configuration.
func (g *target) use(leaf picker.Leaf, priority int) {
	leaf.Name = "c"
	state := picker.ClusterState{
		Priority: priority,
		Breaker:  new(picker.Breaker),
		Overload: new(picker.Counter),
	}
	if len(g.states) > 0 {
		state.Version = g.states[0].Version + 1
	}
	for range leaf.Drops {
		state.Drops = append(state.Drops, new(picker.Counter))
	}
	for _, l := range leaf.Priorities[priority].Localities {
		local := picker.LocalityState{Load: new(picker.Load)}
		for range l.Endpoints {
			e := &picker.EndpointState{Connectivity: picker.Ready}
			e.Bind(local.Load, state.Breaker)
			local.Endpoints = append(local.Endpoints, e)
		}
		state.Localities = append(state.Localities, local)
	}
	g.cfg = picker.Config{Routes: anyRoute, Clusters: []*picker.Cluster{{Name: "c", Leaves: []picker.Leaf{leaf}}}}
	g.states = []picker.ClusterState{state}
}

// build is Build after the last snapshot.
func (g *target) build(t *testing.T) {
	t.Helper()
	s, err := picker.Build(g.snapshot, &g.cfg, g.states, picker.Env{Header: headersOf, Now: 1})
	if err != nil {
		t.Fatalf("%+v cannot be built: %v", g.cfg, err)
	}
	g.snapshot = s
}

type headersKey struct{}

// headersOf returns headers that a context was made with.
func headersOf(ctx context.Context, name string) []string {
	h, _ := ctx.Value(headersKey{}).(map[string][]string)
	return h[name]
}

// checkPicks picks from every priority of two versions of endpoints, one after the
// other.
func checkPicks(t *testing.T, versions ...*resource.Endpoints) {
	t.Helper()
	var g target
	for i, e := range versions {
		for p := range e.Priorities {
			g.use(picker.Leaf{MaxRequests: 1024, Drops: e.Drops, Priorities: e.Priorities}, p)
			g.cfg.Clusters[0].Leaves[0].Policy.Kind = picker.PolicyKind(i % 2)
			g.build(t)
			if err := g.snapshot.ClusterErr(0); err != nil {
				t.Fatalf("priority %d of\n%s\ncannot be used: %v", p, render(e), err)
			}
			g.checkPicks(t, &e.Priorities[p], e.Drops)
		}
	}
}

// checkPicks checks that picks come to what they can come to.
func (g *target) checkPicks(t *testing.T, p *picker.Priority, drops []picker.Drop) {
	t.Helper()
	var healthy []bool
	some := false
	for _, l := range p.Localities {
		for _, e := range l.Endpoints {
			healthy = append(healthy, e.Health == picker.Healthy)
			some = some || e.Health == picker.Healthy
		}
	}
	picks := min(2*len(healthy)+1, 64)
	for i := range picks {
		r := uint64(i) * 0x9e3779b97f4a7c15
		got := g.snapshot.Pick(context.Background(), "/s/m", r)
		switch ok := some; got.Outcome {
		case picker.Picked:
			if !ok || int(got.Index) >= len(healthy) || !healthy[got.Index] {
				t.Fatalf("Pick = %+v, with endpoints that are healthy %v", got, healthy)
			}
		case picker.Dropped:
			if !ok || drops[got.Index].PerMillion == 0 {
				t.Fatalf("Pick = %+v, with drops %v", got, drops)
			}
		default:
			if ok || got.Outcome != picker.Failed {
				t.Fatalf("Pick = %+v, with endpoints that are healthy %v", got, healthy)
			}
		}
	}
}

// clusterNames returns the clusters that routes name, each once.
func clusterNames(routes []picker.Route) (names []string) {
	for _, r := range routes {
		for _, c := range r.Clusters {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return append(slices.Compact(names), "no route's")
}

// match builds a snapshot of routes and matches an RPC with it. No cluster has
// endpoints.
func match(t *testing.T, routes []picker.Route, path string, headers map[string][]string, r uint64) picker.Result {
	t.Helper()
	g := target{cfg: picker.Config{Routes: routes}}
	for _, name := range clusterNames(routes) {
		g.cfg.Clusters = append(g.cfg.Clusters, &picker.Cluster{Name: name})
		g.states = append(g.states, picker.ClusterState{Leaf: -1})
	}
	g.build(t)
	ctx := context.WithValue(context.Background(), headersKey{}, headers)
	route, cluster, outcome := g.snapshot.Match(ctx, path, r)
	if got := g.snapshot.Pick(ctx, path, r); outcome == picker.Picked && got != (picker.Result{Outcome: picker.Queue, Route: route, Cluster: cluster}) {
		t.Fatalf("Pick = %+v, but Match says route %d and cluster %d", got, route, cluster)
	}
	return picker.Result{Outcome: outcome, Route: route, Cluster: cluster}
}

// pickBy picks by a policy from two localities with endpoints in every state.
// Build may not know the policy: then RPCs fail, and ClusterErr says why.
func pickBy(t *testing.T, p picker.Policy) {
	t.Helper()
	var level picker.Priority
	for i, zone := range []string{"a", "b"} {
		l := picker.Locality{ID: picker.LocalityID{Zone: zone}, Weight: uint32(i + 1)}
		for k := range byte(5) {
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), k}), 443)
			l.Endpoints = append(l.Endpoints, picker.Endpoint{Addr: addr, Weight: uint32(k) + 1, Health: picker.Health(k / 4)})
		}
		level.Localities = append(level.Localities, l)
	}
	var g target
	g.use(picker.Leaf{MaxRequests: 1024, Policy: p, Priorities: []picker.Priority{level}}, 0)
	for _, l := range g.states[0].Localities {
		l.Endpoints[1].Connectivity = picker.TransientFailure
	}
	g.build(t)
	err := g.snapshot.ClusterErr(0)
	if err != nil && p.Kind <= picker.PolicyRoundRobin {
		t.Fatalf("policy %+v cannot be used: %v", p, err)
	}
	for i := range uint64(20) {
		got := g.snapshot.Pick(context.Background(), "/s/m", i*0x9e3779b97f4a7c15)
		if (err != nil) != (got.Outcome == picker.Failed) || got.Index < 0 || got.Index >= 10 {
			t.Fatalf("with policy %+v (%v), Pick = %+v", p, err, got)
		}
		if n := got.Index % 5; got.Outcome == picker.Picked && (n == 1 || n == 4) {
			t.Fatalf("with policy %+v, Pick = %+v, which is not to be picked", p, got)
		}
	}
}
