// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

type headersKey struct{}

// headersOf returns the headers that a context was made with.
func headersOf(ctx context.Context, name string) []string {
	h, _ := ctx.Value(headersKey{}).(fakeHeaders)
	return h[name]
}

// An explained is a world, and an RPC to explain in it.
type explained struct {
	*world
	ctx    context.Context
	method string
}

// everyPolicy are policies of every kind, with parameters that matter.
func everyPolicy(rng *rand.Rand) Policy {
	ring := &RingPolicy{MinSize: 1 + rng.Uint64N(64), MaxSize: 64 + rng.Uint64N(200), BalanceFactor: pick(rng, uint32(0), 100, 150)}
	table := &RingPolicy{MinSize: pick(rng, uint64(31), 61, 251), BalanceFactor: pick(rng, uint32(0), 100, 150), RequestHeader: pick(rng, "", "", "a")}
	p := pick(rng,
		Policy{},
		Policy{Kind: PolicyRoundRobin},
		Policy{Kind: PolicyEDF, SlowStart: &SlowStart{Window: time.Second, Aggression: 1, MinWeightPercent: 10}},
		Policy{Kind: PolicyRingHash, Ring: ring},
		Policy{Kind: PolicyMaglev, Ring: table},
		Policy{Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 2 + rng.Uint32N(4), IgnoreWeights: rng.IntN(2) == 0}},
		Policy{Kind: PolicyLeastLatency, Latency: &LeastLatency{Decay: time.Second, IgnoreWeights: rng.IntN(2) == 0}},
		Policy{Kind: PolicyRandom},
		Policy{Kind: PolicyClientWRR, WRR: &ClientWRR{}},
		Policy{Kind: PolicyPickFirst, First: &PickFirst{}},
		Policy{Kind: PolicyCustom, Custom: &CustomPolicy{Name: "x"}},
		prequal(),
	)
	p.Flat = rng.IntN(2) == 0
	return p
}

// randomExplained returns a world with a few routes, and two clusters of any policy with
// endpoints in any state and RPCs in flight.
func randomExplained(t *testing.T, rng *rand.Rand) *explained {
	x := &explained{newWorld(), context.Background(), pick(rng, "/a/b", "/a/c", "/b")}
	if rng.IntN(3) > 0 {
		x.ctx = context.WithValue(x.ctx, headersKey{}, fakeHeaders{"a": {pick(rng, "1", "2", "x")}})
	}
	x.env = Env{Header: headersOf, Now: 1000 * int64(time.Second), ChannelID: rng.Uint64()}
	if rng.IntN(2) == 0 {
		x.env.RandomHashes = forgotten{}
	}
	for range 2 {
		x.randomCluster(rng)
	}
	x.cfg.Routes = clusterRoutes(rng, x.cfg.Clusters)
	for i := range x.cfg.Routes {
		r := &x.cfg.Routes[i]
		if rng.IntN(3) == 0 {
			r.Headers = []HeaderMatch{{Name: "a", String: StringMatch{Kind: MatchExact, Value: "1"}, Invert: rng.IntN(3) == 0}}
		}
		if rng.IntN(2) == 0 {
			r.Hash = []HashPolicy{{Header: pick(rng, "", "a")}}
		}
	}
	x.build(t)
	for i := range x.states {
		kit.Must(t, x.snapshot.ClusterErr(i))
	}
	return x
}

