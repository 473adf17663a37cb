// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "errors"

// A leastLatency picks the cheaper of two randomly sampled endpoints (PolicyLeastLatency). The
// cost is the recent latency times the RPCs in flight, including the new one (timing.cost).
//
// Least request compares only RPCs in flight. If there are many clients, each has few RPCs in
// flight, mostly zero, so these counts carry little information. Latencies of the last ten
// seconds reflect the RPCs of the whole fleet. Least latency gains nothing if servers are
// equal, and a sequence is better if all RPCs take the same time. bench/README.md lists the
// fleets in which it wins and loses. A stream looks like a hanging RPC: its endpoint appears
// slow to the client that has it, and gets fewer of its other RPCs.
//
// Endpoints of different weight, or in slow start, are sampled in proportion to their weights,
// and an RPC in flight is divided by the weight relative to the mean.
type leastLatency struct {
	sampler
	clock      *Clock
	peers      *peers
	meanWeight float32
}

// leastLatency makes g pick among the READY endpoints of in.
func (b *builder) leastLatency(g *group, in *groupInput, c *cluster, policy *Policy) error {
	s, err := b.sampler(in, policy)
	if err != nil {
		return err
	}
	l := &leastLatency{sampler: s, clock: s.candidates[0].endpoint.binding.clock}
	for _, c := range s.candidates {
		if c.endpoint.binding.clock != l.clock {
			return errors.New("endpoints are timed by different clocks")
		}
		l.meanWeight += float32(c.weight) / float32(len(s.candidates))
	}
	ready := 0
	for i := range b.inputs {
		ready += b.inputs[i].count[Ready]
	}
	c.peers = newPeers(c.peers, ready, policy.Latency.Decay)
	l.peers = c.peers
	g.rule, g.latency = byLeastLatency, l
	return nil
}

// pick returns the index of an endpoint in the group and counts the RPC there. Both samples are
// derived from the random word r. O(1); does not allocate.
func (l *leastLatency) pick(r uint64) int32 {
	now := l.clock.now()
	best, other := l.sample(r, 0), l.sample(r, 1)
	if l.cost(other, now) < l.cost(best, now) {
		best = other
	}
	best.endpoint.beginTimed(now)
	return best.index
}

// cost returns the cost of an RPC to a candidate: timing.cost, divided by weight.
func (l *leastLatency) cost(c *candidate, now int64) float32 {
	t := c.endpoint.binding.timing
	if l.alias == nil {
		return t.cost(now, l.peers)
	}
	return t.meanLatency(now, l.peers) * (1 + float32(t.inFlight())*l.meanWeight/float32(c.weight))
}

// odds returns for each candidate the probability that the next RPC goes to it, and renews
// estimates as a pick does.
func (l *leastLatency) odds() []float64 {
	now := l.clock.now()
	costs := make([]float64, len(l.candidates))
	for i := range l.candidates {
		costs[i] = float64(l.cost(&l.candidates[i], now))
	}
	return l.sampler.odds(2, costs)
}
