// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

func TestZoneShares(t *testing.T) {
	third := 1. / 3
	for _, test := range []struct {
		name            string
		own             int
		fleet, upstream []float64
		want            []float64
	}{
		{"Envoy's residual capacities", 0, []float64{.4, .4, .2}, []float64{.25, .5, .25}, []float64{.625, .25, .125}},
		{"half of it", 0, []float64{.2, .8}, []float64{.1, .9}, []float64{.5, .5}},
		{"50/30/20 from the first", 0, []float64{.5, .3, .2}, []float64{third, third, third}, []float64{2 * third, third / 5, third * 4 / 5}},
		{"50/30/20 from the second", 1, []float64{.5, .3, .2}, []float64{third, third, third}, []float64{0, 1, 0}},
		{"equal", 0, []float64{third, third, third}, []float64{third, third, third}, []float64{1, 0, 0}},
		{"own zone has none", 0, []float64{.5, .3, .2}, []float64{0, .5, .5}, []float64{0, .4, .6}},
		{"own zone is not there", -1, []float64{.3, .2}, []float64{.5, .5}, []float64{.4, .6}},
		{"all in one zone", 0, []float64{1, 0, 0}, []float64{.2, .3, .5}, []float64{.2, .3, .5}},
	} {
		got := zoneShares(test.own, test.fleet, test.upstream)
		for i := range got {
			if math.Abs(got[i]-test.want[i]) > 1e-12 {
				t.Errorf("%s: %v, want %v", test.name, got, test.want)
				break
			}
		}
	}
}

// slowZoneShares is zoneShares in exact fractions of whole clients and endpoints: the excess of
// the own zone goes to the capacity that other zones' clients leave.
func slowZoneShares(own int, clients, endpoints []int64) []*big.Rat {
	var n, m int64
	for i := range clients {
		n, m = n+clients[i], m+endpoints[i]
	}
	// A client brings m RPCs and an endpoint takes n: everything fits exactly.
	shares, free, left := make([]*big.Rat, len(clients)), make([]int64, len(clients)), int64(0)
	for i := range clients {
		shares[i], free[i] = new(big.Rat), max(endpoints[i]*n-clients[i]*m, 0)
		left += free[i]
	}
	stay := min(clients[own]*m, endpoints[own]*n)
	shares[own].SetFrac64(stay, clients[own]*m)
	if away := clients[own]*m - stay; away > 0 {
		for i := range free {
			to := new(big.Rat).Mul(big.NewRat(away, clients[own]*m), big.NewRat(free[i], left))
			shares[i].Add(shares[i], to)
		}
	}
	return shares
}

// A fleet whose clients use zoneShares loads all endpoints equally, and the number of RPCs that
// leave their zone is minimal.
func TestZoneSharesBalance(t *testing.T) {
	for seed := range uint64(2000) {
		rng := newRand(seed)
		n := 2 + rng.IntN(5)
		clients, endpoints := make([]int64, n), make([]int64, n)
		var allClients, allEndpoints float64
		for i := range n {
			clients[i], endpoints[i] = rng.Int64N(50), rng.Int64N(50)
		}
		clients[0]++
		endpoints[n-1]++
		for i := range n {
			allClients, allEndpoints = allClients+float64(clients[i]), allEndpoints+float64(endpoints[i])
		}
		fleet, upstream, load := make([]float64, n), make([]float64, n), make([]float64, n)
		bound, crossed := 0., 0.
		for i := range n {
			fleet[i], upstream[i] = float64(clients[i])/allClients, float64(endpoints[i])/allEndpoints
			bound += max(fleet[i]-upstream[i], 0)
		}
		for own := range n {
			if clients[own] == 0 {
				continue
			}
			shares, want, sum := zoneShares(own, fleet, upstream), slowZoneShares(own, clients, endpoints), 0.
			for i, s := range shares {
				if exact, _ := want[i].Float64(); math.Abs(s-exact) > 1e-9 {
					t.Fatalf("seed %d: clients %v, endpoints %v, own %d: %v, want %v", seed, clients, endpoints, own, shares, want)
				}
				if s < 0 || endpoints[i] == 0 && s > 0 {
					t.Fatalf("seed %d: zone %d of %v gets %v", seed, i, endpoints, s)
				}
				sum += s
				load[i] += fleet[own] * s
			}
			if math.Abs(sum-1) > 1e-9 {
				t.Fatalf("seed %d: shares %v sum to %v", seed, shares, sum)
			}
			crossed += fleet[own] * (1 - shares[own])
		}
		for i := range load {
			if math.Abs(load[i]-upstream[i]) > 1e-9 {
				t.Fatalf("seed %d: clients %v, endpoints %v: zones get %v", seed, clients, endpoints, load)
			}
		}
		if crossed > bound+1e-9 {
			t.Fatalf("seed %d: %v leave their zone, want %v", seed, crossed, bound)
		}
	}
}

