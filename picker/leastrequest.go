// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "math/bits"

// A leastRequest picks the endpoint with the fewest RPCs in flight among a few random samples
// (least request). It samples the READY endpoints of a group with replacement, and the
// first of equally loaded samples wins (A48, T-LR-1). Of two samples of five endpoints, 4 % are one
// slow endpoint twice. A full scan compares all endpoints, and draws among the equally loaded ones
// by weight.
//
// A48 ignores weights. Here endpoints of different weight, or in slow start, are sampled in
// proportion to their weights, and the compared loads are RPCs in flight divided by weight. So
// the shares correspond to the weights, both without RPCs in flight and while RPCs pile up.
// Envoy instead divides the weight by the RPCs in flight on each turn of an endpoint, in a heap
// behind a lock. Uniform sampling with a comparison of (RPCs + 1)/weight was rejected: of two
// idle endpoints, the lighter one would get no RPCs.
type leastRequest struct {
	sampler
	choices int // 0 means a full scan
}

// leastRequest makes g pick among the READY endpoints of in.
func (b *builder) leastRequest(g, _ *group, in *groupInput, _ *cluster, policy *Policy) (err error) {
	l := &leastRequest{choices: 1} // random: one sample is the least loaded of one
	if policy.Least != nil {
		l.choices = int(min(policy.Least.Choices, maxChoices))
	}
	l.sampler, err = b.sampler(in, policy)
	g.rule, g.least = byLeastRequest, l
	return err
}

// pick returns the index of an endpoint in the group and counts the RPC there. All
// samples are derived from the random word r. O(choices), or O(endpoints) for a full scan; does not
// allocate.
func (l *leastRequest) pick(r uint64) int32 {
	if l.choices == 0 {
		return l.scan(draw(r, drawCandidate))
	}
	best := l.sample(r, 0)
	least := int64(best.endpoint.inFlight.Load())
	for k := 1; k < l.choices; k++ {
		c := l.sample(r, k)
		if n := int64(c.endpoint.inFlight.Load()); n*int64(best.weight) < least*int64(c.weight) {
			best, least = c, n
		}
	}
	best.endpoint.begin()
	return best.index
}

// scan is pick with all endpoints.
func (l *leastRequest) scan(r uint64) int32 {
	var best *candidate
	var least int64
	var tied uint64 // sum of the weights of the least loaded ones so far
	for i := range l.candidates {
		c := &l.candidates[i]
		n := int64(c.endpoint.inFlight.Load())
		if best != nil {
			a, b := n*int64(best.weight), least*int64(c.weight)
			if a > b {
				continue
			}
			if a == b {
				tied += uint64(c.weight)
				if x, _ := bits.Mul64(draw(r, uint64(i)), tied); x < uint64(c.weight) {
					best, least = c, n
				}
				continue
			}
		}
		best, least, tied = c, n, uint64(c.weight)
	}
	best.endpoint.begin()
	return best.index
}
