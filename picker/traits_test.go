// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// parameters are valid parameters for policies of every kind.
func parameters(kind PolicyKind) Policy {
	p := prequal()
	for _, q := range []Policy{
		{Kind: PolicyRingHash, Ring: &RingPolicy{MinSize: 1000, MaxSize: 2000}},
		{Kind: PolicyMaglev, Ring: &RingPolicy{MinSize: 1009}},
		{Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 2}},
		{Kind: PolicyClientWRR, WRR: &ClientWRR{}},
		{Kind: PolicyPickFirst, First: &PickFirst{}},
		{Kind: PolicyCustom, Custom: &CustomPolicy{Name: "x"}},
		{Kind: PolicyLeastLatency, Latency: &LeastLatency{Decay: time.Second}},
		{Kind: PolicyPrequal, Prequal: p.Prequal},
	} {
		if q.Kind == kind {
			q.Flat = true
			return q
		}
	}
	return Policy{Kind: kind, Flat: true}
}

// everyKind runs a test for each kind of policy.
func everyKind(t *testing.T, test func(t *testing.T, kind PolicyKind, traits *PolicyTraits)) {
	for kind := range PolicyKind(len(kinds)) {
		t.Run(kind.Traits().Name, func(t *testing.T) { test(t, kind, kind.Traits()) })
	}
}

// A pair is a world of two endpoints, both of them READY for an hour.
type pair struct {
	*world
	t    *testing.T
	hash uint64 // of RPCs; 0 means none
}

const pairAge = time.Hour

// newPair returns two endpoints with a policy: in a zone each, if zones is set.
func newPair(t *testing.T, policy Policy, weights [2]uint32, zones bool) *pair {
	w := newWorld(zone("a", 1, endpoints(0, weights[0], weights[1])))
	if zones {
		w = newWorld(zone("a", 1, endpoints(0, weights[0])), zone("b", 1, endpoints(1, weights[1])))
	}
	p := &pair{world: w, t: t}
	w.env.Now = int64(pairAge)
	w.env.RequestHash = func(context.Context) (uint64, bool) { return p.hash, p.hash != 0 }
	w.leaf(0).Policy, w.leaf(0).MaxRequests = policy, math.MaxUint32
	w.ready()
	return p
}

// picks returns how RPCs fare that end at once, each with a random word of its own: the fraction that each
// endpoint gets, and the outcome of the first one.
func (p *pair) picks() (shares [2]float64, first Outcome) {
	p.t.Helper()
	const rpcs = 4000
	p.states[0].Version++
	s, rng := p.build(p.t), newRand(1)
	if err := s.ClusterErr(0); err != nil {
		p.t.Fatal(err)
	}
	for i := range rpcs {
		got := s.Pick(bg, "/s/m", rng.Uint64())
		if i == 0 {
			first = got.Outcome
		}
		switch got.Outcome {
		case Picked:
			p.finish(p.flat(0)[got.Index])
			shares[got.Index] += 1. / rpcs
		case Delegate:
			s.Cancel(got)
		}
	}
	return shares, first
}

func (p *pair) finish(e *EndpointState) {
	if e.TimesRPCs() {
		e.FinishTimed(CallOK)
	} else {
		e.Finish(CallOK)
	}
}

func about(got, want float64) bool { return math.Abs(got-want) < .07 }

