// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file has the helpers for package picker's runtime types.

// A target is a configuration, and the state that the caller of Build maintains.
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
		var list picker.StateSlice
		for range l.Endpoints.All() {
			e := &picker.EndpointState{Connectivity: picker.Ready}
			if leaf.Policy.TimesRPCs() {
				e.Bind(picker.NewTimedBinding(local.Load, state.Breaker, clock))
			} else {
				e.Bind(picker.NewBinding(local.Load, state.Breaker, leaf.Policy.CountsInFlight()))
			}
			list = append(list, e)
		}
		local.Endpoints = list
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

// clock is that of RPCs which are timed. It stands still.
var clock = picker.NewExactClock(func() int64 { return 1 })

// policies are policies for endpoints, with sizes that keep them fast.
var policies = []picker.Policy{
	{},
	{Kind: picker.PolicyRoundRobin},
	{Kind: picker.PolicyEDF, Flat: true},
	{Kind: picker.PolicyEDF, Flat: true, Subset: 2},
	{Kind: picker.PolicyRingHash, Flat: true, Ring: &picker.RingPolicy{MinSize: 16, MaxSize: 64, XXH64: true}},
	{Kind: picker.PolicyRingHash, Ring: &picker.RingPolicy{MinSize: 16, MaxSize: 64, RequestHeader: "x"}},
	{Kind: picker.PolicyMaglev, Flat: true, Ring: &picker.RingPolicy{MinSize: 61, MaxSize: 61, BalanceFactor: 150}},
	{Kind: picker.PolicyLeastRequest, Flat: true, Least: &picker.LeastRequest{Choices: 2}},
	{Kind: picker.PolicyLeastLatency, Flat: true, Latency: &picker.LeastLatency{Decay: time.Second}},
	{Kind: picker.PolicyClientWRR, WRR: &picker.ClientWRR{}},
	{Kind: picker.PolicyPickFirst, Flat: true, First: &picker.PickFirst{Shuffle: true}},
	{Kind: picker.PolicyEDF, SlowStart: &picker.SlowStart{Window: time.Second, Aggression: 1, MinWeightPercent: 10}},
}

// checkPicks picks from every priority of two versions of endpoints, one after the
// other, by all policies.
func checkPicks(t *testing.T, versions ...*resource.Endpoints) {
	t.Helper()
	targets := make([]target, len(policies))
	for _, e := range versions {
		for p := range e.Priorities {
			for i := range targets {
				g := &targets[i]
				g.use(picker.Leaf{MaxRequests: 1024, Drops: e.Drops, Priorities: e.Priorities, Policy: policies[i]}, p)
				g.build(t)
				if err := g.snapshot.ClusterErr(0); err != nil {
					t.Fatalf("priority %d of %+v\ncannot be used by %+v: %v", p, e, policies[i], err)
				}
				g.checkPicks(t)
			}
		}
	}
}

// checkPicks checks that picks have only possible results, and leave no counts behind.
func (g *target) checkPicks(t *testing.T) {
	t.Helper()
	leaf, state := &g.cfg.Clusters[0].Leaves[0], &g.states[0]
	var list []*picker.EndpointState // nil for endpoints that must not be picked
	some := false
	for i, l := range leaf.Priorities[state.Priority].Localities {
		for k, cfg := range l.Endpoints.All() {
			e := state.Localities[i].Endpoints.State(k)
			if ok := cfg.Health == picker.Healthy && e.Connectivity == picker.Ready; ok {
				list, some = append(list, e), true
			} else {
				list = append(list, nil)
			}
		}
	}
	for i := range min(2*len(list)+1, 32) {
		x := g.snapshot.ExplainCluster(context.Background(), 0, 0)
		got := g.snapshot.Pick(context.Background(), "/s/m", uint64(i)*0x9e3779b97f4a7c15)
		if !possible(x, got) {
			t.Fatalf("by %+v Pick = %+v, which is impossible: %+v", leaf.Policy, got, x)
		}
		ok := some
		switch got.Outcome {
		case picker.Picked, picker.PickedConnect:
			if ok = ok && int(got.Index) < len(list) && list[got.Index] != nil; ok {
				list[got.Index].FinishTimed(picker.CallOK)
			}
		case picker.Dropped:
			ok = ok && leaf.Drops[got.Index].PerMillion > 0
		case picker.Delegate:
			ok = leaf.Policy.Kind == picker.PolicyCustom
		default:
			ok = !ok && got.Outcome == picker.Failed
		}
		if !ok {
			t.Fatalf("by %+v Pick = %+v, with drops %v and endpoints %v", leaf.Policy, got, leaf.Drops, list)
		}
	}
	if n := state.Breaker.InFlight(); n != 0 && leaf.Policy.Kind != picker.PolicyCustom {
		t.Errorf("by %+v %d RPCs are in flight after all have ended", leaf.Policy, n)
	}
}

// possible reports whether a pick of the only cluster may come to a result, as it is
// explained.
func possible(x *picker.ClusterExplanation, got picker.Result) bool {
	switch got.Outcome {
	case picker.Picked, picker.PickedConnect:
		return int(got.Index) < len(x.Endpoints) && x.Endpoints[got.Index].Share > 0
	case picker.Dropped:
		return x.Drops[got.Index] > 0
	case picker.Overloaded:
		return x.InFlight >= int64(x.Limit)
	case picker.Delegate:
		return x.Localities[got.Index] > 0
	case picker.Queue, picker.QueueConnect:
		return x.Waits > 0
	case picker.Failed:
		return x.Fails > 0
	}
	return false
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
	checks, unmatched := g.snapshot.ExplainRoutes(ctx, path)
	if outcome == picker.NoRoute && unmatched == 0 || outcome != picker.NoRoute && checks[route].Probability == 0 {
		t.Fatalf("Match returns route %d, which is impossible: %+v", route, checks)
	}
	if got := g.snapshot.Pick(ctx, path, r); outcome == picker.Picked && got != (picker.Result{Outcome: picker.Queue, Route: route, Cluster: cluster}) {
		t.Fatalf("Pick = %+v, but Match returns route %d and cluster %d", got, route, cluster)
	}
	return picker.Result{Outcome: outcome, Route: route, Cluster: cluster}
}

// pickBy picks by a policy from two localities with endpoints in every state.
// A policy that was accepted must not fail here.
func pickBy(t *testing.T, p picker.Policy) {
	t.Helper()
	var level picker.Priority
	for i, zone := range []string{"a", "b"} {
		l := picker.Locality{ID: picker.LocalityID{Zone: zone}, Weight: uint32(i + 1)}
		var list []picker.Endpoint
		for k := range byte(5) {
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), k}), 443)
			list = append(list, picker.Endpoint{Addr: addr, Weight: uint32(k) + 1, Health: picker.Health(k / 4)})
		}
		l.Endpoints = picker.ListOf(list...)
		level.Localities = append(level.Localities, l)
	}
	var g target
	g.use(picker.Leaf{MaxRequests: 1024, Policy: p, Priorities: []picker.Priority{level}}, 0)
	for _, l := range g.states[0].Localities {
		l.Endpoints.(picker.StateSlice)[1].Connectivity = picker.TransientFailure
	}
	g.build(t)
	if err := g.snapshot.ClusterErr(0); err != nil {
		t.Fatalf("policy %+v was accepted, but cannot be used: %v", p, err)
	}
	g.checkPicks(t)
}
