// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
	"math/big"
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
		second := of(w.rebuild(t))
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

// T-SEC-2, T-RING-5: rings stay below the cap.
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
}

// Limits are the results of Envoy's formula in exact arithmetic; a share that is not a multiple
// of 2^-32 may reduce a large limit by one.
func TestBoundsLimit(t *testing.T) {
	rng := newRand(1)
	for range 20000 {
		p := &placement{}
		for range 1 + rng.IntN(5) {
			p.hosts = append(p.hosts, ringhash.Host{Weight: pick(rng, 0, 1, 1<<30, rng.Uint32N(1e9))})
		}
		p.hosts[0].Weight++
		sum := uint64(0)
		for _, h := range p.hosts {
			sum += uint64(h.Weight)
		}
		factor, all := pick(rng, 100, 125, 100+rng.Uint32N(1000)), rng.Int64N(pick(rng, int64(10), 1000, 1e6))
		b := newBounds(p, factor, nil)
		for i, h := range p.hosts {
			total := ((all+1)*int64(factor) + 99) / 100
			exact := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(total), big.NewInt(int64(h.Weight))), new(big.Int).SetUint64(sum))
			share, _ := exact.Float64()
			want := max(int64(math.Ceil(share)), 1)
			if got := b.limit(i, all); got != want && (got != want-1 || share > float64(want-1)+float64(total)/(1<<32)) {
				t.Fatalf("weight %d of %d, %d in flight, factor %d: limit %d, want %d", h.Weight, sum, all, factor, got, want)
			}
		}
	}
	b := newBounds(&placement{hosts: []ringhash.Host{{Weight: 1}}}, math.MaxUint32, nil)
	for _, all := range []int64{-5, 0, math.MaxInt64} {
		if got := b.limit(0, all); got < 1 {
			t.Errorf("%d in flight make a limit of %d", all, got)
		}
	}
	if newBounds(&placement{}, 0, nil) != nil {
		t.Error("a factor of 0 bounds something")
	}
}

// hash_balance_factor: RPCs that do not end and have the same hash stay at their host while it
// has room, and then spread over the other hosts.
func TestBalance(t *testing.T) {
	for _, kind := range []PolicyKind{PolicyRingHash, PolicyMaglev} {
		const n, rounds = 100, 5000
		w, hash, _ := ringWorld(kind, RingPolicy{MinSize: 1009, MaxSize: 1009, BalanceFactor: 150}, zone("a", 1, endpoints(0, make([]uint32, n)...)))
		for i := range n {
			w.reweigh(i, 1+uint32(i%3))
		}
		s, list := w.build(t), w.flat(0)
		h := s.clusters.At(0).groups[0].hashing
		*hash = 12345
		rng := newRand(1)
		own, _ := h.notFailed.find(*hash)
		moved, squeezed := 0, 0
		for i := range rounds {
			before := int64(list[own].inFlight.Load())
			limit := h.bounds.limit(own, w.breakers[0].InFlight())
			got := int(s.Pick(bg, "/s/m", rng.Uint64()).Index)
			switch {
			case before <= limit && got != own:
				t.Fatalf("kind %d, RPC %d: host %d with %d of at most %d RPCs is passed over", kind, i, own, before, limit)
			case before > limit && got == own:
				squeezed++
			case got != own:
				moved++
			}
		}
		over := 0
		for i, e := range list {
			if int64(e.inFlight.Load()) > h.bounds.limit(i, rounds)+1 {
				over++
			}
		}
		if over > 0 || moved < rounds*9/10 || squeezed > rounds/100 {
			t.Errorf("kind %d: %d hosts have more RPCs than they should; %d moved, %d found no room", kind, over, moved, squeezed)
		}
		for _, e := range list {
			for e.inFlight.Load() > 0 {
				e.Finish(CallOK)
			}
		}
		if w.breakers[0].InFlight() != 0 {
			t.Errorf("kind %d: %d RPCs are in flight at the end", kind, w.breakers[0].InFlight())
		}
	}
}

// T-RING-7, rule by rule.
func TestRingState(t *testing.T) {
	for _, test := range []struct {
		idle, connecting, ready, failed int
		want                            Connectivity
		wake                            bool
	}{
		{0, 0, 1, 0, Ready, false}, // 1: one READY is enough
		{9, 9, 1, 9, Ready, false},
		{0, 0, 0, 2, TransientFailure, false}, // 2: two have failed
		{0, 1, 0, 2, TransientFailure, false},
		{1, 0, 0, 2, TransientFailure, true},
		{1, 1, 0, 2, TransientFailure, false},
		{0, 1, 0, 0, Connecting, false}, // 3: one is CONNECTING
		{5, 1, 0, 1, Connecting, false},
		{0, 1, 0, 1, Connecting, false},
		{1, 0, 0, 1, Connecting, true}, // 4: one has failed, of several
		{1, 0, 0, 0, Idle, false},      // 5: one is IDLE
		{0, 0, 0, 1, TransientFailure, false},
		{0, 0, 0, 0, TransientFailure, false},
	} {
		got, wake := RingState(test.idle, test.connecting, test.ready, test.failed)
		if got != test.want || wake != test.wake {
			t.Errorf("RingState(%d idle, %d connecting, %d ready, %d failed) = %d, %t, want %d, %t",
				test.idle, test.connecting, test.ready, test.failed, got, wake, test.want, test.wake)
		}
	}
}

func TestNameAddr(t *testing.T) {
	long := strings.Repeat("a.", 126) + "aa" // 254 bytes
	for _, name := range []string{"localhost", "a", "Back-End_1.example.com", "example.com.", "_srv.1.x2", "0.1.2.0x3", long, strings.Repeat("a", 63)} {
		addr, ok := NameAddr(name, 8080)
		if text := AddrText(addr); !ok || text != name+":8080" {
			t.Errorf("NameAddr(%q) = %v, %t, with text %q", name, addr, ok, text)
		}
		if key := keyOf(&Endpoint{Addr: addr}); key != AddrText(addr) {
			t.Errorf("the hash key of %s is %q", name, key)
		}
		if back, ok := ParseAddr(AddrText(addr)); !ok || back != addr {
			t.Errorf("ParseAddr(%q) = %v, %t, want %v", AddrText(addr), back, ok, addr)
		}
	}
	for _, name := range []string{"", ".", "a..b", ".a", "1.2.3.4", "1.2.3.256", "1.2.3", "7", "a.7", "a.7.", "::1", "[::1]", "fe80::1%eth0", "a%b", "a b", "a:80", "a/b", "-a", "a-", "ä.de",
		"a\x00", long + "a", strings.Repeat("a", 64)} {
		if addr, ok := NameAddr(name, 1); ok || addr.IsValid() {
			t.Errorf("NameAddr(%q) = %v, %t, want not ok", name, addr, ok)
		}
	}
	for _, text := range []string{"10.0.0.1:80", "[::1]:80", "[::]:0"} {
		if addr, ok := ParseAddr(text); !ok || addr != netip.MustParseAddrPort(text) || AddrText(addr) != text {
			t.Errorf("ParseAddr(%q) = %v, %t, with text %q", text, addr, ok, AddrText(addr))
		}
	}
	for _, text := range []string{"", "a", "a:", ":80", "a:65536", "a:-1", "a:+1", "a:http", "[::%a]:80", "[fe80::1%eth0]:80", "1.2.3.4.5:80", "::1:80"} {
		if addr, ok := ParseAddr(text); ok {
			t.Errorf("ParseAddr(%q) = %v, want not ok", text, addr)
		}
	}
}