func (x *explained) randomCluster(rng *rand.Rand) {
	leaf := Leaf{Policy: everyPolicy(rng), MaxRequests: pick(rng, uint32(1<<20), 1<<20, 25)}
	for k := range rng.IntN(3) {
		leaf.Drops = append(leaf.Drops, Drop{fmt.Sprint(k), pick(rng, 0, rng.Uint32N(500000), 1e6*uint32(rng.IntN(8)/7))})
	}
	var p Priority
	for k := range 1 + rng.IntN(3) {
		var list []Endpoint
		for j := range 1 + rng.IntN(6) {
			list = append(list, Endpoint{Addr: address(k*10 + j), Weight: 1 + rng.Uint32N(6), Health: Health(rng.IntN(8) / 7)})
		}
		p.Localities = append(p.Localities, zone(fmt.Sprint(k), 1+rng.Uint32N(5), list))
	}
	leaf.Priorities = []Priority{p}
	randomZones(rng, &leaf)
	i := len(x.states)
	x.add(leaf)
	down := pick(rng, 0, 2, 5) // of 6 endpoints
	for _, e := range x.flat(i) {
		if rng.IntN(6) < down {
			e.Connectivity = pick(rng, Connecting, Idle, TransientFailure)
		}
		e.Ejected = rng.IntN(10) == 0
		e.StateSince = x.env.Now - int64(rng.Float64()*2*float64(time.Second))
		e.SetWeight(pick(rng, 0, rng.Float64()))
		for range pick(rng, 0, 1, 2, 3, 12) {
			x.breakers[i].Acquire(math.MaxUint32)
			e.Begin()
		}
	}
}

// expected returns the probability of each result of a pick, as it is explained.
func (x *explained) expected() map[Result]float64 {
	odds := map[Result]float64{}
	checks, unmatched := x.snapshot.ExplainRoutes(x.ctx, x.method)
	odds[Result{NoRoute, -1, -1, 0}] += unmatched
	for _, c := range checks {
		route := int32(c.Route)
		targets := x.snapshot.ExplainTargets(c.Route)
		if len(targets) == 0 {
			odds[Result{NotForwarding, route, -1, 0}] += c.Probability
		}
		for _, to := range targets {
			e := x.snapshot.ExplainCluster(x.ctx, route, to.Cluster)
			for r, p := range e.results(route, to.Cluster) {
				odds[r] += c.Probability * to.Share * p
			}
		}
	}
	return odds
}

// results returns the probability of each result of a pick of a cluster. The endpoint for
// which an RPC waits is left out.
func (e *ClusterExplanation) results(route, cluster int32) map[Result]float64 {
	odds := map[Result]float64{{Queue, route, cluster, 0}: e.Waits, {Failed, route, cluster, 0}: e.Fails}
	part := 1. // that is admitted
	for i, p := range e.Drops {
		odds[Result{Dropped, route, cluster, int32(i)}] = p * (e.Picked + e.Delegated)
		part -= p
	}
	if e.InFlight >= int64(e.Limit) {
		odds[Result{Overloaded, route, cluster, 0}] = part * (e.Picked + e.Delegated)
		return odds
	}
	for i, s := range e.Endpoints {
		odds[Result{Picked, route, cluster, int32(i)}] = s.Share * part
	}
	for i, s := range e.Localities {
		odds[Result{Delegate, route, cluster, int32(i)}] = s * part
	}
	return odds
}

// pick picks once, ends the RPC, and returns the result as results has it.
func (x *explained) pick(r uint64) Result {
	res := x.snapshot.Pick(x.ctx, x.method, r)
	switch res.Outcome {
	case Picked, PickedConnect:
		_, _, e := x.endpoint(res.Cluster, res.Index)
		e.FinishTimed(CallOK)
		res.Outcome = Picked
	case Delegate:
		x.snapshot.Cancel(res)
	case Queue, QueueConnect:
		res.Outcome, res.Index = Queue, 0
	}
	return res
}

// TestExplainPicks checks in random worlds of every policy that picks have no result that their
// explanation calls impossible, and that the other results are about as frequent as explained.
func TestExplainPicks(t *testing.T) {
	worlds := 400
	if testing.Short() || raceEnabled {
		worlds = 100
	}
	const n = 3000
	seen := map[Outcome]int{}
	for seed := range uint64(worlds) {
		rng := newRand(seed)
		x := randomExplained(t, rng)
		odds, got, sum := x.expected(), map[Result]int{}, 0.
		for _, p := range odds {
			sum += p
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("seed %d: the explained probabilities add up to %v, want 1: %v", seed, sum, odds)
		}
		for range n {
			got[x.pick(rng.Uint64())]++
		}
		for r, k := range got {
			seen[r.Outcome] += k
			if odds[r] == 0 {
				t.Fatalf("seed %d: pick %+v is impossible by the explanation", seed, r)
			}
		}
		if z := chiSquare(odds, got, n); z > 5 {
			t.Errorf("seed %d: results %v are %.1f deviations away from the expected odds: %v", seed, got, z, odds)
		}
	}
	for _, o := range []Outcome{Picked, Queue, Failed, Dropped, Overloaded, NoRoute, NotForwarding, Delegate} {
		if seen[o] == 0 && !testing.Short() && !raceEnabled {
			t.Errorf("outcome %d was never seen", o)
		}
	}
}

