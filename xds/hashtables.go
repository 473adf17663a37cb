// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"math/big"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// For a cluster with a hash policy, every channel holds a ring or a table for each of its
// priorities (or localities, if each has its own). The control plane chooses the size in a few
// bytes. So there are bounds on each, and on all of a target together (T-SEC-2):
//
//   - A ring has 4096 entries at most, which package picker enforces, and a Maglev
//     table 65537 slots.
//   - While the clusters of a target need more than TargetOptions.MaxHashBytes, the largest size is
//     halved for all of them, repeatedly. Smaller rings and tables keep their size. The sizes depend
//     on the configuration alone, so all clients of a fleet map a hash to the same endpoint.
const (
	maxRingSize    = 4096 // entries
	maxTableSize   = 65537
	ringEntryBytes = 16
	tableSlotBytes = 2
)

// hashNeed is the number and the size of the rings or tables that one leaf requires. The zero value
// means none.
type hashNeed struct {
	size   uint64 // of each table or ring
	tables uint32 // or rings
	slots  bool   // of Maglev tables, otherwise entries of rings
}

// hashNeedOf returns the rings or tables that a policy requires for endpoints, which are
// *resource.Endpoints, *addresses, or nil.
func hashNeedOf(p *picker.Policy, endpoints any) hashNeed {
	if !p.Hashes() || p.Ring == nil {
		return hashNeed{}
	}
	n := uint32(1) // of DNS
	if endpoints, ok := endpoints.(*resource.Endpoints); ok {
		n = uint32(len(endpoints.Priorities))
		if !p.Flat {
			n = 0
			for i := range endpoints.Priorities {
				n += uint32(len(endpoints.Priorities[i].Localities))
			}
		}
	}
	if p.Kind == picker.PolicyMaglev {
		return hashNeed{p.Ring.MinSize, n, true}
	}
	return hashNeed{p.Ring.MaxSize, n, false}
}

// hashBytes returns the size in bytes of the rings or tables of a leaf, after the largest size has
// been halved some times.
func hashBytes(n hashNeed, halvings uint8) uint64 {
	if n.slots {
		return uint64(n.tables) * tableSlotBytes * tableSize(n.size, halvings)
	}
	return uint64(n.tables) * ringEntryBytes * ringSize(n.size, halvings)
}

// bounded returns the policy with its ring or table bounded.
func bounded(p picker.Policy, halvings uint8) picker.Policy {
	switch {
	case p.Ring == nil:
	case p.Kind == picker.PolicyMaglev && tableSize(p.Ring.MinSize, halvings) != p.Ring.MinSize:
		ring := *p.Ring
		ring.MinSize = tableSize(ring.MinSize, halvings)
		p.Ring = &ring
	case p.Kind != picker.PolicyMaglev && halvings > 0:
		ring := *p.Ring
		ring.MaxSize = ringSize(ring.MaxSize, halvings)
		ring.MinSize = min(ring.MinSize, ring.MaxSize)
		p.Ring = &ring
	}
	return p
}

func ringSize(size uint64, halvings uint8) uint64 {
	return min(size, max(1, uint64(maxRingSize)>>halvings))
}

// tableSize returns the size, or the largest prime that is not above the bound.
func tableSize(size uint64, halvings uint8) uint64 {
	limit := max(2, uint64(maxTableSize)>>halvings)
	if size <= limit {
		return size
	}
	for !new(big.Int).SetUint64(limit).ProbablyPrime(0) {
		limit--
	}
	return limit
}

// halvingsFor returns how often the largest ring or table has to be halved for the needs of a target to
// stay within TargetOptions.MaxHashBytes. needs has the number of uses of leaves by need. O(different needs).
func halvingsFor(needs map[hashNeed]int, limit uint64) (halvings uint8) {
	for ; halvings < 32; halvings++ {
		var sum uint64
		for n, leaves := range needs {
			sum += uint64(leaves) * hashBytes(n, halvings)
		}
		if sum <= limit {
			break
		}
	}
	return halvings
}

// hashNeeds counts the uses of leaves by the clusters of a target, by need: a channel holds rings or tables
// for each cluster that leads to a leaf.
type hashNeeds struct {
	leaves  map[hashNeed]int
	changed bool // since the halvings were computed
}

// add changes the number of uses of leaves with a need.
func (h *hashNeeds) add(n hashNeed, uses int) {
	if n == (hashNeed{}) || uses == 0 {
		return
	}
	h.changed = true
	if h.leaves == nil {
		h.leaves = map[hashNeed]int{}
	}
	if h.leaves[n] += uses; h.leaves[n] == 0 {
		delete(h.leaves, n)
	}
}
