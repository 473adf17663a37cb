// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/ringhash"
)

// ringWorld is a newWorld whose policy hashes. Requests have the hash that is set
// in the result, or none.
func ringWorld(kind PolicyKind, ring RingPolicy, localities ...Locality) (w *world, hash *uint64, some *bool) {
	w = newWorld(localities...)
	w.leaf(0).Policy = Policy{Kind: kind, Flat: true, Ring: &ring}
	w.leaf(0).MaxRequests = math.MaxUint32
	w.ready()
	hash, some = new(uint64), new(bool)
	*some = true
	w.env.RequestHash = func(context.Context) (uint64, bool) { return *hash, *some }
	return w, hash, some
}

// slowWeight is A113's formula, with a product that cannot overflow.
func slowWeight(localities []Locality, i, k int) uint32 {
	norm := func(part uint32, of func(yield func(uint32))) *big.Int {
		sum := new(big.Int)
		of(func(w uint32) { sum.Add(sum, big.NewInt(int64(w))) })
		return new(big.Int).Div(new(big.Int).Lsh(big.NewInt(int64(part)), 31), sum)
	}
	share := norm(localities[i].Weight, func(yield func(uint32)) {
		for _, l := range localities {
			yield(l.Weight)
		}
	})
	own := norm(localities[i].Endpoints.At(k).Weight, func(yield func(uint32)) {
		for _, e := range localities[i].Endpoints.All() {
			yield(e.Weight)
		}
	})
	w := share.Mul(share, own).Rsh(share, 31).Uint64()
	return uint32(max(w, 1))
}

// slowRing returns a newly built ring of the localities' hosts.
func slowRing(t *testing.T, localities []Locality, minSize, maxSize uint64, fn ringhash.Func) *ringhash.Ring {
	t.Helper()
	var hosts []ringhash.Host
	for i, l := range localities {
		for k, e := range l.Endpoints.All() {
			h := ringhash.Host{Key: e.Addr.String(), Weight: slowWeight(localities, i, k)}
			if e.Extra != nil {
				h.Key = e.Extra.HashKey
			}
			if e.Health == Draining {
				h.Weight = 0
			}
			hosts = append(hosts, h)
		}
	}
	r, err := ringhash.New(hosts, minSize, maxSize, fn)
	kit.Must(t, err)
	return r
}

// slowSeek walks the ring entry by entry, as A61 has it, or A76 for RPCs without a
// hash, which may go anywhere.
func slowSeek(r *ringhash.Ring, states []Connectivity, hash uint64, anywhere bool) (index, also int, outcome Outcome) {
	woken, wanted := -1, slices.Contains(states, Connecting)
	for host := range r.Walk(hash) {
		switch s := states[host]; {
		case s == Ready && woken >= 0:
			return host, woken, PickedConnect
		case s == Ready:
			return host, 0, Picked
		case !anywhere && s == Idle:
			return host, 0, QueueConnect
		case !anywhere && s == Connecting:
			return 0, 0, Queue
		case s == Idle && !wanted:
			woken, wanted = host, true
		}
	}
	if woken >= 0 {
		return woken, 0, QueueConnect
	} else if wanted && anywhere {
		return 0, 0, Queue
	}
	return 0, 0, Failed
}

