// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"math"
	"math/bits"
)

// entry is a point on the circle and the host that owns it. Stored in two halves, the hash
// keeps the entry at 12 bytes, where a uint64 would pad it to 16; the compiler combines the
// halves into one load. Together, hash and host cost one cache miss, where separate arrays
// would cost two, which matters in rings larger than the caches.
type entry struct {
	lo, hi uint32
	host   uint32
}

func newEntry(hash uint64, host uint32) entry {
	return entry{lo: uint32(hash), hi: uint32(hash >> 32), host: host}
}

func (e *entry) hash() uint64 { return uint64(e.hi)<<32 | uint64(e.lo) }

// index finds positions in entries that ascend by hash.
type index struct {
	// start[b] is the first position whose hash is in bucket b or above, where the bucket of a
	// hash is its leading bits. There are at least as many buckets as entries, and at most
	// twice as many, so a bucket holds at most one on average.
	start []uint32

	// entries ends with a sentinel beyond the last entry: its hash is all ones, so
	// that no scan runs past it, and its host is that of the first entry, so that
	// the circle closes without a comparison.
	entries []entry

	shift uint // the bucket of h is h >> shift; 1 to 63
}

// newIndex returns the index over sorted entries with the given bucket starts. sorted must have
// capacity for the sentinel.
func newIndex(sorted []entry, start []uint32) index {
	shift := bucketShift(len(sorted))
	return index{start, append(sorted, newEntry(math.MaxUint64, sorted[0].host)), shift}
}

// len returns the number of entries without the sentinel.
func (x *index) len() int { return len(x.entries) - 1 }

// seek returns the first position whose hash is at or above the given one, or that of the
// sentinel. Over uniform hashes the scan passes at most one entry on average, even if the
// entries are concentrated in few buckets: the longer a bucket is, the more of the other
// buckets are empty.
//
// Whether the scan passes zero entries or one is not predictable, so the first step is
// arithmetic instead of a branch. That saves a third of a pick if the ring is in the caches.
func (x *index) seek(hash uint64) int {
	p := uint64(x.start[hash>>(x.shift&63)])
	_, below := bits.Sub64(x.entries[p].hash(), hash, 0)
	p += below
	for x.entries[p].hash() < hash {
		p++
	}
	return int(p)
}

// wrap turns the position of the sentinel into that of the first entry.
func (x *index) wrap(pos int) int {
	if pos == x.len() {
		return 0
	}
	return pos
}

// makeEntries returns n entries with capacity for a sentinel.
func makeEntries(n int) []entry { return make([]entry, n, n+1) }

// bucketShift returns the shift that maps hashes to at least n and less than 2n
// buckets, or to two for n = 1.
func bucketShift(n int) uint {
	return 64 - uint(max(1, bits.Len(uint(n-1))))
}

// bucketStarts returns the start of each bucket of sorted entries. O(n). It has no branches
// that depend on hashes: the last entry of a bucket sets the start of the next bucket, and
// empty buckets inherit theirs.
func bucketStarts(sorted []entry) []uint32 {
	shift := bucketShift(len(sorted)) & 63
	start := make([]uint32, 1<<(64-shift)+1)
	for i := range sorted {
		start[sorted[i].hash()>>shift+1] = uint32(i + 1)
	}
	last := uint32(0)
	for b, p := range start {
		last = max(last, p)
		start[b] = last
	}
	return start
}

// Scattering costs a cache miss per entry once the ring exceeds the caches. Above this number
// of entries they are first partitioned by their leading partitionBits bits, after which the
// scatter stays within one part at a time.
const (
	partitionAbove = 1 << 17
	partitionBits  = 10
)

// sortEntries returns the entries in ascending order of hash, entries of equal hash in the
// given order, together with the start of each bucket. It overwrites entries, which must have
// capacity for a sentinel. O(n) for uniform hashes.
//
// This is a counting sort by bucket and one pass of insertion sort, which suffices since a
// bucket has about one entry. The offsets of the buckets are the lookup index.
func sortEntries(entries []entry) (sorted []entry, start []uint32) {
	src, dst := entries, makeEntries(len(entries))
	if len(entries) > partitionAbove {
		scatter(dst, src, 64-partitionBits)
		src, dst = dst, src
	}
	start = scatter(dst, src, bucketShift(len(entries)))
	insertionSort(dst)
	return dst, start
}

// scatter copies src to dst in ascending order of bucket, entries of one bucket in the order of
// src, and returns the start of each bucket in dst. O(n).
func scatter(dst, src []entry, shift uint) (start []uint32) {
	shift &= 63
	start = make([]uint32, 1<<(64-shift)+1)

	// Counts, and then offsets, are stored one position to the right. Filling a bucket moves
	// its offset to its end, which is the start of the next bucket: so all starts are correct,
	// and in place, when all buckets are full.
	at := start[1:]
	for i := range src {
		at[src[i].hash()>>shift]++
	}
	sum := uint32(0)
	for b, count := range at {
		at[b] = sum
		sum += count
	}
	for i := range src {
		b := src[i].hash() >> shift
		p := at[b]
		at[b] = p + 1
		dst[p] = src[i]
	}
	return start
}

// insertionSort sorts entries by hash and is stable. O(n + inversions).
func insertionSort(entries []entry) {
	for i := 1; i < len(entries); i++ {
		e := entries[i]
		hash := e.hash()
		j := i
		for ; j > 0 && entries[j-1].hash() > hash; j-- {
			entries[j] = entries[j-1]
		}
		if j < i {
			entries[j] = e
		}
	}
}
