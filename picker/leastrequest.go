// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math/bits"
)

// A leastRequest picks the endpoint with the fewest RPCs in flight out of a few that it
// samples at random (PolicyLeastRequest): from the READY endpoints of a group, with
// replacement, and the first of equals wins (A48, T-LR-1).
//
// A48 ignores weights. Here endpoints of different weight, or in slow start, are sampled
// in proportion to their weights, and the loads that are compared are RPCs in flight
// divided by weight. So the shares are those of the weights, both while nothing is in
// flight and while RPCs pile up. Envoy divides a weight by the RPCs in flight each time
// the endpoint's turn comes, in a heap behind a lock. Sampling evenly and comparing
// (RPCs + 1)/weight was rejected: of two idle endpoints the lighter one gets nothing.
type leastRequest struct {
	choices    int
	alias      *Alias // nil if all weights are equal
	candidates []candidate
}

// A candidate is a READY endpoint.
type candidate struct {
	endpoint *EndpointState
	index    int32 // in the group
	weight   uint32
}

// maxChoices is the largest number of samples (T-SEC-2).
const maxChoices = 10

// leastRequest makes g pick among the READY endpoints of in.
func (b *builder) leastRequest(g *group, in *groupInput, policy *Policy) (err error) {
	weights := b.endpointWeights(in, policy)
	l := &leastRequest{choices: int(min(policy.Least.Choices, maxChoices)), candidates: make([]candidate, 0, in.count[Ready])}
	even, positive := true, weights[:0] // overwrites only what the loop has read
	for i, w := range weights {
		if w > 0 {
			l.candidates, positive = append(l.candidates, candidate{in.endpoints.State(i), int32(i), w}), append(positive, w)
			even = even && w == positive[0]
		}
	}
	if len(positive) == 0 {
		return fmt.Errorf("none of %d weights is above 0", len(weights))
	}
	if !even {
		if l.alias, err = NewAlias(positive); err != nil {
			return err
		}
	}
	g.rule, g.least = byLeastRequest, l
	return nil
}

// pick returns the index of an endpoint in the group and counts the RPC there. All
// samples are derived from the random word r. O(choices); does not allocate.
func (l *leastRequest) pick(r uint64) int32 {
	best := l.sample(r, 0)
	least := int64(best.endpoint.inFlight.Load())
	for k := 1; k < l.choices; k++ {
		c := l.sample(r, k)
		if n := int64(c.endpoint.inFlight.Load()); n*int64(best.weight) < least*int64(c.weight) {
			best, least = c, n
		}
	}
	best.endpoint.Begin()
	return best.index
}

// sample returns the k-th candidate that r stands for.
func (l *leastRequest) sample(r uint64, k int) *candidate {
	x := draw(r, drawCandidate+uint64(k))
	if l.alias != nil {
		return &l.candidates[l.alias.Pick(x)]
	}
	i, _ := bits.Mul64(x, uint64(len(l.candidates)))
	return &l.candidates[i]
}
