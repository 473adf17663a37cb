// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"slices"

	"github.com/xdslb/xdslb/edf"
)

// PolicyEDF and PolicyRoundRobin pick the endpoints of a group in their EDF
// sequence. The place in it is a count of RPCs that is kept elsewhere: of a group
// that is a locality, the Load's, so that the RPC is counted by being placed (D9a);
// of a group of several localities a count of its own, besides which the RPC is
// counted at the locality of the endpoint that it comes to (T-LRS-5).

// sequence makes g the sequence of p's READY endpoints. before is the group's last
// form, or nil. The sequence goes on if it has the same endpoints, and starts at a
// random place if not.
func (b *builder) sequence(g *group, before *group, p *pool, c *cluster, kind PolicyKind) (err error) {
	if p.load != nil {
		g.tickets = &p.load.issued
	} else {
		g.tickets, g.endpoints = &c.tickets.n, p.endpoints
	}
	weights := b.weigh(p, kind)
	switch {
	case before == nil || before.tickets != g.tickets || !sameActive(before.weights, weights):
		g.weights = slices.Clone(weights)
		g.schedule, err = edf.Config{Weights: g.weights, Start: b.start(), Base: g.tickets.Load()}.Schedule()
	case slices.Equal(before.weights, weights):
		g.weights, g.schedule = before.weights, before.schedule
	default:
		g.weights = slices.Clone(weights)
		g.schedule, err = before.schedule.Reweigh(g.weights, g.tickets.Load())
	}
	return err
}

// weigh returns the weights of p's endpoints, 0 for those that are not to be
// picked, in memory that the next call reuses.
func (b *builder) weigh(p *pool, kind PolicyKind) []uint32 {
	weights := b.weights[:0]
	for i := range p.localities {
		for k := range p.localities[i].Endpoints {
			w := uint32(1)
			if kind != PolicyRoundRobin {
				w = p.localities[i].Endpoints[k].Weight
			}
			if p.states[len(weights)] != Ready {
				w = 0
			}
			weights = append(weights, w)
		}
	}
	b.weights = weights
	return weights
}

// sameActive reports whether the same indexes have a weight in a and b.
func sameActive(a, b []uint32) bool {
	return slices.EqualFunc(a, b, func(v, w uint32) bool { return (v > 0) == (w > 0) })
}
