// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"errors"
	"fmt"
	"iter"
)

// sizeLimit is the maximum configurable ring size (T-RING-5).
const sizeLimit = 8 << 20

// Ring is a consistent-hash ring (gRFC A42): each host owns points on the circle of 64-bit
// hashes, and a request belongs to the first point at or after its hash. A Ring is immutable
// and safe for concurrent use. Create one with [New]; the zero Ring must not be used.
//
// It holds 12 bytes per entry, 4 to 8 bytes per entry of index, and 32 bytes per host in
// addition to the host keys, which it shares with the caller.
type Ring struct {
	index

	// The remaining fields are used by Update and Restrict only.
	members []member
	minSize uint64
	maxSize uint64
	fn      Func
}

// New builds the ring of hosts. A ring has at least minSize and at most maxSize entries,
// maxSize taking precedence; hosts of small weight may get no entry when maxSize is too small
// to represent them all.
//
// The sizes must satisfy 1 <= minSize <= maxSize <= 8388608. A caller with a lower cap of its
// own, such as the 4096 of gRFC A42, validates first and then passes min(minSize, cap) and
// min(maxSize, cap) (T-RING-5).
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
	case maxSize > sizeLimit:
		return fmt.Errorf("ringhash: maximum ring size %d exceeds %d", maxSize, sizeLimit)
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

// build initializes r as the ring of members, whose counts add up to size.
func (r *Ring) build(members []member, size int) {
	entries := makeEntries(size)
	rest := entries
	for _, m := range members {
		r.fn.points(rest[:m.count], m.key, m.host, 0)
		rest = rest[m.count:]
	}
	r.members = members
	r.index = newIndex(sortEntries(entries))
}

// Pick returns the index of the host to which a request with this hash belongs. O(1) expected
// over uniform hashes; does not allocate.
func (r *Ring) Pick(hash uint64) int { return int(r.entries[r.seek(hash)].host) }

// Len returns the number of entries in the ring.
func (r *Ring) Len() int { return r.len() }

// Walk returns an iterator over the hosts of a request with this hash, in order: the host of
// its entry, then the hosts of all following entries, once around the circle. A host is
// repeated for each of its entries. Walk is for callers that skip hosts by a state that changes
// from one pick to the next. [Ring.Restrict] skips failed hosts in constant time. Does not
// allocate in a range statement.
func (r *Ring) Walk(hash uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		pos := r.wrap(r.seek(hash))
		for range r.len() {
			if !yield(int(r.entries[pos].host)) {
				return
			}
			pos = r.wrap(pos + 1)
		}
	}
}
