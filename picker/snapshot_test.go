// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
)

// picks returns the endpoint indexes of n picks as letters.
func picks(t *testing.T, s *Snapshot, n int) string {
	t.Helper()
	var b strings.Builder
	for range n {
		result := s.Pick(bg, "/s/m", 0)
		if result.Outcome != Picked {
			t.Fatalf("outcome %d", result.Outcome)
		}
		b.WriteByte('a' + byte(result.Index))
	}
	return b.String()
}

// EDF-8, EDF-9, EDF-13, EDF-16: the order of the specification, which other
// clients share.
func TestPickGolden(t *testing.T) {
	for _, test := range []struct {
		weights []uint32
		kind    PolicyKind
		want    string
	}{
		{[]uint32{1, 1, 1}, PolicyEDF, "abcabcabc"},
		{[]uint32{7, 7}, PolicyEDF, "abab"},
		{[]uint32{2, 1}, PolicyEDF, "aabaab"},
		{[]uint32{1, 2, 4}, PolicyEDF, "cbccabccbccabc"},
		{[]uint32{1, 2, 4}, PolicyRoundRobin, "abcabc"},
		{[]uint32{3}, PolicyEDF, "aaa"},
	} {
		w := newWorld(zone("a", 1, endpoints(0, test.weights...)))
		w.leaf(0).Policy.Kind = test.kind
		if got := picks(t, w.build(t), len(test.want)); got != test.want {
			t.Errorf("weights %v, policy %d: picks %s, want %s", test.weights, test.kind, got, test.want)
		}
	}
}

// T-LOC-1, T-DROP-4: without a READY endpoint an RPC waits or fails, and is
// neither dropped nor counted.
func TestPickNone(t *testing.T) {
	for _, test := range []struct {
		states  []Connectivity
		drained int
		want    Outcome
	}{
		{[]Connectivity{Idle, TransientFailure}, -1, Queue},
		{[]Connectivity{TransientFailure, Connecting}, -1, Queue},
		{[]Connectivity{TransientFailure, TransientFailure}, -1, Failed},
		{[]Connectivity{TransientFailure, Ready}, 1, Failed},
		{[]Connectivity{TransientFailure, Connecting}, 1, Failed},
		{nil, -1, Failed},
	} {
		w := newWorld(zone("a", 1, endpoints(0, make([]uint32, len(test.states))...)))
		w.leaf(0).Drops = []Drop{{"all", 1e6}}
		w.leaf(0).MaxRequests = 0
		for i, state := range test.states {
			w.reweigh(i, 1)
			w.states[0].Localities[0].Endpoints.(StateSlice)[i].Connectivity = state
			if i == test.drained {
				edit(&w.leaf(0).Priorities[0].Localities[0], i, func(e *Endpoint) { e.Health = Draining })
			}
		}
		w.renew(0)
		result := w.build(t).Pick(bg, "/s/m", 0)
		if want := (Result{Outcome: test.want}); result != want {
			t.Errorf("%v: %+v, want %+v", test.states, result, want)
		}
		if n, m := w.loads[0].Drop("all").Load(), w.loads[0].Overload().Load(); n != 0 || m != 0 {
			t.Errorf("%v: %d drops and %d refusals were counted", test.states, n, m)
		}
	}
}

func TestPickUnusableCluster(t *testing.T) {
	for _, test := range []struct {
		leaf   int
		failed bool
		err    error
		want   Outcome
	}{{-1, false, nil, Queue}, {-1, true, nil, Failed}, {-1, false, fmt.Errorf("x"), Failed}, {0, false, fmt.Errorf("x"), Failed}} {
		w := newWorld(zone("a", 1, endpoints(0, 1)))
		w.cfg.Clusters[0].Err = test.err
		w.states[0].Leaf, w.states[0].Failed = test.leaf, test.failed
		if got := w.build(t).Pick(bg, "/s/m", 0).Outcome; got != test.want {
			t.Errorf("%+v: outcome %d", test, got)
		}
	}
}