// zoneWorld has three zones of four endpoints each, and a client in zone a.
func zoneWorld(z ZoneAware, fleet ...uint32) *world {
	w := newWorld(zone("a", 1, endpoints(0, 1, 1, 1, 1)), zone("b", 2, endpoints(10, 1, 1, 1, 1)), zone("c", 5, endpoints(20, 1, 1, 1, 1)))
	l := w.leaf(0)
	l.MaxRequests = math.MaxUint32
	l.Policy = Policy{Flat: true, ZoneAware: &z}
	l.Origin = &Origin{Locality: LocalityID{Region: "r", Zone: "a"}}
	for i, n := range fleet {
		l.Origin.Fleet = append(l.Origin.Fleet, ZoneSize{LocalityID{Region: "r", Zone: string(rune('a' + i))}, n, uint64(n) * 10})
	}
	w.renew(0)
	return w
}

// zoneOdds returns the shares of zones by the explanation, which TestExplainPicks holds
// against picks.
func zoneOdds(t *testing.T, w *world) []float64 {
	t.Helper()
	s := w.rebuild(t)
	kit.Must(t, s.ClusterErr(0))
	shares := make([]float64, len(w.states[0].Localities))
	for i, e := range s.ExplainCluster(bg, 0, 0).Endpoints {
		k, _, _ := w.endpoint(0, int32(i))
		shares[k] += e.Share
	}
	return shares
}

func near(a, b []float64) bool {
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-6 {
			return false
		}
	}
	return len(a) == len(b)
}