// chiSquare returns the significance of the deviation of n counts from the expected ones in
// standard deviations, by Wilson and Hilferty's approximation. Results with an expectation
// below five are merged.
func chiSquare(odds map[Result]float64, got map[Result]int, n int) float64 {
	sum, cells, rare, seldom := 0., 0, 0., 0
	add := func(want float64, have int) {
		sum += (float64(have) - want) * (float64(have) - want) / want
		cells++
	}
	for r, p := range odds {
		if want := p * float64(n); want < 5 {
			rare, seldom = rare+want, seldom+got[r]
		} else {
			add(want, got[r])
		}
	}
	if rare > 0.5 {
		add(rare, seldom)
	}
	if cells < 2 {
		return 0
	}
	df := float64(cells - 1)
	return (math.Cbrt(sum/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df))
}

// TestExplainRoutes: each kind of condition is named if it is the first that fails, and
// fractions become probabilities.
func TestExplainRoutes(t *testing.T) {
	part := func(perMillion uint32) *uint32 { return &perMillion }
	exact := func(s string) StringMatch { return StringMatch{Kind: MatchExact, Value: s} }
	to := []WeightedCluster{{Name: "c0", Weight: 1}}
	w := newWorld(zone("a", 1, endpoints(1, 1)))
	w.env.Header = headersOf
	w.cfg.Routes = []Route{
		{Path: exact("/x/y"), Clusters: to},
		{Headers: []HeaderMatch{{Name: "k", String: exact("v")}, {Name: "absent", String: exact("v")}}, Clusters: to},
		{Headers: []HeaderMatch{{Name: "t-bin", Kind: HeaderPresent, Present: true}}, Clusters: to},
		{Headers: []HeaderMatch{{Name: "content-type", String: exact("application/json")}}, Clusters: to},
		{Fraction: part(0), Clusters: to},
		{Fraction: part(250000), Clusters: to},
		{Headers: []HeaderMatch{{Name: "k", String: exact("v")}}, Fraction: part(500000)},
		{Path: StringMatch{Value: "/s/"}, Clusters: to},
		{Clusters: to},
	}
	s := w.build(t)
	ctx := context.WithValue(bg, headersKey{}, fakeHeaders{"k": {"v"}, "t-bin": {"b"}, "content-type": {"application/json"}})
	checks, unmatched := s.ExplainRoutes(ctx, "/s/m")
	type row struct {
		failed      condition
		header      string
		values      []string
		probability float64
	}
	want := []row{
		{failed: ConditionPath},
		{failed: ConditionHeader, header: "absent"},
		{failed: ConditionHeader, header: "t-bin"},
		{failed: ConditionHeader, header: "content-type", values: []string{"application/grpc"}},
		{failed: ConditionFraction},
		{probability: .25},
		{probability: .375},
		{probability: .375},
	}
	if len(checks) != len(want) || unmatched != 0 {
		t.Fatalf("checks %+v, unmatched %v; want %d, 0", checks, unmatched, len(want))
	}
	for i, c := range checks {
		got := row{failed: c.Failed, values: c.Values, probability: c.Probability}
		if c.Header != nil {
			got.header = c.Header.Name
		}
		if fmt.Sprint(got) != fmt.Sprint(want[i]) || c.Route != i {
			t.Errorf("route %d: %+v, want %+v", i, got, want[i])
		}
	}
	if _, unmatched := w.withoutLastRoutes(t, 2).ExplainRoutes(bg, "/s/m"); unmatched != .75 {
		t.Errorf("without routes for all: unmatched with probability %v, want 0.75", unmatched)
	}
}