// Every pick by hash equals that of a walk on a ring built from scratch, through changes of
// states, weights, keys and endpoints.
func TestRingHashOracle(t *testing.T) {
	worlds := uint64(12)
	if testing.Short() || raceEnabled {
		worlds = 4
	}
	var seen [PickedConnect + 1]int
	for seed := range worlds {
		rng := newRand(seed)
		policy := RingPolicy{MinSize: 1 + rng.Uint64N(200), MaxSize: 200 + rng.Uint64N(9000), XXH64: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			policy.RequestHeader = "absent"
		}
		w, hash, some := ringWorld(PolicyRingHash, policy, zone("a", 1, endpoints(0, 1, 1)))
		if rng.IntN(2) == 0 {
			w.env.RandomHashes = forgotten{}
		}
		anywhere := policy.RequestHeader != "" || w.env.RandomHashes == nil
		fn := ringhash.XXH3
		if policy.XXH64 {
			fn = ringhash.XXH64
		}
		for step := range 150 {
			if rng.IntN(3) == 0 {
				w.leaf(0).Priorities = []Priority{{Localities: randomLocalities(rng, w.leaf(0).Priorities[0].Localities)}}
				w.renew(0)
			}
			mix := pick(rng, []Connectivity{Ready}, []Connectivity{TransientFailure}, []Connectivity{Ready, Idle}, []Connectivity{Idle, TransientFailure}, []Connectivity{Ready, Connecting, Idle, TransientFailure, TransientFailure})
			for _, e := range w.flat(0) {
				if step%2 == 0 {
					e.Connectivity = pick(rng, mix...)
				}
			}
			s := w.rebuild(t)
			localities := w.leaf(0).Priorities[0].Localities
			var states []Connectivity // of the hosts on the ring
			on := false
			for i, e := range w.flat(0) {
				_, cfg, _ := w.endpoint(0, int32(i))
				if states = append(states, e.Connectivity); cfg.Health == Draining {
					states[i] = TransientFailure
				}
				on = on || cfg.Health != Draining
			}
			if !on {
				if got := s.Pick(bg, "/s/m", 1).Outcome; got != Failed || s.ClusterErr(0) != nil {
					t.Fatalf("seed %d, step %d: outcome %d with all endpoints drained: %v", seed, step, got, s.ClusterErr(0))
				}
				continue
			}
			r := slowRing(t, localities, min(policy.MinSize, 4096), min(policy.MaxSize, 4096), fn)
			for range 50 {
				random := rng.Uint64()
				*hash, *some = pick(rng, 0, math.MaxUint64, rng.Uint64(), rng.Uint64()), rng.IntN(2) == 0
				h := *hash
				if !*some {
					h = draw(random, drawHash)
				}
				index, also, outcome := slowSeek(r, states, h, !*some && anywhere)
				want := Result{outcome, 0, 0, int32(index)}
				got := s.Pick(bg, "/s/m", random)
				if got != want {
					t.Fatalf("seed %d, step %d, hash %#x, random %t: Pick = %+v, want %+v", seed, step, h, !*some, got, want)
				}
				if outcome == PickedConnect && s.ConnectIndex(got, random) != int32(also) {
					t.Fatalf("seed %d, step %d, hash %#x: ConnectIndex = %d, want %d", seed, step, h, s.ConnectIndex(got, random), also)
				}
				seen[outcome]++
			}
		}
	}
	for _, outcome := range []Outcome{Picked, Queue, Failed, QueueConnect, PickedConnect} {
		if seen[outcome] < 100 {
			t.Errorf("outcome %d was seen %d times in all", outcome, seen[outcome])
		}
	}
}

// randomLocalities changes some localities, not touching the old ones.
func randomLocalities(rng *rand.Rand, old []Locality) (list []Locality) {
	for i := range 1 + rng.IntN(4) {
		var l []Endpoint
		if i < len(old) && rng.IntN(2) == 0 {
			l = old[i].Endpoints.Slice()
			if len(l) > 0 && rng.IntN(2) == 0 {
				k := rng.IntN(len(l))
				l[k] = Endpoint{Addr: address(i*100 + 50 + rng.IntN(50)), Weight: 1}
			}
		}
		for range rng.IntN(4) {
			l = append(l, Endpoint{Addr: address(i*100 + len(l)), Weight: 1})
		}
		for k := range l {
			switch rng.IntN(8) {
			case 0:
				l[k].Weight = pick(rng, 1, 1+rng.Uint32N(100))
			case 1:
				l[k].Health = pick(rng, Healthy, Draining)
			case 2:
				l[k].Extra = pick(rng, nil, &EndpointExtra{HashKey: fmt.Sprint("key", i, k, rng.IntN(3))})
			}
		}
		list = append(list, zone(fmt.Sprint(i), pick(rng, 1, 1+rng.Uint32N(1e9)), l))
	}
	if list[0].Endpoints.Len() == 0 {
		list[0].Endpoints = ListOf(endpoints(0, 1)...)
	}
	return list
}