func TestZoneAware(t *testing.T) {
	third := 1. / 3
	even := []float64{third, third, third}
	local := []float64{2 * third, third / 5, third * 4 / 5}
	on := ZoneAware{Enabled: 1, MinEndpoints: 6}
	for _, test := range []struct {
		name   string
		zones  ZoneAware
		fleet  []uint32
		change func(w *world)
		want   []float64
		reason string
	}{
		{"residual", on, []uint32{5, 3, 2}, nil, local, "66.67 % of the RPCs stay in the client's zone"},
		{"direct", on, []uint32{3, 5, 2}, nil, []float64{1, 0, 0}, "100 % of the RPCs stay"},
		{"zones of the fleet without endpoints", on, []uint32{3, 0, 0, 3}, nil, []float64{2 * third, third / 2, third / 2}, ""},
		{"not flat", on, []uint32{5, 3, 2}, func(w *world) { w.leaf(0).Policy.Flat = false }, local, ""},
		{"least request", on, []uint32{5, 3, 2}, func(w *world) {
			w.leaf(0).Policy.Kind, w.leaf(0).Policy.Least = PolicyLeastRequest, &LeastRequest{Choices: 2}
			w.ready()
		}, local, ""},
		{"40 % of RPCs", ZoneAware{Enabled: .4, MinEndpoints: 6}, []uint32{5, 3, 2}, nil,
			[]float64{.4*2*third + .6*third, .4*third/5 + .6*third, .4*third*4/5 + .6*third}, "routing_enabled is 40 %"},
		{"40 % of RPCs, not flat", ZoneAware{Enabled: .4, MinEndpoints: 6}, []uint32{5, 3, 2}, func(w *world) { w.leaf(0).Policy.Flat = false },
			[]float64{.4*2*third + .6/8, .4*third/5 + .6*2/8, .4*third*4/5 + .6*5/8}, ""},
		{"forced", ZoneAware{Enabled: 1, MinEndpoints: 6, ForceLocal: 4}, []uint32{5, 3, 2}, nil, []float64{1, 0, 0}, "force_local_zone"},
		{"too few to force", ZoneAware{Enabled: 1, MinEndpoints: 6, ForceLocal: 5}, []uint32{5, 3, 2}, nil, local, ""},
		{"by weight", ZoneAware{Enabled: 1, MinEndpoints: 6, ByWeight: true}, []uint32{5, 3, 2}, func(w *world) {
			for i := range w.leaf(0).Priorities[0].Localities[0].Endpoints.Len() {
				w.reweigh(i, 2)
			}
		}, []float64{1, 0, 0}, "50 % of the local cluster and 50 % of the READY endpoints"},
		{"own zone down", on, []uint32{5, 3, 2}, func(w *world) {
			for _, e := range w.flat(0)[:4] {
				e.Connectivity = TransientFailure
			}
		}, []float64{0, .4, .6}, "the client's zone has no READY endpoint"},
		{"own zone half ejected", on, []uint32{5, 3, 2}, func(w *world) {
			w.flat(0)[0].Ejected, w.flat(0)[1].Ejected = true, true
		}, []float64{.4, .6 / 3, .6 * 2 / 3}, ""},
		{"still connecting counts as there", on, []uint32{5, 3, 2}, func(w *world) {
			for i, e := range w.flat(0) {
				if i%4 > 0 && i != 1 && i != 2 {
					e.Connectivity = Connecting
				}
			}
		}, []float64{1, 0, 0}, ""},

		{"too small", ZoneAware{Enabled: 1, MinEndpoints: 13}, []uint32{5, 3, 2}, nil, even, "12 endpoints have not failed, fewer than min_cluster_size 13"},
		{"off", ZoneAware{}, []uint32{5, 3, 2}, nil, even, "routing_enabled is 0"},
		{"a fleet in one zone", on, []uint32{5}, nil, even, "the local cluster is in one zone"},
		{"a fleet in one zone, forced", ZoneAware{Enabled: 1, ForceLocal: 1}, []uint32{5}, nil, []float64{1, 0, 0}, "force_local_zone"},
		{"one locality", on, []uint32{5, 3, 2}, func(w *world) {
			p := &w.leaf(0).Priorities[0]
			p.Localities, w.states[0].Localities = p.Localities[:1], w.states[0].Localities[:1]
		}, []float64{1}, "one locality"},
		{"no fleet yet", on, nil, nil, even, "not known yet"},
		{"no fleet", on, nil, func(w *world) { w.leaf(0).Origin.Err = errors.New("lost") }, even, "lost"},
		{"no origin", on, nil, func(w *world) { w.leaf(0).Origin = nil }, even, "locality is unknown"},
		{"no fleet, not flat", on, nil, func(w *world) { w.leaf(0).Policy.Flat = false }, []float64{1. / 8, 2. / 8, 5. / 8}, "not known yet"},
		{"priority 1", on, []uint32{5, 3, 2}, func(w *world) {
			w.leaf(0).Priorities = append([]Priority{{}}, w.leaf(0).Priorities...)
			w.states[0].Priority = 1
		}, even, "priority 1 is in use"},
	} {
		w := zoneWorld(test.zones, test.fleet...)
		if test.change != nil {
			test.change(w)
		}
		got := zoneOdds(t, w)
		if !near(got, test.want) {
			t.Errorf("%s: zones get %v, want %v", test.name, got, test.want)
		}
		r := w.snapshot.LocalityRouting(0)
		if r == nil || !strings.Contains(r.Reason, test.reason) {
			t.Errorf("%s: %+v, want the reason %q", test.name, r, test.reason)
		}
		if r.InForce && !near(got, []float64{r.Localities[0].Share, r.Localities[1].Share, r.Localities[2].Share}) {
			t.Errorf("%s: zones get %v, which is reported as %+v", test.name, got, r.Localities)
		}
	}
}