// TestTraits compares the traits of each policy with its behavior with two endpoints. Custom policies do
// nothing here: the caller's balancer picks.
func TestTraits(t *testing.T) {
	everyKind(t, func(t *testing.T, kind PolicyKind, traits *PolicyTraits) {
		policy := parameters(kind)
		kit.Must(t, policy.Check())
		shares, outcome := newPair(t, policy, [2]uint32{1, 3}, false).picks()
		if got := outcome == Delegate; got != traits.Delegates {
			t.Errorf("its RPCs are delegated: %t, want %t", got, traits.Delegates)
		}
		one := slices.Contains(shares[:], 0.) // with different words
		if got := outcome == Delegate || one; got != traits.Connects {
			t.Errorf("the caller's balancer selects an endpoint: %t, want %t", got, traits.Connects)
		}
		testWeightTraits(t, policy, shares)
		testLoadTraits(t, policy)

		idle := newPair(t, policy, [2]uint32{1, 1}, false)
		for _, e := range idle.flat(0) {
			e.Connectivity = Idle
		}
		if _, outcome := idle.picks(); (outcome == QueueConnect) != traits.OnDemand {
			t.Errorf("outcome %v of RPCs while all endpoints are IDLE, want endpoints to be connected: %t", outcome, traits.OnDemand)
		}

		hashed := newPair(t, policy, [2]uint32{1, 1}, false)
		var ends [2]int // hashes that belong to an endpoint alone
		for hashed.hash = range uint64(50) {
			hashed.hash = hashed.hash<<58 + 1
			for i, s := range first(hashed.picks()) {
				if s > 1-1e-9 {
					ends[i]++
				}
			}
		}
		if got := ends[0] > 0 && ends[1] > 0 && ends[0]+ends[1] == 50; got != policy.Hashes() {
			t.Errorf("%v of 50 hashes belong to one endpoint, want it to hash: %t", ends, policy.Hashes())
		}

		if got := len(hashed.snapshot.ProbeGroups(0)) > 0; got != traits.Probes {
			t.Errorf("its endpoints are probed: %t, want %t", got, traits.Probes)
		}

		slow := policy
		slow.SlowStart = &SlowStart{Window: pairAge, Aggression: 1, MinWeightPercent: 10}
		if got := slow.Check() == nil; got != traits.SlowStart {
			t.Errorf("slow start is accepted: %t, want %t", got, traits.SlowStart)
		} else if got {
			p := newPair(t, slow, [2]uint32{1, 1}, false)
			p.flat(0)[1].StateSince, p.flat(0)[1].Cold = int64(pairAge), true
			if s := first(p.picks()); !about(s[1], 1./11) {
				t.Errorf("a new endpoint has %.3f of the RPCs at the beginning of slow start, want 1/11 or less", s[1])
			}
		}

		zoned := policy
		zoned.ZoneAware = &ZoneAware{Enabled: 1}
		if got := zoned.Check() == nil; got != traits.Zones {
			t.Errorf("zone-aware routing is accepted: %t, want %t", got, traits.Zones)
		} else if got {
			p := newPair(t, zoned, [2]uint32{1, 1}, true)
			p.leaf(0).Origin = &Origin{Locality: LocalityID{Region: "r", Zone: "b"}, Fleet: []ZoneSize{
				{ID: LocalityID{Region: "r", Zone: "a"}, Endpoints: 1}, {ID: LocalityID{Region: "r", Zone: "b"}, Endpoints: 1}}}
			if s := first(p.picks()); !about(s[1], 1) {
				t.Errorf("%.3f of the RPCs stay in their zone, want all", s[1])
			}
		}
	})
}

func first[A, B any](a A, _ B) A { return a }

// testWeightTraits compares the weights that a policy uses. shares are the shares of endpoints with the
// weights 1 and 3.
func testWeightTraits(t *testing.T, policy Policy, shares [2]float64) {
	traits := policy.Kind.Traits()
	byWeight := about(shares[1], .75)
	if want := map[weightUse]bool{weightsScheduled: true, weightsDrawn: true, weightsPlaced: true}[traits.weights]; byWeight != want {
		t.Errorf("endpoints of weight 1 and 3 get %.3f: their weights are used: %t, want %t", shares, byWeight, want)
	}
	if equal := about(shares[1], .5); equal != (policy.EqualWeights() || traits.Reports) {
		t.Errorf("endpoints of weight 1 and 3 get %.3f: equal shares, want %t", shares, policy.EqualWeights())
	}
	without, ok := policy.Unweighted()
	if want := byWeight && traits.weights != weightsPlaced; ok != want {
		t.Errorf("it has a form without weights: %t, want %t", ok, want)
	}
	if ok {
		if s := first(newPair(t, without, [2]uint32{1, 3}, false).picks()); !about(s[1], .5) || !without.EqualWeights() {
			t.Errorf("endpoints get %.3f if weights are ignored", s)
		}
		if _, again := without.Unweighted(); again {
			t.Error("its form without weights has a form without weights")
		}
	}
	p := newPair(t, policy, [2]uint32{1, 1}, false)
	for i, e := range p.flat(0) {
		e.SetWeight(float64(1 + 2*i))
	}
	if s := first(p.picks()); about(s[1], .75) != traits.Reports {
		t.Errorf("endpoints that report weights 1 and 3 get %.3f, want reports to be used: %t", s, traits.Reports)
	}
}

