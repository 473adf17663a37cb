// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math/bits"
)

// A lottery picks the endpoint with the fewest RPCs in flight of some that it draws
// at random (PolicyLeastRequest): among the READY endpoints of a group, with
// replacement, the first of equals (A48, T-LR-1). It needs no more to be even than
// any other policy, and sends less to endpoints that are slow.
//
// If endpoints differ in weight, or are being started slowly, they are drawn in
// proportion to it and have the fewest RPCs in proportion to it. While nothing is
// in flight that is weighted random, and under load it fills endpoints evenly. A48
// ignores weights. Envoy, for such endpoints, has a schedule in which a weight is
// divided by the RPCs in flight whenever its turn comes, and which is a heap behind
// a lock. To draw evenly and compare (RPCs + 1)/weight is simple, too, but gives
// the lighter of two idle endpoints nothing at all.
type lottery struct {
	choices int
	alias   *Alias // nil if tickets are drawn evenly
	tickets []lot
}

type lot struct {
	endpoint *EndpointState
	index    int32 // in the group
	weight   uint32
}

// maxChoices is how many endpoints are drawn at most (T-SEC-2).
const maxChoices = 10

// lottery makes g a lottery of p's READY endpoints.
func (b *builder) lottery(g *group, p *pool, policy *Policy) (err error) {
	weights := b.weigh(p, policy)
	l := &lottery{choices: int(min(policy.Least.Choices, maxChoices)), tickets: make([]lot, 0, p.count[Ready])}
	even, drawn := true, weights[:0] // no further than it is read
	for i, w := range weights {
		if w > 0 {
			l.tickets, drawn = append(l.tickets, lot{p.endpoints[i], int32(i), w}), append(drawn, w)
			even = even && w == drawn[0]
		}
	}
	if len(drawn) == 0 {
		return fmt.Errorf("none of %d weights is above 0", len(weights))
	}
	if !even {
		if l.alias, err = NewAlias(drawn); err != nil {
			return err
		}
	}
	g.rule, g.lottery = byLottery, l
	return nil
}

// pick returns the index of an endpoint in the group, and counts the RPC there. All
// draws are made from the random word r. O(choices); does not allocate.
func (l *lottery) pick(r uint64) int32 {
	best := l.draw(r, 0)
	least := int64(best.endpoint.inFlight.Load())
	for k := 1; k < l.choices; k++ {
		t := l.draw(r, k)
		if n := int64(t.endpoint.inFlight.Load()); n*int64(best.weight) < least*int64(t.weight) {
			best, least = t, n
		}
	}
	best.endpoint.Begin()
	return best.index
}

// draw returns ticket k of an RPC.
func (l *lottery) draw(r uint64, k int) *lot {
	x := draw(r, drawTicket+uint64(k))
	if l.alias != nil {
		return &l.tickets[l.alias.Pick(x)]
	}
	i, _ := bits.Mul64(x, uint64(len(l.tickets)))
	return &l.tickets[i]
}