// Routes decide on the cluster: A28, A36.
func TestPickRoutes(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)))
	w.add(Leaf{MaxRequests: 1e9, Priorities: []Priority{{Localities: []Locality{zone("a", 1, endpoints(0, 1, 1))}}}})
	w.leaf(0).MaxRequests = 1e9
	w.cfg.Routes = []Route{
		{Path: StringMatch{Value: "/stop/"}},
		{Path: StringMatch{Value: "/split/"}, Clusters: []WeightedCluster{{Name: "c0", Weight: 1}, {Name: "c1", Weight: 3}}},
		{Path: StringMatch{Value: "/one/"}, Clusters: []WeightedCluster{{Name: "c1", Weight: 1}}},
		{Path: StringMatch{Value: "/head/"}, Headers: []HeaderMatch{{Name: "x", String: StringMatch{Value: "1"}}}, Clusters: []WeightedCluster{{Name: "c0", Weight: 1}}},
	}
	key := new(int)
	w.env.Header = func(ctx context.Context, name string) []string {
		v, _ := ctx.Value(key).(string)
		return []string{name + v}
	}
	w.cfg.Routes[3].Headers[0].String.Value = "x1"
	s := w.build(t)
	for _, test := range []struct {
		ctx    context.Context
		method string
		want   Result
	}{
		{bg, "/stop/m", Result{NotForwarding, 0, -1, 0}},
		{bg, "/other/m", Result{NoRoute, -1, -1, 0}},
		{bg, "/one/m", Result{Picked, 2, 1, 0}},
		{bg, "/one/m", Result{Picked, 2, 1, 1}},
		{bg, "/head/m", Result{NoRoute, -1, -1, 0}},
		{context.WithValue(bg, key, "1"), "/head/m", Result{Picked, 3, 0, 0}},
	} {
		if got := s.Pick(test.ctx, test.method, 0); got != test.want {
			t.Errorf("Pick(%q) = %+v, want %+v", test.method, got, test.want)
		}
	}
	if got, want := s.PickCluster(bg, -1, 1, 0), (Result{Picked, -1, 1, 0}); got != want {
		t.Errorf("PickCluster(1) = %+v, want %+v", got, want)
	}
	for _, cluster := range []int32{-1, 2, math.MaxInt32} {
		if got, want := s.PickCluster(bg, -1, cluster, 0), (Result{NoRoute, -1, -1, 0}); got != want {
			t.Errorf("PickCluster(%d) = %+v, want %+v", cluster, got, want)
		}
	}
}

func TestNeedsRandom(t *testing.T) {
	half := uint32(500000)
	for _, test := range []struct {
		name   string
		change func(*world)
		want   bool
	}{
		{"one cluster, one locality", func(*world) {}, false},
		{"two localities", func(w *world) {
			w.leaf(0).Priorities[0].Localities = append(w.leaf(0).Priorities[0].Localities, zone("b", 1, endpoints(1, 1)))
			w.renew(0)
			w.flat(0)[1].Connectivity = Ready
		}, true},
		{"all dropped", func(w *world) { w.leaf(0).Drops = []Drop{{"x", 1e6}}; w.renew(0) }, false},
		{"half dropped", func(w *world) { w.leaf(0).Drops = []Drop{{"x", half}}; w.renew(0) }, true},
		{"all dropped, by either of two", func(w *world) { w.leaf(0).Drops = []Drop{{"x", half}, {"y", 1e6}}; w.renew(0) }, true},
		{"all dropped, by the second", func(w *world) { w.leaf(0).Drops = []Drop{{"x", 0}, {"y", 1e6}, {"z", half}}; w.renew(0) }, false},
		{"flat", func(w *world) {
			w.leaf(0).Policy.Flat = true
			w.leaf(0).Priorities[0].Localities = append(w.leaf(0).Priorities[0].Localities, zone("b", 1, endpoints(1, 1)))
			w.ready()
		}, false},
		{"least request", func(w *world) {
			w.leaf(0).Policy = Policy{Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 2}}
			w.ready()
		}, true},
		{"least latency", func(w *world) { w.leaf(0).Policy = latencyPolicy; w.ready() }, true},
		{"random", func(w *world) { w.leaf(0).Policy.Kind = PolicyRandom }, true},
		{"fraction", func(w *world) { w.cfg.Routes[0].Fraction = &half }, true},
		{"split", func(w *world) {
			w.cfg.Routes[0].Clusters = []WeightedCluster{{Name: "c0", Weight: 1}, {Name: "c0", Weight: 1}}
		}, true},
	} {
		w := newWorld(zone("a", 1, endpoints(0, 1)))
		test.change(w)
		if got := w.build(t).NeedsRandom(); got != test.want {
			t.Errorf("%s: NeedsRandom() = %t", test.name, got)
		}
	}
}

