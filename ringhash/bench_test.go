// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"fmt"
	"sort"
	"strconv"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/xdslb/xdslb/bench/kit"
)

// plainRing is the ring as it is commonly built: a pointer per entry, a string per
// hash, a comparison sort, a binary search, and states of hosts in a map by key.
// It is the peer in these benchmarks.
type plainRing []*plainEntry

type plainEntry struct {
	index  int
	hash   uint64
	key    string
	host   int
	weight uint32
}

func newPlainRing(members []member) plainRing {
	var ring plainRing
	for _, m := range members {
		for i := range int(m.count) {
			hash := xxhash.Sum64String(m.key + "_" + strconv.Itoa(i))
			ring = append(ring, &plainEntry{hash: hash, key: m.key, host: int(m.host), weight: m.weight})
		}
	}
	sort.Slice(ring, func(i, j int) bool { return ring[i].hash < ring[j].hash })
	for i, e := range ring {
		e.index = i
	}
	return ring
}

func (r plainRing) pick(hash uint64) *plainEntry {
	i := sort.Search(len(r), func(i int) bool { return r[i].hash >= hash })
	if i == len(r) {
		i = 0
	}
	return r[i]
}

func (r plainRing) pickUsable(hash uint64, usable map[string]bool) *plainEntry {
	first := r.pick(hash)
	for i := range r {
		e := r[(first.index+i)%len(r)]
		if usable[e.key] {
			return e
		}
	}
	return first
}

// benchHosts returns n hosts of equal weight with addresses for keys.
func benchHosts(n int) []Host {
	hosts := make([]Host, n)
	for i := range hosts {
		hosts[i] = Host{Key: fmt.Sprintf("10.%d.%d.%d:8080", i>>16, i>>8&255, i&255), Weight: 1}
	}
	return hosts
}

// benchHashes returns more hashes than a branch predictor can learn.
func benchHashes() []uint64 {
	rng := newRand(1)
	hashes := make([]uint64, 1<<16)
	for i := range hashes {
		hashes[i] = rng.Uint64()
	}
	return hashes
}

func mustNew(tb testing.TB, hosts []Host, minSize, maxSize uint64, fn Func) *Ring {
	tb.Helper()
	r, err := New(hosts, minSize, maxSize, fn)
	kit.Must(tb, err)
	return r
}

// primes has a size of Maglev table for each size of ring.
var primes = map[int]uint64{4096: 4099, 65536: 65537, 1 << 20: 1<<20 + 7}

var sink int

// BenchmarkPick is one lookup in a ring of 1000 hosts. The loops are written out,
// for a call through a function value costs as much as a pick.
func BenchmarkPick(b *testing.B) {
	hashes := benchHashes()
	next := 0
	draw := func() uint64 {
		next++
		return hashes[next&(len(hashes)-1)]
	}
	hosts := benchHosts(1000)
	for _, n := range []int{4096, 65536, 1 << 20} {
		ring := mustNew(b, hosts, uint64(n), uint64(n), XXH64)
		b.Run(fmt.Sprintf("impl=baseline/n=%d", n), func(b *testing.B) {
			for b.Loop() {
				sink += int(draw() & 1023)
			}
		})
		b.Run(fmt.Sprintf("impl=ring/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink += ring.Pick(draw())
			}
		})
		plain := newPlainRing(ring.members)
		b.Run(fmt.Sprintf("impl=sortsearch/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink += plain.pick(draw()).host
			}
		})
		maglev := mustMaglev(b, hosts, primes[n], XXH64)
		b.Run(fmt.Sprintf("impl=maglev/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink += maglev.Pick(draw())
			}
		})
	}
}

// BenchmarkPickDown is one lookup of a usable host in a ring of 4096 entries and
// 1000 hosts of which some percentage is down.
func BenchmarkPickDown(b *testing.B) {
	hashes := benchHashes()
	next := 0
	draw := func() uint64 {
		next++
		return hashes[next&(len(hashes)-1)]
	}
	hosts := benchHosts(1000)
	ring := mustNew(b, hosts, 4096, 4096, XXH64)
	plain := newPlainRing(ring.members)
	for _, down := range []int{0, 50, 99, 100} {
		usable := make([]bool, len(hosts))
		usableByKey := make(map[string]bool)
		for i, host := range newRand(2).Perm(len(hosts)) {
			usable[host] = i >= len(hosts)*down/100
			usableByKey[hosts[host].Key] = usable[host]
		}
		view := ring.Restrict(usable)
		b.Run(fmt.Sprintf("impl=view/down=%d", down), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				host, _ := view.Pick(draw())
				sink += host
			}
		})
		b.Run(fmt.Sprintf("impl=walk/down=%d", down), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink += plain.pickUsable(draw(), usableByKey).host
			}
		})
	}
}

// BenchmarkBuild is a build from 1000 hosts. With skew, one of them is a million times heavier
// than the rest.
func BenchmarkBuild(b *testing.B) {
	hosts := benchHosts(1000)
	skewed := benchHosts(1000)
	skewed[0].Weight = 1 << 20
	for _, n := range []int{4096, 65536, 1 << 20} {
		size := uint64(n)
		b.Run(fmt.Sprintf("impl=ring/fn=xxh3/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustNew(b, hosts, size, size, XXH3)
			}
		})
		b.Run(fmt.Sprintf("impl=ring/fn=xxh64/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustNew(b, hosts, size, size, XXH64)
			}
		})
		members := mustNew(b, hosts, size, size, XXH64).members
		b.Run(fmt.Sprintf("impl=plain/fn=xxh64/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				newPlainRing(members)
			}
		})
		b.Run(fmt.Sprintf("impl=maglev/fn=xxh64/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustMaglev(b, hosts, primes[n], XXH64)
			}
		})
		b.Run(fmt.Sprintf("impl=maglev/fn=xxh64/n=%d/skew=1048576", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustMaglev(b, skewed, primes[n], XXH64)
			}
		})
	}
}

// BenchmarkUpdate is the replacement of one host of 1000.
func BenchmarkUpdate(b *testing.B) {
	hosts := benchHosts(1001)
	for _, n := range []uint64{4096, 65536, 1 << 20} {
		ring := mustNew(b, hosts[:1000], n, n, XXH64)
		replaced := append([]Host{hosts[1000]}, hosts[1:1000]...)
		b.Run(fmt.Sprintf("impl=update/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ring.Update(replaced); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("impl=new/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustNew(b, replaced, n, n, XXH64)
			}
		})
		members := mustNew(b, replaced, n, n, XXH64).members
		b.Run(fmt.Sprintf("impl=plain/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				newPlainRing(members)
			}
		})
	}
}

// BenchmarkRestrict is the change of a host's state among 1000.
func BenchmarkRestrict(b *testing.B) {
	hosts := benchHosts(1000)
	usable := make([]bool, len(hosts))
	for i := range usable {
		usable[i] = i%3 > 0
	}
	for _, n := range []uint64{4096, 65536, 1 << 20} {
		ring := mustNew(b, hosts, n, n, XXH64)
		b.Run(fmt.Sprintf("impl=ring/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ring.Restrict(usable)
			}
		})
	}
}
