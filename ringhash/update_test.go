// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// mustUpdate updates r to hosts and checks that the result equals that of New.
func mustUpdate(t *testing.T, r *Ring, hosts []Host) *Ring {
	t.Helper()
	before := slices.Clone(r.entries)
	got, err := r.Update(hosts)
	kit.Must(t, err)
	if !slices.Equal(before, r.entries) {
		t.Fatal("Update changed the ring that it was called on")
	}
	checkInvariants(t, got)
	want := mustNew(t, hosts, r.minSize, r.maxSize, r.fn)
	if got.shift != want.shift || !slices.Equal(got.start, want.start) || !slices.Equal(got.entries, want.entries) {
		t.Fatalf("ring of %d entries updated to %v differs from New: %d entries, want %d", r.Len(), hosts, got.Len(), want.Len())
	}
	return got
}

// change returns hosts after a random step of a rollout.
func change(rng *rand.Rand, hosts []Host, pool []Host) []Host {
	hosts = slices.Clone(hosts)
	at := rng.IntN(len(hosts))
	switch rng.IntN(8) {
	case 0, 1:
		hosts = slices.Insert(hosts, at, pool[rng.IntN(len(pool))])
	case 2, 3:
		if len(hosts) > 1 {
			hosts = slices.Delete(hosts, at, at+1)
		}
	case 4:
		hosts[at].Weight = rng.Uint32N(5)
	case 5:
		rng.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	case 6:
		hosts[at] = pool[rng.IntN(len(pool))]
	case 7:
		for i := range hosts {
			hosts[i].Weight *= 2
		}
	}
	hosts[rng.IntN(len(hosts))].Weight |= 1
	for i := range hosts {
		hosts[i].Weight %= 1 << 20
	}
	return hosts
}

// TestUpdateMatchesNew checks that updates lead to the ring that New builds for the last list (go#6927):
// hosts are added, removed, reweighted or moved, have equal keys or collide.
func TestUpdateMatchesNew(t *testing.T) {
	rng := newRand(8)
	pool := randomHosts(rng, 60)
	for _, key := range xxh64Twins(5) {
		pool = append(pool, Host{key, 1}, Host{key, 2})
	}
	for range 100 {
		hosts := []Host{pool[rng.IntN(len(pool))]}
		hosts[0].Weight = 1
		for range rng.IntN(30) {
			hosts = append(hosts, pool[rng.IntN(len(pool))])
		}
		minSize, maxSize := randomSizes(rng, 1000)
		if rng.IntN(3) == 0 {
			minSize, maxSize = 1+minSize/20, 1+maxSize/20
		}
		r := mustNew(t, hosts, minSize, maxSize, funcs[rng.IntN(2)])
		for range 40 {
			hosts = change(rng, hosts, pool)
			r = mustUpdate(t, r, hosts)
		}
	}
}

// An update shares with the previous ring what it can: all, the index, or nothing.
func TestUpdateKinds(t *testing.T) {
	of := func(hosts []Host, weight uint32) []Host {
		for i := range hosts {
			hosts[i].Weight = weight
		}
		return hosts
	}
	reversed := of(benchHosts(100), 2)
	slices.Reverse(reversed)
	for _, fn := range funcs {
		r := mustNew(t, of(benchHosts(100), 2), 4096, 4200, fn)
		for _, test := range []struct {
			name                string
			hosts               []Host
			sameRing, sameIndex bool
		}{
			{"nothing", of(benchHosts(100), 2), true, true},
			{"all weights times three", of(benchHosts(100), 6), true, true},
			{"weight zero added", append(of(benchHosts(100), 2), Host{"zero", 0}), true, true},
			{"order", reversed, false, true},
			{"one host added", of(benchHosts(101), 2), false, false},
			{"one host removed", of(benchHosts(101), 2)[1:100], false, false},
			{"all hosts replaced", []Host{{"a", 1}, {"b", 1}}, false, false},
		} {
			got := mustUpdate(t, r, test.hosts)
			if ring, index := got == r, &got.start[0] == &r.start[0]; ring != test.sameRing || index != test.sameIndex {
				t.Errorf("function %d, %s: same ring %v, same index %v, want %v, %v", fn, test.name, ring, index, test.sameRing, test.sameIndex)
			}
		}
	}
}

// Picks from a ring and its views continue while it is updated: the race detector finds no
// writes to shared parts.
func TestConcurrentUse(t *testing.T) {
	hosts := benchHosts(40)
	r := mustNew(t, hosts[:30], 512, 1024, XXH64)
	var current atomic.Pointer[Ring]
	current.Store(r)
	var done atomic.Bool
	var wg sync.WaitGroup
	for g := range uint64(3) {
		wg.Go(func() {
			for hash := g; !done.Load(); hash += golden {
				ring := current.Load()
				view := ring.Restrict([]bool{true, false, true})
				if host, ok := view.Pick(hash); ok && host != 0 && host != 2 {
					t.Errorf("Pick(%#x) = %d, want 0 or 2", hash, host)
				}
				if host := ring.Pick(hash); host >= len(hosts) {
					t.Errorf("Pick(%#x) = %d", hash, host)
				}
			}
		})
	}
	for i := range 50 {
		r = mustUpdate(t, r, hosts[i%10:20+i%20])
		current.Store(r)
	}
	done.Store(true)
	wg.Wait()
}

// Beyond the size at which added entries are partitioned.
func TestUpdateOfLargeRing(t *testing.T) {
	hosts := benchHosts(30)
	r := mustNew(t, hosts[:20], 1<<17, 1<<18, XXH3)
	mustUpdate(t, r, hosts)
	mustUpdate(t, r, hosts[5:])
}

// slowViewPick walks the ring from the entry of a hash to the first usable host.
func slowViewPick(r *Ring, usable []bool, hash uint64) (host int, ok bool) {
	for host := range r.Walk(hash) {
		if host < len(usable) && usable[host] {
			return host, true
		}
	}
	return r.Pick(hash), false
}

// TestViewMatchesWalk checks that a view picks the first usable host of a walk on the ring (A61), for
// random rings and updated rings, any share of usable hosts, and lists of states of any length.
func TestViewMatchesWalk(t *testing.T) {
	rng := newRand(11)
	for range 600 {
		hosts := randomHosts(rng, 30)
		minSize, maxSize := randomSizes(rng, 200)
		r := mustNew(t, hosts, minSize, maxSize, funcs[rng.IntN(2)])
		if rng.IntN(2) == 0 { // the view uses the indexes of the update
			rng.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
			r = mustUpdate(t, r, hosts)
		}
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
