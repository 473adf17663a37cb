// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"math"
	"math/bits"
)

// entries are ring entries in the making: hashes[i] belongs to hosts[i].
type entries struct {
	hashes []uint64
	hosts  []uint32
}

// makeEntries returns n zero entries with room for a sentinel.
func makeEntries(n int) entries {
	return entries{make([]uint64, n, n+1), make([]uint32, n, n+1)}
}

// put writes the points from to to-1 of the host with this key to the front of
// e and returns the rest of e.
func (e entries) put(fn Func, key string, host, from, to uint32) entries {
	n := int(to - from)
	fn.points(e.hashes[:n], key, from)
	hosts := e.hosts[:n]
	for i := range hosts {
		hosts[i] = host
	}
	return entries{e.hashes[n:], e.hosts[n:]}
}

// build makes r the ring of members, whose counts add up to size.
func (r *Ring) build(members []member, size int) {
	all := makeEntries(size)
	rest := all
	for _, m := range members {
		rest = rest.put(r.fn, m.key, m.host, 0, m.count)
	}
	sorted, start := all.sort()
	r.finish(members, sorted, start)
}

// finish sets the fields of r that depend on its hosts.
func (r *Ring) finish(members []member, sorted entries, start []uint32) {
	r.members = members
	r.start = start
	r.shift = bucketShift(len(sorted.hashes))
	r.hashes = append(sorted.hashes, math.MaxUint64)
	r.hosts = append(sorted.hosts, sorted.hosts[0])
}

// bucketShift returns the shift that maps hashes to at least n and less than 2n
// buckets, or two for n = 1.
func bucketShift(n int) uint {
	return 64 - uint(max(1, bits.Len(uint(n-1))))
}

// Scattering costs a cache miss per entry once the ring outgrows the caches.
// Beyond this many entries they are first partitioned by their leading
// partitionBits bits, after which the scatter stays within one part at a time.
const (
	partitionAbove = 1 << 15
	partitionBits  = 10
)

// sort returns e in ascending order of hash, entries of equal hash in the order
// of e, together with the start of each bucket. It overwrites e. O(n) expected.
//
// This is a counting sort by bucket: hashes are uniform, so a bucket has about
// one entry and one pass of insertion sort over all finishes the work. What a
// comparison sort would throw away, the bucket offsets, is the lookup index.
func (e entries) sort() (sorted entries, start []uint32) {
	n := len(e.hashes)
	src, dst := e, makeEntries(n)
	if n > partitionAbove {
		src.scatter(dst, 64-partitionBits)
		src, dst = dst, src
	}
	start = src.scatter(dst, bucketShift(n))
	dst.insertionSort()
	return dst, start
}

// scatter copies e to dst in ascending order of bucket, entries of one bucket in
// the order of e, and returns the start of each bucket in dst. O(n).
func (e entries) scatter(dst entries, shift uint) (start []uint32) {
	shift &= 63
	start = make([]uint32, 1<<(64-shift)+1)

	// Counts, then offsets, are kept one place to the right. Filling a bucket
	// moves its offset to its end, which is the start of the next bucket: so
	// start is correct, and where it belongs, when all is filled.
	at := start[1:]
	for _, h := range e.hashes {
		at[h>>shift]++
	}
	sum := uint32(0)
	for b, count := range at {
		at[b] = sum
		sum += count
	}
	hosts := e.hosts[:len(e.hashes)]
	for i, h := range e.hashes {
		p := at[h>>shift]
		at[h>>shift] = p + 1
		dst.hashes[p] = h
		dst.hosts[p] = hosts[i]
	}
	return start
}

// insertionSort sorts e by hash and is stable. O(n + inversions).
func (e entries) insertionSort() {
	hashes, hosts := e.hashes, e.hosts[:len(e.hashes)]
	for i := 1; i < len(hashes); i++ {
		if hashes[i-1] <= hashes[i] {
			continue
		}
		hash, host := hashes[i], hosts[i]
		j := i
		for ; j > 0 && hashes[j-1] > hash; j-- {
			hashes[j], hosts[j] = hashes[j-1], hosts[j-1]
		}
		hashes[j], hosts[j] = hash, host
	}
}
