// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/big"
	"testing"

	"github.com/xdslb/xdslb/ringhash"
)

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

// Only READY hosts take the overflow.
func TestBalanceStates(t *testing.T) {
	w, hash, _ := ringWorld(PolicyRingHash, RingPolicy{MinSize: 64, MaxSize: 64, BalanceFactor: 100}, zone("a", 1, endpoints(0, 1, 1, 1, 1)))
	for i, state := range []Connectivity{Idle, Connecting, TransientFailure} {
		w.flat(0)[i].Connectivity = state
	}
	s, rng := w.build(t), newRand(1)
	for range 1000 {
		*hash = rng.Uint64()
		if got := s.Pick(bg, "/s/m", 0); got.Outcome == Picked && got.Index != 3 {
			t.Fatalf("picked endpoint %d, want the one that is READY", got.Index)
		}
	}
}
