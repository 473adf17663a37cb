// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/ringhash"
)

// T-RING-2, T-EDS-4: point i of an endpoint is XXH64 of "address_i", or of
// "hash_key_i" (A76), which is where other clients put it.
func TestRingPlacementGolden(t *testing.T) {
	list := endpoints(0, 1, 1, 1)
	list[1].Extra = &EndpointExtra{HashKey: "shard-7", Hostname: "host"}
	list[2].Addr = netip.MustParseAddrPort("[2001:db8:0:0::1]:443")
	list[0].Extra = &EndpointExtra{Hostname: "host"}
	w, hash, _ := ringWorld(PolicyRingHash, RingPolicy{MinSize: 30, MaxSize: 30, XXH64: true}, zone("a", 1, list))
	s := w.build(t)
	for i, key := range []string{"10.0.0.0:443", "shard-7", "[2001:db8::1]:443"} {
		for k := range 10 {
			*hash = ringhash.XXH64.Sum(fmt.Sprintf("%s_%d", key, k))
			if got := s.Pick(bg, "/s/m", 0); got.Index != int32(i) || got.Outcome != Picked {
				t.Errorf("point %d of %s belongs to endpoint %+v, want %d", k, key, got, i)
			}
		}
	}
}

// A113: weights are shares of the priority, independent of their magnitude (T-EDS-3).
func TestRingWeights(t *testing.T) {
	big := uint32(1) << 31
	for _, test := range []struct {
		localities []Locality
		want       []uint32
	}{
		{[]Locality{zone("a", 7, endpoints(0, 9))}, []uint32{1 << 31}},
		{[]Locality{zone("a", 1, endpoints(0, 1, 1)), zone("b", 1, endpoints(2, 5))}, []uint32{1 << 29, 1 << 29, 1 << 30}},
		{[]Locality{zone("a", big, endpoints(0, big, big-1)), zone("b", big-1, endpoints(2, 1))}, []uint32{1 << 29, 1<<29 - 1, 1<<30 - 1}},
		{[]Locality{zone("a", 1, endpoints(0, 1, 1<<31)), zone("b", 1<<20, nil)}, []uint32{1, 2047}},
	} {
		for i, h := range hostsOf(nil, test.localities) {
			if diff := int64(h.Weight) - int64(test.want[i]); diff < -2 || diff > 2 {
				t.Errorf("%v: weight %d of endpoint %d, want about %d", test.localities, h.Weight, i, test.want[i])
			}
		}
	}
}

