// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"sync/atomic"

	"github.com/xdslb/xdslb/edf"
)

// A group is a set of endpoints that one policy picks from, compiled for that
// policy: the endpoints of a locality, or, if the policy makes one layer of them,
// those of all localities of the priority.
type group struct {
	rule     rule
	first    int32 // the index of its first endpoint in the priority; of its locality, of rule byChild
	schedule *edf.Schedule
	tickets  *atomic.Uint64 // RPCs issued so far, which is the place in schedule
	// endpoints are those that RPCs are counted at; nil if tickets does that,
	// being the count of issued RPCs of a Load.
	endpoints []*EndpointState
	hashing   *hashing // of rule byHash
	lottery   *lottery // of rule byLottery

	// For the next Build.
	load    *Load          // of the group's locality; nil if it has several
	weights []uint32       // that schedule was made of: 0 for endpoints not to be picked
	only    *EndpointState // of PolicyPickFirst
}

// A rule is how a group picks, of which there are fewer ways than policies.
type rule uint8

const (
	inSequence rule = iota // the next one of schedule
	byHash                 // the one that the RPC's hash belongs to
	byLottery              // the least loaded of some
	byChild                // the caller knows
)

// random reports whether picks by the rule take a random word. By hash they may
// turn out to.
func (r rule) random() bool { return r == byHash || r == byLottery }

// byLoad returns the groups of c, which may be nil, by the Load of their locality.
func (c *cluster) byLoad() map[*Load]*group {
	if c == nil {
		return nil
	}
	m := make(map[*Load]*group, len(c.groups))
	for i := range c.groups {
		m[c.groups[i].load] = &c.groups[i]
	}
	return m
}