func TestPickAllocs(t *testing.T) {
	w := benchWorld(3, 30, 2, false)
	w.cfg.Routes = []Route{
		{Path: StringMatch{Kind: MatchExact, Value: "/S/M", IgnoreCase: true}, Clusters: w.cfg.Routes[0].Clusters},
		{Path: StringMatch{Kind: MatchExact, Value: "/s/m"}, Clusters: w.cfg.Routes[0].Clusters},
		{Path: StringMatch{}, Clusters: []WeightedCluster{{Name: "c0", Weight: 1}, {Name: "c0", Weight: 2}}},
	}
	s, r, states := w.build(t), uint64(0), w.flat(0)
	for _, method := range []string{"/s/m", "/S/m", "/other"} {
		if n := testing.AllocsPerRun(1000, func() {
			r += 0x9e3779b97f4a7c15
			if result := s.Pick(bg, method, r); result.Outcome == Picked {
				states[result.Index].Finish(CallOK)
			}
		}); n != 0 {
			t.Errorf("Pick(%q) and Finish allocate %v times", method, n)
		}
	}
	w.leaf(0).MaxRequests = 0
	w.renew(0)
	s = w.build(t)
	if n := testing.AllocsPerRun(1000, func() { s.Pick(bg, "/s/m", 1) }); n != 0 {
		t.Errorf("a refused Pick allocates %v times", n)
	}
}

// A55, T-DROP-2, T-CB-1: an RPC whose endpoint is known is dropped and refused as
// by a pick, and counts as one.
func TestPickEndpoint(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1, 1)))
	w.leaf(0).Drops = []Drop{{"none", 0}, {"half", 500000}}
	w.leaf(0).MaxRequests = 2
	w.renew(0)
	s := w.build(t)
	rng := newRand(2)
	for range 10000 {
		r := rng.Uint64()
		got := s.PickEndpoint(2, 0, 1, w.flat(0)[1], r)
		if got.Route != 2 || got.Cluster != 0 || got.Outcome == Picked && got.Index != 1 {
			t.Fatalf("PickEndpoint = %+v, want route 2, cluster 0, and index 1 if it is picked", got)
		}
		// A pick with the same word has the same outcome, apart from its counts.
		if want := s.PickCluster(bg, -1, 0, r); want.Outcome != got.Outcome && (got.Outcome != Picked || want.Outcome != Overloaded) {
			t.Fatalf("PickEndpoint = %+v, and a pick %+v", got, want)
		} else if want.Outcome == Dropped && want.Index != got.Index {
			t.Fatalf("PickEndpoint drops by category %d, and a pick by %d", got.Index, want.Index)
		} else if want.Outcome == Picked {
			w.flat(0)[want.Index].Finish(CallNotSent)
		}
	}
	if n := w.breakers[0].InFlight(); n != 2 {
		t.Errorf("%d RPCs are in flight, want the breaker's 2", n)
	}
	w.flat(0)[1].Finish(CallOK)
	w.flat(0)[1].Finish(CallOK)
	if got := w.states[0].Localities[0].Load.Snapshot(); got.OK != 2 || got.InProgress != 0 {
		t.Errorf("at rest: %+v", got)
	}
	if got := s.PickEndpoint(0, 7, 0, w.flat(0)[0], 0); got.Outcome != NoRoute {
		t.Errorf("a cluster that is not there: %+v", got)
	}
	w.flat(0)[0].Connectivity, w.flat(0)[1].Connectivity = TransientFailure, TransientFailure
	w.states[0].Version++
	w.states[0].Failed = true
	const admitted = ^uint64(0) // is dropped by no category
	if got := w.build(t).PickEndpoint(0, 0, 0, w.flat(0)[0], admitted); got.Outcome != Picked {
		t.Errorf("a cluster whose endpoints have failed, but for the caller's: %+v", got)
	}
	w.flat(0)[0].Finish(CallNotSent)
	w.states[0].Version++
	w.states[0].Leaf = -1
	if got := w.build(t).PickEndpoint(0, 0, 0, w.flat(0)[0], admitted); got.Outcome != Failed {
		t.Errorf("a cluster without a priority in use: %+v", got)
	}
}

