// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math/bits"
)

// A sampler draws from the READY endpoints of a group in proportion to their weights, with
// replacement.
type sampler struct {
	alias      *Alias // nil if all weights are equal
	candidates []candidate
}

// A candidate is a READY endpoint.
type candidate struct {
	endpoint *EndpointState
	index    int32 // in the group
	weight   uint32
}

// maxChoices is the maximum number of samples (T-SEC-2).
const maxChoices = 10

// sampler returns the sampler of the READY endpoints of in.
func (b *builder) sampler(in *groupInput, policy *Policy) (s sampler, err error) {
	weights := b.endpointWeights(in, policy)
	s.candidates = make([]candidate, 0, in.count[Ready])
	even, positive := true, weights[:0] // overwrites only values that the loop has already read
	for i, w := range weights {
		if w > 0 {
			s.candidates, positive = append(s.candidates, candidate{in.endpoints.State(i), int32(i), w}), append(positive, w)
			even = even && w == positive[0]
		}
	}
	if len(positive) == 0 {
		return s, fmt.Errorf("none of %d weights is above 0", len(weights))
	}
	if !even {
		s.alias, err = NewAlias(positive)
	}
	return s, err
}

// sample returns the k-th candidate for the random word r.
func (s *sampler) sample(r uint64, k int) *candidate {
	x := draw(r, drawCandidate+uint64(k))
	if s.alias != nil {
		return &s.candidates[s.alias.Pick(x)]
	}
	i, _ := bits.Mul64(x, uint64(len(s.candidates)))
	return &s.candidates[i]
}