// withoutLastRoutes rebuilds the world without its last n routes.
func (w *world) withoutLastRoutes(t *testing.T, n int) *Snapshot {
	w.cfg.Routes = slices.Clone(w.cfg.Routes[:len(w.cfg.Routes)-n])
	return w.build(t)
}

// TestExplainTargets: a cluster that a route names twice has the sum of the shares.
func TestExplainTargets(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(1, 1)))
	w.add(Leaf{})
	w.cfg.Routes = []Route{
		{Clusters: []WeightedCluster{{Name: "c1", Weight: 1}, {Name: "c0", Weight: 4}, {Name: "c1", Weight: 3}}},
		{Clusters: []WeightedCluster{{Name: "c1", Weight: 9}}},
		{},
	}
	s := w.build(t)
	for route, want := range [][]ClusterShare{{{1, .5}, {0, .5}}, {{1, 1}}, nil, nil} {
		if got := s.ExplainTargets(route); !slices.EqualFunc(got, want, func(a, b ClusterShare) bool {
			return a.Cluster == b.Cluster && math.Abs(a.Share-b.Share) < 1e-12
		}) {
			t.Errorf("route %d leads to %v, want %v", route, got, want)
		}
	}
}

// TestExplainHash: the endpoint that a hash belongs to comes first, and the first of the
// order that has not failed is picked, or waited for.
func TestExplainHash(t *testing.T) {
	for _, kind := range []PolicyKind{PolicyRingHash, PolicyMaglev} {
		w := newWorld(zone("a", 1, endpoints(1, 1, 1, 1, 1)))
		w.leaf(0).Policy = Policy{Kind: kind, Ring: &RingPolicy{MinSize: 61, MaxSize: 61}}
		w.cfg.Routes[0].Hash = []HashPolicy{{Header: "k"}, {Header: ""}, {Header: "absent"}}
		w.env.Header, w.env.ChannelID = headersOf, 7
		ctx := context.WithValue(bg, headersKey{}, fakeHeaders{"k": {"v"}})
		x := w.build(t).ExplainCluster(ctx, 0, 0)
		if got := fmt.Sprint(x.Hash.Known, x.Hash.Sources); got != "true [header k channel id]" {
			t.Errorf("policy %d: hash %s", kind, got)
		}
		order := x.Hash.Places[0].Order
		if x.Endpoints[order[0]].Share != 1 {
			t.Errorf("policy %d: the hash belongs to %v, and shares are %v", kind, order, x.Endpoints)
		}
		for i, state := range []Connectivity{TransientFailure, Connecting} {
			w.flat(0)[order[i]].Connectivity = state
			w.states[0].Version++
		}
		x = w.build(t).ExplainCluster(ctx, 0, 0)
		if !slices.Equal(x.Hash.Places[0].Order, order) || x.Endpoints[order[1]].Waits != 1 || x.Picked != 0 {
			t.Errorf("policy %d: with the first failed, order %v and %+v; want %v and to wait for the second", kind, x.Hash.Places[0].Order, x.Endpoints, order)
		}
	}
}

// TestExplainCountsNothing: an explanation leaves all counters and sequences as they are.
func TestExplainCountsNothing(t *testing.T) {
	for seed := range uint64(100) {
		x := randomExplained(t, newRand(seed))
		before := x.counts()
		x.expected()
		if after := x.counts(); after != before {
			t.Errorf("seed %d: explaining changed\n%s\nto\n%s", seed, before, after)
		}
	}
}

// counts returns all that picks write.
func (x *explained) counts() (text string) {
	for i := range x.snapshot.clusters.Len() {
		c := x.snapshot.clusters.At(i)
		text += fmt.Sprintln(x.breakers[i].InFlight(), x.loads[i].Overload().Load())
		for _, n := range c.counts {
			text += fmt.Sprintln("dropped", n.Load())
		}
		if c.cursor != nil {
			text += fmt.Sprintln("issued", c.cursor.issued.Load())
		}
		for _, l := range x.states[i].Localities {
			text += fmt.Sprintln(l.Load.Snapshot())
		}
		for _, e := range x.flat(i) {
			text += fmt.Sprintln(e.InFlight(), e.connectRequested.Load())
		}
	}
	return text
}