// With every policy, a request stays with its endpoint while it is READY, and otherwise goes to
// one that has not failed if there is any; with all of them READY only the table decides.
func TestMaglev(t *testing.T) {
	w, hash, some := ringWorld(PolicyMaglev, RingPolicy{MinSize: 1009, XXH64: true, RequestHeader: "absent"}, zone("a", 1, endpoints(0, 1, 2, 3, 4)), zone("b", 3, endpoints(4, 5, 6)))
	hosts := hostsOf(nil, w.leaf(0).Priorities[0].Localities)
	table, err := ringhash.NewMaglev(hosts, 1009, ringhash.XXH64)
	kit.Must(t, err)
	rng := newRand(1)
	var seen [PickedConnect + 1]int
	for round := range 200 {
		for _, e := range w.flat(0) {
			e.Connectivity = Ready
			if round > 0 {
				e.Connectivity = pick(rng, Ready, Idle, TransientFailure, TransientFailure, TransientFailure)
			}
		}
		s := w.rebuild(t)
		list := w.flat(0)
		alive := slices.ContainsFunc(list, func(e *EndpointState) bool { return e.Connectivity != TransientFailure })
		for range 100 {
			*hash, *some = rng.Uint64(), rng.IntN(4) > 0
			r := rng.Uint64()
			got := s.Pick(bg, "/s/m", r)
			seen[got.Outcome]++
			own := table.Pick(*hash)
			switch state := list[got.Index].Connectivity; {
			case (got.Outcome == Failed) == alive:
				t.Fatalf("outcome %+v, with an endpoint alive: %t", got, alive)
			case got.Outcome == Failed:
			case (got.Outcome == Picked || got.Outcome == PickedConnect) != (state == Ready), got.Outcome == QueueConnect && state != Idle:
				t.Fatalf("outcome %+v with an endpoint in state %d", got, state)
			case got.Outcome == PickedConnect && (list[s.ConnectIndex(got, r)].Connectivity != Idle || *some):
				t.Fatalf("outcome %+v wakes an endpoint in state %d", got, list[s.ConnectIndex(got, r)].Connectivity)
			case *some && list[own].Connectivity != TransientFailure && got.Index != int32(own):
				t.Fatalf("outcome %+v, want endpoint %d", got, own)
			}
		}
	}
	for _, outcome := range []Outcome{Picked, Failed, QueueConnect, PickedConnect} {
		if seen[outcome] < 50 {
			t.Errorf("outcome %d was seen %d times", outcome, seen[outcome])
		}
	}
}

// The load of endpoints that are down goes to all that are left, also if these are
// so few that hardly any jump finds one.
func TestMaglevSpreads(t *testing.T) {
	w, hash, _ := ringWorld(PolicyMaglev, RingPolicy{MinSize: 1009}, zone("a", 1, endpoints(0, make([]uint32, 100)...)))
	for i, e := range w.flat(0) {
		w.reweigh(i, 1)
		if i >= 3 {
			e.Connectivity = TransientFailure
		}
	}
	s, rng := w.build(t), newRand(1)
	var counts [3]float64
	const rounds = 30000
	for range rounds {
		*hash = rng.Uint64()
		counts[s.Pick(bg, "/s/m", 0).Index]++
	}
	for i, n := range counts {
		if math.Abs(n/rounds-1./3) > .05 {
			t.Errorf("endpoint %d of 3 has %v of %d picks", i, n, rounds)
		}
	}
}

// T-DROP-4, T-CB-1: an RPC that has to wait for its endpoint is neither dropped nor
// counted, and one that is picked counts at its endpoint's locality (T-LRS-5).
func TestHashingCounts(t *testing.T) {
	w, hash, _ := ringWorld(PolicyRingHash, RingPolicy{MinSize: 64, MaxSize: 64}, zone("a", 1, endpoints(0, 1)), zone("b", 1, endpoints(1, 1)))
	w.leaf(0).Drops = []Drop{{"half", 500000}}
	w.leaf(0).MaxRequests = 1
	w.renew(0)
	w.flat(0)[0].Connectivity = Idle
	s, rng := w.build(t), newRand(1)
	var counts [PickedConnect + 1]uint64
	for range 1000 {
		*hash = rng.Uint64()
		counts[s.Pick(bg, "/s/m", rng.Uint64()).Outcome]++
	}
	if counts[QueueConnect] < 400 || counts[Picked] != 1 || counts[QueueConnect]+counts[Picked]+counts[Dropped]+counts[Overloaded] != 1000 {
		t.Errorf("outcomes are %v", counts)
	}
	if n := w.loads[0].Drop("half").Load(); n != counts[Dropped] || n < 150 {
		t.Errorf("%d drops were counted, want %d", n, counts[Dropped])
	}
	for i, want := range []uint64{0, 1} {
		if got := w.states[0].Localities[i].Load.Snapshot().Issued; got != want {
			t.Errorf("locality %d has %d RPCs, want %d", i, got, want)
		}
	}
}