// A fleet that comes and goes moves RPCs between zones at once, and leaves the sequences of
// the policy without zones alone.
func TestZoneAwareSwitches(t *testing.T) {
	w := zoneWorld(ZoneAware{Enabled: 1}, 5, 3, 2)
	fleet := w.leaf(0).Origin
	count := func(n int) (zones [3]int, endpoints [12]int) {
		s, rng := w.rebuild(t), newRand(1)
		for range n {
			r := s.Pick(bg, "/s/m", rng.Uint64())
			if r.Outcome != Picked {
				t.Fatal(r)
			}
			zones[r.Index/4]++
			endpoints[r.Index]++
		}
		return zones, endpoints
	}
	for range 3 {
		w.leaf(0).Origin = nil
		if _, got := count(1200); got != [12]int{100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100} {
			t.Fatalf("without zones endpoints get %v", got)
		}
		w.leaf(0).Origin = fleet
		zones, got := count(3000) // 2000, 200, 800: five deviations are 130, 69, 121
		for i, want := range [3]int{2000, 200, 800} {
			if d := zones[i] - want; d < -135 || d > 135 {
				t.Fatalf("zones get %v", zones)
			}
			part := got[4*i : 4*i+4]
			for _, n := range part {
				if d := 4*n - zones[i]; d < -4 || d > 4 {
					t.Fatalf("endpoints of a zone get %v", part)
				}
			}
		}
	}
}

// TestZoneAwareKeepsShares checks that zone-aware routing of one RPC in a thousand changes the
// shares of endpoints by no more than that: all other RPCs use the weights of the policy.
func TestZoneAwareKeepsShares(t *testing.T) {
	for _, policy := range []Policy{
		{Kind: PolicyEDF},
		{Kind: PolicyRoundRobin},
		{Kind: PolicyRandom},
		{Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 2}},
		{Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 2, IgnoreWeights: true}},
		{Kind: PolicyLeastLatency, Latency: &LeastLatency{Decay: time.Second}},
		{Kind: PolicyLeastLatency, Latency: &LeastLatency{Decay: time.Second, IgnoreWeights: true}},
		{Kind: PolicyPrequal, Prequal: &Prequal{PoolSize: 16, MaxAge: time.Second, ProbesPerRPC: 3, RemovePerRPC: 1, HotQuantile: .8, ProbeTimeout: time.Second, MaxProbesPerSecond: 100}},
		{Kind: PolicyClientWRR, WRR: &ClientWRR{}},
		{Kind: PolicyEDF, SlowStart: &SlowStart{Window: 10 * time.Second, Aggression: 1}},
	} {
		policy.Flat = true
		odds := func(enabled float64) []float64 {
			w := newWorld(zone("a", 1, endpoints(0, 1, 2)), zone("b", 1, endpoints(10, 9)))
			w.env.Now = int64(time.Hour)
			l := w.leaf(0)
			l.MaxRequests, l.Policy = math.MaxUint32, policy
			l.Policy.ZoneAware = &ZoneAware{Enabled: enabled}
			l.Origin = &Origin{Locality: LocalityID{Region: "r", Zone: "a"}, Fleet: []ZoneSize{
				{LocalityID{Region: "r", Zone: "a"}, 1, 1}, {LocalityID{Region: "r", Zone: "b"}, 1, 1}}}
			w.renew(0)
			for i, e := range w.flat(0) {
				e.Connectivity = Ready
				e.SetWeight([]float64{1, 7, 2}[i])
				e.StateSince = w.env.Now - int64([]time.Duration{time.Second, 5 * time.Second, time.Minute}[i])
			}
			return zoneOdds(t, w)
		}
		with, without := odds(.001), odds(0)
		for i := range with {
			if math.Abs(with[i]-without[i]) > .0011 {
				t.Errorf("policy %+v: zones get %v with 0.1 %% of the RPCs routed by zones, %v without", policy, with, without)
				break
			}
		}
	}
}

// randomZones makes a policy zone-aware now and then, if it can be.
func randomZones(rng *rand.Rand, leaf *Leaf) {
	z := &ZoneAware{
		Enabled: pick(rng, 0, .3, 1, 1, 1), MinEndpoints: rng.Uint64N(6), ForceLocal: pick(rng, uint32(0), 0, 2), ByWeight: rng.IntN(2) == 0,
	}
	if rng.IntN(3) == 0 || !leaf.Policy.Kind.Traits().Zones {
		return
	}
	leaf.Policy.ZoneAware = z
	leaf.Origin = &Origin{Locality: LocalityID{Region: "r", Zone: pick(rng, "0", "1", "9")}}
	for i := range rng.IntN(5) {
		leaf.Origin.Fleet = append(leaf.Origin.Fleet, ZoneSize{LocalityID{Region: "r", Zone: string(rune('0' + i))}, rng.Uint32N(9), rng.Uint64N(99)})
	}
}
