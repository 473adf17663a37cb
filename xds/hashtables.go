// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"math/big"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// A cluster that is picked from by hash makes every channel hold a ring or a table
// for each of its priorities (or localities, if each has its own), whose size the
// control plane chooses in a few bytes. So there are bounds on each, and on all of a
// target together (T-SEC-2):
//
//   - A ring has 4096 entries at most, which package picker sees to, and a Maglev
//     table has Options.MaxTableSize.
//   - While what a target's clusters ask for exceeds Options.MaxHashBytes, the
//     largest size is cut by half for all of them, as often as it takes. What is
//     smaller stays as it is. The sizes depend on the configuration alone, so all
//     clients of a fleet still agree on where a hash belongs.
const (
	maxRingSize    = 4096 // entries
	ringEntryBytes = 16
	tableSlotBytes = 2

	defaultMaxTableSize = 65537
	defaultMaxHashBytes = 64 << 20
)

// hashBytes is how much memory the rings or tables of a policy with the endpoints
// take, if the largest size has been halved some times; 0 if it has none.
func (o *Options) hashBytes(p *picker.Policy, priorities []picker.Priority, halvings uint8) uint64 {
	if !p.Hashes() || p.Ring == nil {
		return 0
	}
	n := uint64(len(priorities))
	if !p.Flat {
		n = 0
		for i := range priorities {
			n += uint64(len(priorities[i].Localities))
		}
	}
	if p.Kind == picker.PolicyMaglev {
		return n * tableSlotBytes * o.tableSize(p.Ring.MinSize, halvings)
	}
	return n * ringEntryBytes * ringSize(p.Ring.MaxSize, halvings)
}

// bounded returns the policy with its ring or table bounded. It is p itself unless
// that changes something.
func (o *Options) bounded(p picker.Policy, halvings uint8) picker.Policy {
	switch {
	case p.Ring == nil:
	case p.Kind == picker.PolicyMaglev && o.tableSize(p.Ring.MinSize, halvings) != p.Ring.MinSize:
		ring := *p.Ring
		ring.MinSize = o.tableSize(ring.MinSize, halvings)
		p.Ring = &ring
	case p.Kind == picker.PolicyRingHash && halvings > 0:
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
func (o *Options) tableSize(size uint64, halvings uint8) uint64 {
	limit := max(2, o.MaxTableSize>>halvings)
	if size <= limit {
		return size
	}
	for !new(big.Int).SetUint64(limit).ProbablyPrime(0) {
		limit--
	}
	return limit
}

// hashUser is a leaf of which picks hash: its policy, and what it has of endpoints.
type hashUser struct {
	policy    *picker.Policy
	endpoints any // *resource.Endpoints, or that of DNS, or nothing
}

// halvings returns how often the largest ring or table has to be halved for those of a
// target to stay within Options.MaxHashBytes.
func (o *Options) halvings(users []hashUser) (halvings uint8) {
	for ; halvings < 32; halvings++ {
		var sum uint64
		for _, u := range users {
			priorities := []picker.Priority{{Localities: make([]picker.Locality, 1)}} // of DNS
			if endpoints, ok := u.endpoints.(*resource.Endpoints); ok {
				priorities = endpoints.Priorities
			}
			sum += o.hashBytes(u.policy, priorities, halvings)
		}
		if sum <= o.MaxHashBytes {
			break
		}
	}
	return halvings
}

// halvingsLocked returns the halvings of the active plan.
func (m *dependencyManager) halvingsLocked() uint8 {
	var users []hashUser
	for _, l := range m.leaves {
		if l.generation == m.generation && l.cluster != nil && l.cluster.Policy.Hashes() {
			users = append(users, hashUser{&l.cluster.Policy, l.endpoints.value})
		}
	}
	return m.c.opts.halvings(users)
}