// Changes that do not affect the ring leave it unchanged (T-EDS-6).
func TestRingTakesOver(t *testing.T) {
	for _, kind := range []PolicyKind{PolicyRingHash, PolicyMaglev} {
		list := endpoints(0, 1, 1, 1, 1)
		w, _, _ := ringWorld(kind, RingPolicy{MinSize: 101, MaxSize: 101}, zone("a", 1, list))
		of := func(s *Snapshot) *hashing { return s.clusters.At(0).groups[0].hashing }
		first := of(w.build(t))

		w.flat(0)[0].Connectivity = TransientFailure
		w.states[0].Version++
		second := of(w.build(t))
		if second.placement != first.placement {
			t.Errorf("kind %d: a connection that failed costs a placement", kind)
		}
		w.leaf(0).Drops = []Drop{{"x", 1}}
		w.renew(0)
		if third := of(w.build(t)); third.notFailed != second.notFailed || &third.states[0] != &second.states[0] {
			t.Errorf("kind %d: a drop category makes new views", kind)
		}

		change := func(f func(*Endpoint)) *hashing {
			l := w.leaf(0).Priorities[0].Localities[0].Endpoints.Slice()
			f(&l[1])
			w.leaf(0).Priorities = []Priority{{Localities: []Locality{zone("a", 1, l)}}}
			w.renew(0)
			return of(w.build(t))
		}
		same := change(func(e *Endpoint) { e.Extra = &EndpointExtra{Hostname: "x"} })
		if same.ring != first.ring || same.table != first.table {
			t.Errorf("kind %d: a host name costs a ring", kind)
		}
		for name, f := range []func(*Endpoint){
			func(e *Endpoint) { e.Weight++ },
			func(e *Endpoint) { e.Extra = &EndpointExtra{HashKey: "k"} },
			func(e *Endpoint) { e.Extra, e.Addr = nil, address(99) },
			func(e *Endpoint) { e.Health = Draining },
		} {
			before := of(w.snapshot)
			after := change(f)
			if after.ring == before.ring && after.table == before.table {
				t.Errorf("kind %d: change %d leaves the placement as it was", kind, name)
			}
			want := hostsOf(nil, w.leaf(0).Priorities[0].Localities)
			if !slices.Equal(after.hosts, want) {
				t.Errorf("kind %d: after change %d hosts are %v, want %v", kind, name, after.hosts, want)
			}
		}
		l := w.leaf(0).Priorities[0].Localities[0].Endpoints.Slice()
		for _, weight := range []uint32{1, 9} {
			w.leaf(0).Priorities = []Priority{{Localities: []Locality{zone("a", 1, l[:1]), zone("b", weight, l[1:])}}}
			w.renew(0)
			want := hostsOf(nil, w.leaf(0).Priorities[0].Localities)
			if after := of(w.build(t)); !slices.Equal(after.hosts, want) {
				t.Errorf("kind %d: with a locality of weight %d hosts are %v, want %v", kind, weight, after.hosts, want)
			}
			for _, e := range w.flat(0) {
				e.Connectivity = Ready
			}
		}
		w.leaf(0).Policy.Ring = &RingPolicy{MinSize: 103, MaxSize: 103}
		w.renew(0)
		if after := of(w.build(t)); after.spec.minSize != 103 || after.ring != nil && after.ring.Len() != 103 {
			t.Errorf("kind %d: after a change of size it is %+v", kind, after.spec)
		}
	}
}

// T-SEC-2, T-RING-5: rings stay below the cap, and an order of sizes that the cap
// would hide is an error.
func TestRingCap(t *testing.T) {
	for _, test := range []struct {
		cap, minSize, maxSize uint64
		want                  int
	}{
		{0, 1024, 8 << 20, 1024}, {0, 8 << 20, 8 << 20, 4096}, {100, 1024, 8 << 20, 100}, {1 << 14, 1 << 14, 8 << 20, 1 << 14},
	} {
		w, _, _ := ringWorld(PolicyRingHash, RingPolicy{MinSize: test.minSize, MaxSize: test.maxSize}, zone("a", 1, endpoints(0, 1, 1)))
		w.env.RingCap = test.cap
		if got := w.build(t).clusters.At(0).groups[0].hashing.ring.Len(); got != test.want {
			t.Errorf("cap %d, sizes %d to %d: a ring of %d entries, want %d", test.cap, test.minSize, test.maxSize, got, test.want)
		}
	}
	for _, test := range []struct {
		policy Policy
		want   string
	}{
		{Policy{Kind: PolicyRingHash, Ring: &RingPolicy{MinSize: 9000, MaxSize: 8000}}, "minimum size 9000 exceeds maximum size 8000"},
		{Policy{Kind: PolicyRingHash, Ring: &RingPolicy{MaxSize: 8000}}, "minimum ring size is 0"},
		{Policy{Kind: PolicyRingHash}, "policy ring_hash has no parameters"},
		{Policy{Kind: PolicyMaglev}, "policy maglev has no parameters"},
		{Policy{Kind: PolicyMaglev, Ring: &RingPolicy{MinSize: 100}}, "size 100 is not prime"},
		{Policy{Kind: PolicyRingHash, Ring: &RingPolicy{MinSize: 1, MaxSize: 1, RequestHeader: "x-bin"}}, `request header "x-bin" is binary`},
	} {
		w := newWorld(zone("a", 1, endpoints(0, 1)))
		w.leaf(0).Policy = test.policy
		if err := w.build(t).ClusterErr(0); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: error %v, want one with %q", test.policy, err, test.want)
		}
	}
}