// testLoadTraits compares the loads that endpoints are compared by.
func testLoadTraits(t *testing.T, policy Policy) {
	for _, policy := range []Policy{policy, bounded(policy)} {
		p := newPair(t, policy, [2]uint32{1, 1}, false)
		for range 1000 { // in flight
			p.flat(0)[0].Begin()
		}
		counts := policy.CountsInFlight() || policy.TimesRPCs() // timings count them too
		if s := first(p.picks()); (s[1] > .7) != counts && !policy.Kind.Traits().Connects {
			t.Errorf("endpoints get %.3f with 1000 RPCs in flight to the first, want them to be counted: %t", s, counts)
		}
	}
	p := newPair(t, policy, [2]uint32{1, 1}, false)
	list := p.flat(0)
	if timed := list[0].TimesRPCs(); timed != policy.TimesRPCs() {
		t.Fatalf("RPCs are timed: %t, want %t", timed, policy.TimesRPCs())
	}
	for range 100 {
		for i, e := range list {
			p.breakers[0].Acquire(math.MaxUint32)
			e.Begin()
			p.time += []time.Duration{100 * time.Millisecond, time.Millisecond}[i]
			p.finish(e)
		}
	}
	if s := first(p.picks()); (s[1] > .7) != policy.TimesRPCs() && !policy.Kind.Traits().Connects {
		t.Errorf("endpoints get %.3f, the first with 100 times the latency, want latencies to be compared: %t", s, policy.TimesRPCs())
	}
}

// bounded returns the policy with bounded loads, if it has them.
func bounded(p Policy) Policy {
	if p.Ring != nil {
		ring := *p.Ring
		ring.BalanceFactor = 100
		p.Ring = &ring
	}
	return p
}

// Names tell policies apart.
func TestTraitNames(t *testing.T) {
	seen := map[string]PolicyKind{}
	everyKind(t, func(t *testing.T, kind PolicyKind, traits *PolicyTraits) {
		p := parameters(kind)
		if traits.Name == "" || p.Text() == "" {
			t.Errorf("policy %+v has no name or text", traits)
		}
		for space, name := range map[string]string{"name ": traits.Name, "message ": traits.Message, "typed struct ": traits.TypedStruct, "service config ": traits.ServiceConfig} {
			if other, ok := seen[space+name]; ok && name != "" {
				t.Errorf("%s%q is that of policy %d too", space, name, other)
			}
			seen[space+name] = kind
		}
	})
	if got := PolicyKind(200).Traits(); got.Name != "unknown" || got.hashes || got.times {
		t.Errorf("an unknown kind has the traits %+v", got)
	}
}

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
			s := w.rebuild(t)
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

