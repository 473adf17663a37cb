// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// slowSubset keeps an endpoint if fewer than k endpoints that do not drain precede it.
func slowSubset(endpoints []Endpoint, k int, seed uint64) (kept []Endpoint) {
	hash := func(i int) uint64 {
		d := xxhash.NewWithSeed(seed)
		fmt.Fprint(d, endpoints[i].Addr)
		return d.Sum64()
	}
	for i := range endpoints {
		before := 0
		for j := range endpoints {
			if endpoints[j].Health != Draining && (hash(j) < hash(i) || hash(j) == hash(i) && j < i) {
				before++
			}
		}
		if before < k {
			kept = append(kept, endpoints[i])
		}
	}
	return kept
}

// subset returns the endpoints that are left of a priority with one locality.
func subset(list []Endpoint, k int, seed uint64) []Endpoint {
	return Priority{Localities: []Locality{zone("a", 1, list)}}.Subset(k, seed).Localities[0].Endpoints.Slice()
}

func TestSubsetOracle(t *testing.T) {
	rng := newRand(1)
	for range 300 {
		list := make([]Endpoint, rng.IntN(20))
		for i := range list {
			list[i].Addr = address(rng.IntN(15)) // some are the same
			list[i].Health = pick(rng, Healthy, Healthy, Draining)
		}
		k, seed := rng.IntN(25)-2, rng.Uint64()
		want := slowSubset(list, k, seed)
		p := Priority{}
		for i := 0; i < len(list); {
			n := min(rng.IntN(8), len(list)-i)
			p.Localities = append(p.Localities, zone(fmt.Sprint(i), 5, list[i:i+n]))
			i += n
		}
		var kept []Endpoint
		for i, l := range p.Subset(k, seed).Localities {
			if old := p.Localities[i]; l.ID != old.ID || l.Weight != 5 || l.Endpoints.Len() == old.Endpoints.Len() && !l.Endpoints.Same(old.Endpoints) {
				t.Fatalf("locality %v has become %v", old, l)
			}
			kept = append(kept, l.Endpoints.Slice()...)
		}
		if !slices.Equal(kept, want) {
			t.Fatalf("Subset(%d) of %v keeps %v, want %v", k, list, kept, want)
		}
	}
}

// A68: the input of the hash does not change between versions of this client.
func TestSubsetGolden(t *testing.T) {
	list := endpoints(0, make([]uint32, 12)...)
	for _, test := range []struct {
		seed uint64
		want []int
	}{{0, []int{1, 2, 5, 9}}, {1, []int{0, 1, 7, 8}}, {math.MaxUint64, []int{0, 5, 8, 11}}} {
		var want []Endpoint
		for _, i := range test.want {
			want = append(want, list[i])
		}
		if got := subset(list, 4, test.seed); !slices.Equal(got, want) {
			t.Errorf("seed %d: %v, want %v", test.seed, got, want)
		}
	}
}

// Connections per endpoint as even as chance has them, and one
// endpoint more or less costs a client one connection at most.
func TestSubsetShares(t *testing.T) {
	const clients, n, k = 300, 300, 90
	list := endpoints(0, make([]uint32, n)...)
	rng := newRand(1)
	var counts [n]float64
	changes := 0
	for range clients {
		seed := rng.Uint64()
		var before, after [(n + 63) / 64]uint64
		for _, e := range subset(list, k, seed) {
			i := indexOf(e.Addr)
			counts[i]++
			before[i/64] |= 1 << (i % 64)
		}
		for _, e := range subset(list[:n-1], k, seed) {
			i := indexOf(e.Addr)
			after[i/64] |= 1 << (i % 64)
		}
		gained := 0
		for i := range before {
			gained += bits.OnesCount64(after[i] &^ before[i])
		}
		if gained > 1 {
			t.Fatalf("one endpoint less makes %d new connections", gained)
		}
		changes += gained
	}
	if most := slices.Max(counts[:]); most > clients*k/n*1.4 {
		t.Errorf("an endpoint has %v connections of %d on average", most, clients*k/n)
	}
	if share := float64(changes) / clients; math.Abs(share-float64(k)/n) > .1 {
		t.Errorf("one endpoint less makes %.2f new connections for each client", share)
	}
}