// D10, T-CB-1: a delegated RPC has been through drops and breaker, and is given back
// without a trace or counted where it went.
func TestCustom(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)), zone("b", 1, endpoints(1, 1, 1)))
	w.leaf(0).Policy = Policy{Kind: PolicyCustom, Flat: true, Custom: &CustomPolicy{Name: "x"}}
	w.leaf(0).MaxRequests = 2
	w.renew(0)
	s, list := w.build(t), w.flat(0)
	for range 2 {
		if got := s.Pick(bg, "/s/m", 0); got != (Result{Outcome: Delegate}) {
			t.Fatalf("%+v, want Delegate to layer 0", got)
		}
	}
	refused := s.Pick(bg, "/s/m", 0)
	if refused.Outcome != Overloaded {
		t.Errorf("%+v above the limit", refused)
	}
	s.Cancel(refused)                   // means nothing
	s.Cancel(Result{Outcome: Delegate}) // the first
	list[2].Begin()                     // the second
	if got := w.breakers[0].InFlight(); got != 1 {
		t.Errorf("%d RPCs are in flight, want 1", got)
	}
	list[2].Finish(CallOK)
	if got, want := list[2].binding.load.Snapshot(), (LoadSnapshot{Issued: 1, OK: 1}); got != want || w.breakers[0].InFlight() != 0 {
		t.Errorf("counted %+v with %d in flight, want %+v", got, w.breakers[0].InFlight(), want)
	}
	if got := list[0].binding.load.Snapshot(); got != (LoadSnapshot{}) {
		t.Errorf("the other locality counted %+v", got)
	}

	w.leaf(0).Drops = []Drop{{"all", 1e6}}
	w.renew(0)
	if got := w.build(t).Pick(bg, "/s/m", 0).Outcome; got != Dropped {
		t.Errorf("outcome %d, want Dropped", got)
	}
}

// Inside wrr_locality a locality is drawn first: from localities with a READY endpoint, or
// otherwise from the ones that an RPC may connect.
func TestCustomLocalities(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)), zone("b", 3, endpoints(1, 1, 1)), zone("c", 4, endpoints(3, 1)))
	w.leaf(0).Policy = Policy{Kind: PolicyCustom, Custom: &CustomPolicy{}}
	w.leaf(0).MaxRequests = math.MaxUint32
	rng := newRand(1)
	for _, test := range []struct {
		states []Connectivity
		want   map[Result]float64
	}{
		{[]Connectivity{Ready, Idle, Ready, Ready}, map[Result]float64{{Outcome: Delegate, Index: 0}: .125, {Outcome: Delegate, Index: 1}: .375, {Outcome: Delegate, Index: 2}: .5}},
		{[]Connectivity{Idle, Connecting, Ready, Idle}, map[Result]float64{{Outcome: Delegate, Index: 1}: 1}},
		{[]Connectivity{Idle, Connecting, Idle, Connecting}, map[Result]float64{{Outcome: Delegate, Index: 0}: .25, {Outcome: Delegate, Index: 1}: .75}},
		{[]Connectivity{TransientFailure, Connecting, TransientFailure, Connecting}, map[Result]float64{{Outcome: Queue}: 1}},
		{[]Connectivity{TransientFailure, TransientFailure, TransientFailure, TransientFailure}, map[Result]float64{{Outcome: Failed}: 1}},
	} {
		for i, e := range w.flat(0) {
			e.Connectivity = test.states[i]
		}
		s, counts := w.rebuild(t), make(map[Result]float64)
		for range 10000 {
			result := s.Pick(bg, "/s/m", rng.Uint64())
			counts[result] += .0001
			s.Cancel(result)
		}
		for result, share := range counts {
			if math.Abs(share-test.want[result]) > .03 {
				t.Errorf("%v: a share of %.2f is %+v, want %.2f", test.states, share, result, test.want[result])
			}
		}
		if got := w.breakers[0].InFlight(); got != 0 {
			t.Errorf("%d RPCs are in flight though all were given back", got)
		}
	}
}