// A policy whose parameters, weights or endpoints do not fit is an error of its cluster, which says what is wrong
// (T-ZONE-5).
func TestPolicyErrors(t *testing.T) {
	least := Policy{Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 2}}
	to := func(p Policy) func(*world) {
		return func(w *world) { w.leaf(0).Policy = p }
	}
	start := func(window time.Duration, aggression, percent float64) Policy {
		return Policy{SlowStart: &SlowStart{window, aggression, percent}}
	}
	for _, test := range []struct {
		policy Policy
		change func(*world) // before the build
		want   string
	}{
		{least, func(w *world) { w.reweigh(0, 0); w.reweigh(1, 0) }, "none of 2 weights is above 0"},
		{Policy{Kind: PolicyLeastRequest}, nil, "policy least_request has no parameters"},
		{Policy{Kind: PolicyLeastLatency}, nil, "policy least_latency has no parameters"},
		{Policy{Kind: PolicyLeastLatency, Latency: &LeastLatency{}}, nil, "decay of 0s is not above 0"},
		{latencyPolicy, func(w *world) {
			w.flat(0)[1].Bind(NewTimedBinding(w.states[0].Localities[0].Load, w.breakers[0], NewExactClock(func() int64 { return 1 })))
		}, "different clocks"},

		// The end of an RPC must mean the same as its beginning.
		{least, to(Policy{}), "counts RPCs in flight: true, want false for its policy"},
		{Policy{}, to(least), "counts RPCs in flight: false, want true for its policy"},
		{latencyPolicy, to(Policy{}), "times RPCs: true, want false for its policy"},
		{Policy{}, to(latencyPolicy), "times RPCs: false, want true for its policy"},

		{start(0, 1, 10), nil, "window 0s is not positive"},
		{start(1, 0, 10), nil, "aggression 0 is not positive"},
		{start(1, math.NaN(), 10), nil, "aggression NaN is not positive"},
		{start(1, 1, -1), nil, "minimum weight -1 % is not within"},
		{start(1, 1, math.NaN()), nil, "minimum weight NaN % is not within"},

		{Policy{Kind: PolicyRingHash, Ring: &RingPolicy{MinSize: 9000, MaxSize: 8000}}, nil, "minimum size 9000 exceeds maximum size 8000"},
		{Policy{Kind: PolicyRingHash, Ring: &RingPolicy{MaxSize: 8000}}, nil, "minimum ring size is 0"},
		{Policy{Kind: PolicyRingHash}, nil, "policy ring_hash has no parameters"},
		{Policy{Kind: PolicyMaglev}, nil, "policy maglev has no parameters"},
		{Policy{Kind: PolicyMaglev, Ring: &RingPolicy{MinSize: 100}}, nil, "size 100 is not prime"},
		{Policy{Kind: PolicyRingHash, Ring: &RingPolicy{MinSize: 1, MaxSize: 1, RequestHeader: "x-bin"}}, nil, `request header "x-bin" is binary`},

		{Policy{Kind: PolicyRingHash, Ring: &RingPolicy{MinSize: 1, MaxSize: 2}, ZoneAware: &ZoneAware{}}, nil, "zone"},
		{Policy{Kind: PolicyCustom, Custom: &CustomPolicy{}, ZoneAware: &ZoneAware{}}, nil, "zone"},
		{Policy{ZoneAware: &ZoneAware{Enabled: 1.1}}, nil, "1.1"},
		{Policy{ZoneAware: &ZoneAware{Enabled: -1}}, nil, "-1"},
		{Policy{ZoneAware: &ZoneAware{Enabled: math.NaN()}}, nil, "NaN"},
	} {
		w := newWorld(zone("a", 1, endpoints(0, 1, 1)))
		w.leaf(0).Policy = test.policy
		w.ready()
		if test.change != nil {
			test.change(w)
		}
		if err := w.build(t).ClusterErr(0); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("policy %+v: error %v, want one with %q", test.policy, err, test.want)
		}
	}
}

// Picks and the ends of RPCs do not allocate, with zone-aware routing or without.
func TestPolicyAllocs(t *testing.T) {
	for _, policy := range append(policies, Policy{Kind: PolicyRandom}) {
		for _, zones := range []bool{false, true} {
			w := zonedWorld(policy, ZoneAware{Enabled: 1}, zone("a", 1, endpoints(0, 1, 2)), zone("b", 1, endpoints(10, 1, 3)))
			if w.leaf(0).Policy.SlowStart = nil; !zones {
				w.leaf(0).Policy.ZoneAware = nil
			} else if !policy.Kind.Traits().Zones {
				continue
			}
			s, list, rng := w.build(t), w.flat(0), newRand(1)
			kit.Must(t, s.ClusterErr(0))
			if n := testing.AllocsPerRun(1000, func() {
				w.time += 100 * time.Microsecond
				if got := s.Pick(bg, "/s/m", rng.Uint64()); got.Outcome == Picked {
					list[got.Index].FinishTimed(CallOK)
				}
			}); n != 0 {
				t.Errorf("policy %s, zone-aware %t: a pick and its end allocate %v times", policy.Kind.Traits().Name, zones, n)
			}
		}
	}
}