// Inside wrr_locality each locality has a ring; localities with a READY endpoint take
// precedence over localities that need a connection (T-LOC-1).
func TestHashingLocalities(t *testing.T) {
	w, _, _ := ringWorld(PolicyRingHash, RingPolicy{MinSize: 64, MaxSize: 64}, zone("a", 1, endpoints(0, 1)), zone("b", 3, endpoints(1, 1)), zone("c", 1, endpoints(2, 1, 1)))
	w.leaf(0).Policy.Flat = false
	rng := newRand(1)
	for _, test := range []struct {
		states []Connectivity
		want   map[Result]float64
	}{
		{[]Connectivity{Ready, Ready, TransientFailure, TransientFailure}, map[Result]float64{{Index: 0}: .25, {Index: 1}: .75}},
		{[]Connectivity{Idle, Ready, TransientFailure, TransientFailure}, map[Result]float64{{Index: 1}: 1}},
		{[]Connectivity{Idle, Connecting, TransientFailure, TransientFailure}, map[Result]float64{{Outcome: QueueConnect, Index: 0}: .25, {Outcome: Queue}: .75}},
		{[]Connectivity{Idle, TransientFailure, Ready, TransientFailure}, map[Result]float64{{Index: 2}: 1}},
		{[]Connectivity{TransientFailure, TransientFailure, TransientFailure, TransientFailure}, map[Result]float64{{Outcome: Failed}: 1}},
	} {
		for i, e := range w.flat(0) {
			e.Connectivity = test.states[i]
		}
		s, counts := w.rebuild(t), make(map[Result]float64)
		for range 10000 {
			counts[s.Pick(bg, "/s/m", rng.Uint64())] += .0001
		}
		for result, share := range counts {
			if math.Abs(share-test.want[result]) > .03 {
				t.Errorf("%v: a share of %.2f is %+v, want %.2f", test.states, share, result, test.want[result])
			}
		}
	}
}

func TestHashingAllocs(t *testing.T) {
	value := []string{"user-0123456789"}
	for _, kind := range []PolicyKind{PolicyRingHash, PolicyMaglev} {
		for _, states := range [][]Connectivity{{Ready}, {Idle}, {TransientFailure}, {Ready, Connecting, Idle, TransientFailure}} {
			w, _, some := ringWorld(kind, RingPolicy{MinSize: 1009, MaxSize: 1009, BalanceFactor: 100}, zone("a", 1, endpoints(0, 1, 1, 1, 1)), zone("b", 1, endpoints(4, 1, 1, 1, 1)))
			*some = false
			w.cfg.Routes[0].Hash = []HashPolicy{{Header: "user"}}
			w.env.RandomHashes = forgotten{}
			w.env.Header = func(context.Context, string) []string { return value }
			for i, e := range w.flat(0) {
				e.Connectivity = states[i%len(states)]
			}
			s, list, r := w.build(t), w.flat(0), uint64(0)
			if n := testing.AllocsPerRun(1000, func() {
				r += 0x9e3779b97f4a7c15
				if got := s.Pick(bg, "/s/m", r); got.Outcome == Picked || got.Outcome == PickedConnect {
					list[got.Index].Finish(CallOK)
				}
			}); n != 0 {
				t.Errorf("kind %d with endpoints in states %v: Pick and Finish allocate %v times", kind, states, n)
			}
		}
	}
}

// Only clusters whose policy hashes have the RPC's headers read.
func TestHashingOnlyWhereWanted(t *testing.T) {
	w, _, some := ringWorld(PolicyRingHash, RingPolicy{MinSize: 64, MaxSize: 64}, zone("a", 1, endpoints(0, 1)))
	w.add(Leaf{MaxRequests: 10, Priorities: []Priority{{Localities: []Locality{zone("a", 1, endpoints(0, 1))}}}})
	*some = false
	reads := 0
	w.env.Header = func(context.Context, string) []string { reads++; return nil }
	w.cfg.Routes[0].Hash = []HashPolicy{{Header: "user"}}
	s := w.build(t)
	for cluster, want := range []int{1, 1} {
		if got := s.PickCluster(bg, 0, int32(cluster), 0); got.Outcome != Picked || reads != want {
			t.Errorf("cluster %d: %+v with %d headers read, want %d in all", cluster, got, reads, want)
		}
	}
}
