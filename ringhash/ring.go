// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"errors"
	"fmt"
)

// MaxSize is the largest ring that can be asked for (T-RING-5).
const MaxSize = 8 << 20

// Ring is a consistent-hash ring (gRFC A42): each host owns points on the circle
// of 64-bit hashes, and a request belongs to the first point at or after its
// hash. A Ring is immutable and safe for concurrent use. Create one with [New];
// the zero Ring must not be used.
//
// It holds 12 bytes per entry, 4 to 8 bytes per entry of index, and 32 bytes
// per host in addition to the host keys, which it shares with the caller.
type Ring struct {
	index
	hosts []uint32 // host of each position, and of the sentinel

	// The rest is read by Update only.
	members []member
	minSize uint64
	maxSize uint64
	fn      Func
}

// New builds the ring of hosts. A ring has at least minSize and at most maxSize
// entries, maxSize taking precedence; hosts of small weight may get none when
// maxSize is too small to represent them all.
//
// The sizes must satisfy 1 <= minSize <= maxSize <= [MaxSize]. A caller with a
// lower cap of its own, such as the 4096 of gRFC A42, validates first and then
// passes min(minSize, cap) and min(maxSize, cap) (T-RING-5).
//
// Building is linear in the size of the ring, plus O(n log n) for n hosts.
func New(hosts []Host, minSize, maxSize uint64, fn Func) (*Ring, error) {
	if err := fn.validate(); err != nil {
		return nil, err
	}
	if err := validateSizes(minSize, maxSize); err != nil {
		return nil, err
	}
	r := &Ring{minSize: minSize, maxSize: maxSize, fn: fn}
	members, size, err := r.place(hosts)
	if err != nil {
		return nil, err
	}
	r.build(members, size)
	return r, nil
}

func validateSizes(minSize, maxSize uint64) error {
	switch {
	case minSize == 0:
		return errors.New("ringhash: minimum ring size is 0, must be at least 1")
	case maxSize == 0:
		return errors.New("ringhash: maximum ring size is 0, must be at least 1")
	case minSize > maxSize:
		return fmt.Errorf("ringhash: minimum ring size %d exceeds maximum ring size %d", minSize, maxSize)
	case maxSize > MaxSize:
		return fmt.Errorf("ringhash: maximum ring size %d exceeds %d", maxSize, MaxSize)
	}
	return nil
}

// place ranks hosts and apportions a ring of r's sizes among them.
func (r *Ring) place(hosts []Host) (members []member, size int, err error) {
	members, sum, err := rank(hosts)
	if err != nil {
		return nil, 0, err
	}
	return members, apportion(members, sum, r.minSize, r.maxSize), nil
}

// Pick returns the index of the host that a request with this hash belongs to.
// O(1) expected for hashes that are uniformly distributed; does not allocate.
func (r *Ring) Pick(hash uint64) int { return int(r.hosts[r.seek(hash)]) }

// Len returns the number of entries in the ring.
func (r *Ring) Len() int { return len(r.hashes) - 1 }

// Position returns the position of the entry that a request with this hash
// belongs to, from which [Ring.Next] walks on: a caller that must pass over
// hosts in some state (gRFC A61) keeps that state in an array by host index.
// Where all entries of failed hosts are to be skipped, [Ring.Restrict] does so
// in constant time.
func (r *Ring) Position(hash uint64) int { return r.wrap(r.seek(hash)) }

// HostAt returns the index of the host at a position in [0, Len).
func (r *Ring) HostAt(pos int) int { return int(r.hosts[pos]) }

// Next returns the position after pos on the circle.
func (r *Ring) Next(pos int) int { return r.wrap(pos + 1) }

// index finds positions in a sorted array of hashes.
type index struct {
	// start[b] is the first position whose hash is in bucket b or above, where
	// the bucket of a hash is its leading bits. There are as many buckets as
	// entries, or up to twice as many, so a bucket holds at most one on average.
	start []uint32

	// hashes ascends and ends with a sentinel of all ones beyond the last entry,
	// so the scan of a bucket needs no end.
	hashes []uint64

	shift uint // bucket of h is h >> shift; 1 to 63
}

// seek returns the first position whose hash is at or above the given one, or
// the sentinel's. The scan compares less than once on average over uniform
// hashes, even if the entries crowd in few buckets: a bucket is hit with
// probability 1/buckets, so the mean is at most entries/buckets.
func (x *index) seek(hash uint64) int {
	p := int(x.start[hash>>(x.shift&63)])
	for x.hashes[p] < hash {
		p++
	}
	return p
}

// wrap turns the position of the sentinel into that of the first entry.
func (x *index) wrap(pos int) int {
	if pos == len(x.hashes)-1 {
		return 0
	}
	return pos
}
