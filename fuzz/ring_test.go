// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"

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

// A slowHost is a host that can be picked, with its share of all weights.
type slowHost struct {
	index int
	key   string
	share float64
}

// slowHosts sorts by key, and by descending weight for equal keys.
func slowHosts(hosts []ringhash.Host) (list []slowHost) {
	sum := 0.0
	for i, h := range hosts {
		if h.Weight > 0 {
			sum += float64(h.Weight)
			list = append(list, slowHost{i, h.Key, 0})
		}
	}
	slices.SortStableFunc(list, func(a, b slowHost) int {
		return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(hosts[b.index].Weight, hosts[a.index].Weight))
	})
	for i := range list {
		list[i].share = float64(hosts[list[i].index].Weight) / sum
	}
	return list
}

// A slowEntry is a point of a ring, and whose it is.
type slowEntry struct {
	hash uint64
	host int
}

// slowRing is Envoy's ring (T-RING-1, T-RING-2): each host has its share of the
// scale, carried over from host to host, as points hashed from "key_0", "key_1"...
func slowRing(hosts []ringhash.Host, minSize, maxSize uint64) (ring []slowEntry) {
	list := slowHosts(hosts)
	least := 1.0
	for _, h := range list {
		least = min(least, h.share)
	}
	scale := min(math.Ceil(least*float64(minSize))/least, float64(maxSize))
	target := 0.0
	for _, h := range list {
		part := scale * h.share
		target += part
		for k := 0; float64(len(ring)) < target; k++ {
			ring = append(ring, slowEntry{xxhash.Sum64String(fmt.Sprint(h.key, "_", k)), h.index})
		}
	}
	slices.SortStableFunc(ring, func(a, b slowEntry) int { return cmp.Compare(a.hash, b.hash) })
	return ring
}

// FuzzRing compares a ring with sorted entries, if the hash is XXH64, and its derivatives with
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
		slow := slowRing(hosts, uint64(minSize), uint64(maxSize))
		if r.Len() != len(slow) {
			t.Fatalf("%d to %d entries for %v: got %d, want %d", minSize, maxSize, hosts, r.Len(), len(slow))
		}
		if xxh64 {
			walk := slices.Collect(r.Walk(0))
			for i, e := range slow {
				checkPlace(t, r, slow, e.hash)
				checkPlace(t, r, slow, e.hash+1)
				if walk[i] != e.host {
					t.Fatalf("host %d of the walk is %d, want %d", i, walk[i], e.host)
				}
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
func checkPlace(t *testing.T, r *ringhash.Ring, slow []slowEntry, hash uint64) {
	t.Helper()
	want := slices.IndexFunc(slow, func(e slowEntry) bool { return e.hash >= hash })
	want = max(want, 0) // around the circle
	if r.Pick(hash) != slow[want].host {
		t.Fatalf("hash %#x belongs to host %d, want %d", hash, r.Pick(hash), slow[want].host)
	}
	k := want
	for host := range r.Walk(hash) {
		if host != slow[k].host {
			t.Fatalf("the walk of hash %#x has host %d at entry %d, want %d", hash, host, k, slow[k].host)
		}
		if k = (k + 1) % len(slow); k == (want+3)%len(slow) {
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

// slowMaglev is Envoy's table: in each round every host whose weight is due takes
// the next free slot of its permutation.
func slowMaglev(hosts []ringhash.Host, size uint64, xxh64 bool) []int {
	hash := func(key string) (uint64, uint64) { return xxh3.HashString(key), xxh3.HashStringSeed(key, 1) }
	if xxh64 {
		hash = func(key string) (uint64, uint64) {
			d := xxhash.NewWithSeed(1)
			d.WriteString(key)
			return xxhash.Sum64String(key), d.Sum64()
		}
	}
	list := slowHosts(hosts)
	most := 0.0
	for _, h := range list {
		most = max(most, h.share)
	}
	table, free := slices.Repeat([]int{-1}, int(size)), size
	turn, step := make([]float64, len(list)), make([]uint64, len(list))
	for round := 1.0; free > 0; round++ {
		for i, h := range list {
			if free == 0 || round*h.share < turn[i] {
				continue
			}
			turn[i] += most
			offset, skip := hash(h.key)
			slot := func() uint64 { return (offset%size + (skip%(size-1)+1)*step[i]) % size }
			for table[slot()] >= 0 {
				step[i]++
			}
			table[slot()] = h.index
			free--
		}
	}
	return table
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
		want := slowMaglev(hosts, size, xxh64)
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
