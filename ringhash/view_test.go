// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// slowViewPick walks the ring from the entry of a hash to the first usable host.
func slowViewPick(r *Ring, usable []bool, hash uint64) (host int, ok bool) {
	for host := range r.Walk(hash) {
		if host < len(usable) && usable[host] {
			return host, true
		}
	}
	return r.Pick(hash), false
}

// A view picks the result of a walk on the ring (gRFC A61), for any share of usable hosts,
// including none and all, and for lists of any length.
func TestViewMatchesWalk(t *testing.T) {
	rng := newRand(11)
	for range 600 {
		hosts := randomHosts(rng, 30)
		minSize, maxSize := randomSizes(rng, 200)
		r := mustNew(t, hosts, minSize, maxSize, funcs[rng.IntN(2)])
		usable := randomStates(rng, rng.IntN(len(hosts)+3))
		before := slices.Clone(r.entries)
		v := r.Restrict(usable)
		if !slices.Equal(r.entries, before) {
			t.Fatal("Restrict changed the ring")
		}
		for _, hash := range probesOf(rng, entriesOf(t, r)) {
			wantHost, wantOK := slowViewPick(r, usable, hash)
			if host, ok := v.Pick(hash); host != wantHost || ok != wantOK {
				t.Fatalf("Pick(%#x) = %d, %v, want %d, %v with usable %v", hash, host, ok, wantHost, wantOK, usable)
			}
		}
	}
}

// randomStates returns n states of which none, few, half, most or all are true.
func randomStates(rng *rand.Rand, n int) []bool {
	share := []float64{0, 0.05, 0.5, 0.95, 1}[rng.IntN(5)]
	states := make([]bool, n)
	for i := range states {
		states[i] = rng.Float64() < share
	}
	return states
}

// Requests of usable hosts do not move when other hosts fail.
func TestRestrictMovesOnlyFailedHosts(t *testing.T) {
	rng := newRand(12)
	r := mustNew(t, benchHosts(50), 4096, 4096, XXH64)
	usable := make([]bool, 50)
	for i := range usable {
		usable[i] = i%7 != 0
	}
	v := r.Restrict(usable)
	for range 10_000 {
		hash := rng.Uint64()
		host, ok := v.Pick(hash)
		if was := r.Pick(hash); !ok || !usable[host] || usable[was] && host != was {
			t.Fatalf("Pick(%#x) = %d, %v, was %d", hash, host, ok, was)
		}
	}
}

// With no host usable, the host of the ring is the one whose error is reported.
func TestRestrictToNone(t *testing.T) {
	r := mustNew(t, benchHosts(5), 64, 64, XXH3)
	for _, usable := range [][]bool{nil, {}, make([]bool, 5), make([]bool, 9)} {
		v := r.Restrict(usable)
		if host, ok := v.Pick(1 << 63); ok || host != r.Pick(1<<63) {
			t.Errorf("Pick = %d, %v, want %d, false", host, ok, r.Pick(1<<63))
		}
	}
}

// A view of all hosts or of none takes no memory of its own.
func TestRestrictShares(t *testing.T) {
	r := mustNew(t, benchHosts(5), 64, 64, XXH3)
	for _, test := range []struct {
		usable []bool
		want   bool
	}{
		{nil, true},
		{[]bool{true, true, true, true, true}, true},
		{[]bool{true, true, false, true, true}, false},
	} {
		if got := &r.Restrict(test.usable).entries[0] == &r.entries[0]; got != test.want {
			t.Errorf("Restrict(%v) shares entries: %v, want %v", test.usable, got, test.want)
		}
	}
}

// A ring of which an update left hosts where they are keeps serving views by the
// new indexes.
func TestRestrictAfterUpdate(t *testing.T) {
	hosts := benchHosts(4)
	r := mustNew(t, hosts, 64, 64, XXH64)
	slices.Reverse(hosts)
	r = mustUpdate(t, r, hosts)
	v := r.Restrict([]bool{false, false, true})
	for hash := range uint64(100) {
		if host, ok := v.Pick(hash * golden); host != 2 || !ok {
			t.Fatalf("Pick(%#x) = %d, %v, want 2, true", hash*golden, host, ok)
		}
	}
}

func TestViewPickDoesNotAllocate(t *testing.T) {
	v := mustNew(t, benchHosts(100), 4096, 4096, XXH64).Restrict([]bool{99: true})
	hash := uint64(0)
	got := testing.AllocsPerRun(1000, func() {
		hash += golden
		host, _ := v.Pick(hash)
		sink += host
	})
	if got != 0 {
		t.Errorf("Pick allocates %v times", got)
	}
}
