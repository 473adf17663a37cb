// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"math"
	"testing"

	"github.com/xdslb/xdslb/bench/kit/slow"
)

// slowEntry is an entry of the slow ring.
type slowEntry struct {
	hash uint64
	host int
}

func slowRing(hosts []Host, minSize, maxSize uint64, fn Func) (ring []slowEntry) {
	for _, e := range slow.Ring(hosts, minSize, maxSize, fn == XXH64) {
		ring = append(ring, slowEntry{e.Hash, e.Host})
	}
	return ring
}

// slowSeek returns the position of the first entry at or after hash, wrapping.
func slowSeek(ring []slowEntry, hash uint64) int {
	for p, e := range ring {
		if e.hash >= hash {
			return p
		}
	}
	return 0
}

// entriesOf returns the entries of r, after checking the invariants of every ring.
func entriesOf(tb testing.TB, r *Ring) []slowEntry {
	tb.Helper()
	checkInvariants(tb, r)
	list := make([]slowEntry, r.Len())
	for p := range list {
		list[p] = slowEntry{r.entries[p].hash(), hostAt(r, p)}
	}
	return list
}

// checkRing compares the entries of r with those that the slow ring has.
func checkRing(t *testing.T, r *Ring, hosts []Host) []slowEntry {
	t.Helper()
	got, want := entriesOf(t, r), slowRing(hosts, r.minSize, r.maxSize, r.fn)
	for p := range max(len(got), len(want)) {
		if len(got) != len(want) || got[p] != want[p] {
			t.Fatalf("New of %d hosts, first %v, with sizes %d to %d and function %d: %d entries, want %d; entry %d (hash, index) is %v, want %v",
				len(hosts), hosts[:min(len(hosts), 60)], r.minSize, r.maxSize, r.fn, len(got), len(want), p, got[min(p, len(got)-1)], want[min(p, len(want)-1)])
		}
	}
	return want
}

// position returns the position of the entry that a hash belongs to.
func position(r *Ring, hash uint64) int { return r.wrap(r.seek(hash)) }

// hostAt returns the host at a position.
func hostAt(r *Ring, pos int) int { return int(r.entries[pos].host) }

func checkInvariants(tb testing.TB, r *Ring) {
	tb.Helper()
	n := r.Len()
	if n < 1 {
		tb.Fatalf("Len() = %d", n)
	}
	if got, want := r.entries[n], newEntry(math.MaxUint64, r.entries[0].host); got != want {
		tb.Fatalf("sentinel is %v, want %v", got, want)
	}
	for p := range n {
		if r.entries[p].hash() > r.entries[p+1].hash() {
			tb.Fatalf("hash at %d is above that at %d", p, p+1)
		}
	}
	buckets := 1 << (64 - r.shift)
	if buckets < n || buckets >= 2*n && n > 1 || len(r.start) != buckets+1 {
		tb.Fatalf("%d buckets and %d starts for %d entries", buckets, len(r.start), n)
	}
	for b, p := range r.start[:buckets] {
		first := uint64(b) << r.shift
		if r.entries[p].hash() < first || p > 0 && r.entries[p-1].hash() >= first {
			tb.Fatalf("start[%d] = %d is not the first position in the bucket or above", b, p)
		}
	}
	for _, m := range r.members {
		if m.weight == 0 {
			tb.Fatalf("host %d of weight 0 is a member", m.host)
		}
	}
}
