// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"math/bits"
	"slices"
)

// A leastLatency picks the cheapest of a few endpoints (least latency). The cost is the recent
// latency times the RPCs in flight, including the new one (timing.cost).
//
// Least request compares only RPCs in flight. If there are many clients, each has few RPCs in
// flight, mostly zero, so these counts carry little information. Latencies of the last ten
// seconds reflect the RPCs of the whole fleet. Least latency gains nothing if servers are
// equal, and a sequence is better if all RPCs take the same time. bench/README.md lists the
// fleets in which it wins and loses. A stream looks like a hanging RPC: its endpoint appears
// slow to the client that has it, and gets fewer of its other RPCs.
//
// # Which endpoints are compared
//
// Of two samples the cheaper one is picked. They are different endpoints: of five endpoints with
// one slow, two samples drawn with replacement would both be the slow one in 4 % of the picks, and its
// latency would be the 99th percentile. Endpoints of different weight, or in slow start, are sampled
// in proportion to their weights, and an RPC in flight is divided by the weight relative to the mean.
//
// A group of at most compareAll endpoints compares one sample with all others, and leaves it for the
// cheapest one if that is cheaper by the factor margin. So several slow endpoints are avoided too, and
// endpoints that are equally good share RPCs by their weights, also if RPCs are too seldom to
// tell more than noise. In fleets of 3 to 8 servers the 99th percentile is up to 40 % lower than
// with two samples, and as low as that of the cheapest endpoint alone, from 1 to 1000 clients. A
// lighter endpoint than the mean must be cheaper by the ratio of weights as well, since it is not
// sampled for that comparison. Larger groups would gain, too, but each endpoint that is compared is a
// cache line that other processors write.
//
// # Exploration
//
// An endpoint that was slow gets no RPCs by which to find that it has recovered. If it has had none
// for half to a whole decay time, a pick that compares it goes to it (timing.explores). Such picks
// are at most one in exploreEvery RPCs, and the random part of the interval keeps clients that lost
// an endpoint at the same time from returning to it at the same time.
type leastLatency struct {
	sampler
	clock      *Clock
	peers      *peers
	meanWeight float32
}

// leastLatency makes g pick among the READY endpoints of in.
func (b *builder) leastLatency(g, _ *group, in *groupInput, c *cluster, policy *Policy) error {
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

const (
	compareAll = 8
	margin     = 1.1
	redraws    = 3 // of a second sample that equals the first, among weighted endpoints
)

// pick returns the index of an endpoint in the group and counts the RPC there. All samples are
// derived from the random word r. O(1); does not allocate.
func (l *leastLatency) pick(r uint64) int32 {
	now := l.clock.now()
	best := l.choose(r, now)
	best.endpoint.beginTimed(now)
	return best.index
}

// choose is pick without counting the RPC. If it compares two samples and both are pushed back, it compares all.
func (l *leastLatency) choose(r uint64, now int64) *candidate {
	best := l.sample(r, 0)
	if len(l.candidates) > compareAll {
		c := l.other(r, best)
		x, least := l.cost(c, now, true), l.cost(best, now, true)
		if x < least {
			best, least = c, x
		}
		if least < pushedBack {
			return best
		}
	}
	return l.unlessWorse(best, now, true)
}

// other returns a second sample for the random word r. Among equal weights it differs from the first.
// Among others it is the same only if that has nearly all of the weight.
func (l *leastLatency) other(r uint64, first *candidate) *candidate {
	if l.alias == nil {
		i, _ := bits.Mul64(draw(r, drawCandidate+1), uint64(len(l.candidates)-1))
		if c := &l.candidates[i]; c != first {
			return c
		}
		return &l.candidates[len(l.candidates)-1]
	}
	c := l.sample(r, 1)
	for k := 2; c == first && k < 2+redraws; k++ {
		c = l.sample(r, k)
	}
	return c
}

// unlessWorse returns a sample, or the cheapest candidate if the sample is worse by more than margin.
// O(n).
func (l *leastLatency) unlessWorse(sample *candidate, now int64, pick bool) *candidate {
	best, least := sample, l.cost(sample, now, pick)/margin
	for i := range l.candidates {
		c := &l.candidates[i]
		if c == sample {
			continue
		}
		x := l.cost(c, now, pick)
		if l.alias != nil {
			x *= max(1, l.meanWeight/float32(c.weight))
		}
		if x < least {
			best, least = c, x
		}
	}
	return best
}

// cost renews the estimate of a candidate if it is outdated, and returns the cost of an RPC to it:
// the increase of the total time of all RPCs to the endpoint, given its recent latency. It is 0 if
// the RPC, if there is one, is to explore the endpoint. Three atomic loads, unless the estimate must be renewed.
func (l *leastLatency) cost(c *candidate, now int64, pick bool) float32 {
	t := c.endpoint.binding.timing
	if now >= t.due.Load() && t.renewIfDue(now, l.peers, pick) {
		return 0
	}
	n := float32(t.inFlight())
	if l.alias != nil {
		n *= l.meanWeight / float32(c.weight)
	}
	return t.latestMean() * (1 + n)
}

// odds returns for each candidate the probability that the next RPC goes to it, and renews
// estimates as a pick does. It does not consider exploration. O(n·log n).
func (l *leastLatency) odds() []float64 {
	now, n := l.clock.now(), len(l.candidates)
	costs := make([]float64, n)
	for i := range l.candidates {
		costs[i] = float64(l.cost(&l.candidates[i], now, false))
	}
	var samples []float64
	if n > compareAll {
		samples = l.oddsOfTwo(costs)
	} else {
		samples = l.sampler.odds(1, costs)
	}
	odds := make([]float64, n)
	for i, p := range samples {
		best := &l.candidates[i]
		if n <= compareAll || costs[i] >= pushedBack {
			best = l.unlessWorse(best, now, false)
		}
		odds[slices.IndexFunc(l.candidates, func(c candidate) bool { return c.endpoint == best.endpoint })] += p
	}
	return odds
}

// oddsOfTwo is odds for two samples, of which the second is drawn again if it equals the first:
// redraws times among different weights. After a first sample with probability w, the second is the
// same with probability w^(redraws+1), and another one with its own probability times
// 1 + w + … + w^redraws.
func (l *leastLatency) oddsOfTwo(costs []float64) []float64 {
	n := len(l.candidates)
	w, order := make([]float64, n), make([]int, n)
	for i := range w {
		w[i], order[i] = 1/float64(n), i
	}
	if l.alias != nil {
		w = l.alias.shares(n)
	}
	again := func(i int) (f float64) {
		if l.alias == nil {
			return 1 / (1 - w[i])
		}
		for range redraws + 1 {
			f = 1 + w[i]*f
		}
		return f
	}
	slices.SortFunc(order, func(a, b int) int { return compareFloat(costs[b], costs[a]) })
	odds := make([]float64, n)
	var above, aboveAgain float64 // sums over more expensive candidates, of w and of w·again(w)
	for begin := 0; begin < n; {
		end, class := begin, 0.
		var classAgain float64
		for ; end < n && costs[order[end]] == costs[order[begin]]; end++ {
			i := order[end]
			class, classAgain = class+w[i], classAgain+w[i]*again(i)
		}
		for _, i := range order[begin:end] {
			// As the first sample it wins unless the second is cheaper, as the second only if it is cheaper.
			same := 1 - again(i)*(1-w[i])
			odds[i] = w[i]*(same+again(i)*(above+class-w[i])) + w[i]*aboveAgain
		}
		above, aboveAgain, begin = above+class, aboveAgain+classAgain, end
	}
	return odds
}
