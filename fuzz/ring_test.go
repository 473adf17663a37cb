// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit/slow"
	"github.com/xdslb/xdslb/ringhash"
)

// hostsOf makes hosts of keys, one a line, and as many weights; 1 if there are
// fewer weights.
func hostsOf(keys string, list []byte) (hosts []ringhash.Host) {
	weights := decodeWeights(list)
	for i, key := range strings.Split(keys, "\n") {
		h := ringhash.Host{Key: key, Weight: 1}
		if i < len(weights) {
			h.Weight = weights[i]
		}
		if hosts = append(hosts, h); len(hosts) == 40 {
			break
		}
	}
	return hosts
}

func validHosts(hosts []ringhash.Host) bool {
	weights := make([]uint32, len(hosts))
	for i, h := range hosts {
		weights[i] = h.Weight
	}
	return validWeights(weights)
}

// FuzzRing compares a ring with sorted entries, and its derivatives with
// each other: Restrict with a walk, Update with New.
func FuzzRing(f *testing.F) {
	for i, w := range weightSeeds {
		f.Add("10.0.0.1:80\n10.0.0.2:80\n10.0.0.3:80\n10.0.0.4:80", encodeWeights(w), uint16(8), uint16(64), i%3 > 0, uint64(5), "10.0.0.2:80\n10.0.0.9:80")
	}
	f.Add("a\nb", encodeWeights([]uint32{math.MaxUint32 - 1, 1}), uint16(9), uint16(9), true, uint64(2), "a\nb\nc") // the largest sum
	f.Add("a\na\n\n", []byte{}, uint16(10), uint16(10), true, uint64(1), "a")                                       // equal keys and no key
	f.Add("a\nb\nc", []byte{}, uint16(10), uint16(2), true, uint64(0), "b\na\nc")                                   // more hosts than entries; max below min
	f.Add("a\nb\nc\nd\ne", []byte{}, uint16(1), uint16(2), false, ^uint64(0), "e\nd\nc\nb")                         // likewise
	f.Fuzz(func(t *testing.T, keys string, list []byte, minSize, maxSize uint16, xxh64 bool, usable uint64, others string) {
		minSize, maxSize = minSize%1024, maxSize%2048
		fn := ringhash.XXH3
		if xxh64 {
			fn = ringhash.XXH64
		}
		hosts := hostsOf(keys, list)
		r, err := ringhash.New(hosts, uint64(minSize), uint64(maxSize), fn)
		if ok := validHosts(hosts) && 1 <= minSize && minSize <= maxSize; ok != (err == nil) {
			t.Fatalf("%d to %d entries for %v: error is %v", minSize, maxSize, hosts, err)
		}
		if err != nil {
			return
		}
		entries := slow.Ring(hosts, uint64(minSize), uint64(maxSize), xxh64)
		if r.Len() != len(entries) {
			t.Fatalf("%d to %d entries for %v: got %d, want %d", minSize, maxSize, hosts, r.Len(), len(entries))
		}
		walk := slices.Collect(r.Walk(0))
		for i, e := range entries {
			checkPlace(t, r, entries, e.Hash)
			checkPlace(t, r, entries, e.Hash+1)
			if walk[i] != e.Host {
				t.Fatalf("host %d of the walk is %d, want %d", i, walk[i], e.Host)
			}
		}
		checkRestricted(t, r, len(hosts), usable)

		moved := hostsOf(others, list)
		updated, err := r.Update(moved)
		fresh, freshErr := ringhash.New(moved, uint64(minSize), uint64(maxSize), fn)
		if (err != nil) != (freshErr != nil) {
			t.Fatalf("Update to %v: %v, New: %v", moved, err, freshErr)
		}
		if err != nil {
			return
		}
		if updated.Len() != fresh.Len() {
			t.Fatalf("%d entries after Update to %v, want %d", updated.Len(), moved, fresh.Len())
		}
		if got, want := slices.Collect(updated.Walk(0)), slices.Collect(fresh.Walk(0)); !slices.Equal(got, want) {
			t.Fatalf("Update from %v to %v has hosts %v, New has %v", hosts, moved, got, want)
		}
		for i := range fresh.Len() {
			if hash := uint64(i) * 0x9e3779b97f4a7c15; updated.Pick(hash) != fresh.Pick(hash) {
				t.Fatalf("Update from %v to %v differs from New at hash %#x", hosts, moved, hash)
			}
		}
	})
}

// checkPlace compares the place of a hash with the first entry at or after it.
func checkPlace(t *testing.T, r *ringhash.Ring, entries []slow.Entry, hash uint64) {
	t.Helper()
	want := slices.IndexFunc(entries, func(e slow.Entry) bool { return e.Hash >= hash })
	want = max(want, 0) // around the circle
	if r.Pick(hash) != entries[want].Host {
		t.Fatalf("hash %#x belongs to host %d, want %d", hash, r.Pick(hash), entries[want].Host)
	}
	k := want
	for host := range r.Walk(hash) {
		if host != entries[k].Host {
			t.Fatalf("the walk of hash %#x has host %d at entry %d, want %d", hash, host, k, entries[k].Host)
		}
		if k = (k + 1) % len(entries); k == (want+3)%len(entries) {
			break
		}
	}
}

// checkRestricted compares Restrict with a walk from entry to entry (A61, T-RING-8).
func checkRestricted(t *testing.T, r *ringhash.Ring, hosts int, mask uint64) {
	t.Helper()
	usable := make([]bool, hosts)
	for i := range usable {
		usable[i] = mask>>i&1 != 0
	}
	v := r.Restrict(usable)
	for i := range uint64(64) {
		hash := i<<58 + mask>>6
		want, ok := r.Pick(hash), false
		for host := range r.Walk(hash) {
			if usable[host] {
				want, ok = host, true
				break
			}
		}
		if got, found := v.Pick(hash); got != want || found != ok {
			t.Fatalf("with usable %v, Pick(%#x) = %d, %v, want %d, %v", usable, hash, got, found, want, ok)
		}
	}
}

// FuzzMaglev compares Maglev tables with Envoy's way of filling them.
func FuzzMaglev(f *testing.F) {
	for i, w := range weightSeeds {
		f.Add("10.0.0.1:80\n10.0.0.2:80\n10.0.0.3:80\n10.0.0.4:80", encodeWeights(w), uint16([]int{101, 7, 251, 2}[i%4]), i%3 > 0)
	}
	f.Add("a\nb\nc", []byte{}, uint16(2), true)  // more hosts than slots
	f.Add("a\nb\nc", []byte{}, uint16(91), true) // not a prime
	f.Add("a\na\n", []byte{}, uint16(1), false)  // neither
	f.Fuzz(func(t *testing.T, keys string, list []byte, n uint16, xxh64 bool) {
		size, fn := uint64(n)%1024, ringhash.XXH3
		if xxh64 {
			fn = ringhash.XXH64
		}
		hosts := hostsOf(keys, list)
		m, err := ringhash.NewMaglev(hosts, size, fn)
		if ok := validHosts(hosts) && prime(size); ok != (err == nil) {
			t.Fatalf("size %d for %v: error is %v", size, hosts, err)
		}
		if err != nil {
			return
		}
		want := slow.Maglev(hosts, size, xxh64)
		for slot := range size {
			if got := m.Pick(slot + size<<20); got != want[slot] {
				t.Fatalf("size %d for %v: slot %d has host %d, want %d", size, hosts, slot, got, want[slot])
			}
		}
	})
}

func prime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}
