// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/xdslb/xdslb/edf"
)

// PolicyEDF, PolicyRoundRobin and PolicyClientWRR pick the endpoints of a group in
// their EDF sequence, and differ in what weights are. PolicyPickFirst is the
// sequence of a single endpoint. The place in it is a count of RPCs that is kept elsewhere: of a group
// that is a locality, the Load's, so that the RPC is counted by being placed (D9a);
// of a group of several localities a count of its own, besides which the RPC is
// counted at the locality of the endpoint that it comes to (T-LRS-5).

// sequence makes g the sequence of p's READY endpoints. before is the group's last
// form, or nil.
func (b *builder) sequence(g *group, before *group, p *pool, c *cluster, policy *Policy) error {
	if p.load != nil {
		return b.schedule(g, before, &p.load.issued, b.weigh(p, policy))
	}
	g.endpoints = p.endpoints
	return b.schedule(g, before, &c.tickets.n, b.weigh(p, policy))
}

// schedule gives g the sequence of weights, with its place counted by tickets. It
// goes on where the last one was if it has the same endpoints, and starts at a
// random place if not. A group that has a last form has the same count, or a single
// endpoint, of which all places are the same.
func (b *builder) schedule(g *group, before *group, tickets *atomic.Uint64, weights []uint32) (err error) {
	g.tickets = tickets
	switch {
	case before == nil || before.schedule == nil || !sameActive(before.weights, weights):
		g.weights = slices.Clone(weights)
		g.schedule, err = edf.Config{Weights: g.weights, Start: b.start(), Base: tickets.Load()}.Schedule()
	case slices.Equal(before.weights, weights):
		g.weights, g.schedule = before.weights, before.schedule
	default:
		g.weights = slices.Clone(weights)
		g.schedule, err = before.schedule.Reweigh(g.weights, tickets.Load())
	}
	return err
}

// weigh returns the weights of p's endpoints, 0 for those that are not to be
// picked, in memory that the next call reuses.
func (b *builder) weigh(p *pool, policy *Policy) []uint32 {
	weights := slices.Grow(b.weights[:0], len(p.states))
	for i := range p.localities {
		for k := range p.localities[i].Endpoints {
			w := p.localities[i].Endpoints[k].Weight
			if policy.Kind == PolicyRoundRobin {
				w = 1
			}
			if p.states[len(weights)] != Ready {
				w = 0
			}
			weights = append(weights, w)
		}
	}
	b.weights = weights
	fit(weights)
	if policy.Kind == PolicyClientWRR {
		ownWeights(weights, p)
	}
	if policy.SlowStart != nil && policy.SlowStart.warm(weights, p, b.env.Now) {
		b.warming = true
	}
	return weights
}

// fit divides weights that sum to more than a schedule takes: those of several
// localities in one layer can, though each keeps within the limit (T-EDS-3), and
// those of endpoints that are not from EDS. None becomes 0: that adds less than 1 to
// each, for which there is room. O(n).
func fit(weights []uint32) {
	sum := uint64(0)
	for _, w := range weights {
		sum += uint64(w)
	}
	if sum <= math.MaxUint32 {
		return
	}
	divisor := sum/(math.MaxUint32-uint64(len(weights))) + 1
	for i, w := range weights {
		if w > 0 {
			weights[i] = uint32(max(uint64(w)/divisor, 1))
		}
	}
}

// sameActive reports whether the same indexes have a weight in a and b.
func sameActive(a, b []uint32) bool {
	return slices.EqualFunc(a, b, func(v, w uint32) bool { return (v > 0) == (w > 0) })
}
