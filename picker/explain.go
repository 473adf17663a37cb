// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// This file explains picks as probabilities instead of draws. It reads the same data as picks,
// in plain loops, and modifies no counters or positions of sequences. Only outdated latency
// estimates are renewed, as by a pick. Picks do not use this file.

// A ClusterExplanation describes the possible results of picks of a cluster. Picked, Delegated,
// Waits and Fails add up to 1. The drops apply to the picked and delegated RPCs, and then the
// circuit breaker rejects them if InFlight has reached Limit.
type ClusterExplanation struct {
	Version uint64 // of the ClusterState from which it was built
	Err     error  // as returned by ClusterErr

	Picked    float64 // probability of picking an endpoint
	Delegated float64 // probability that a balancer of the caller picks
	Waits     float64
	Fails     float64

	Drops     []float64 // by category: probability that it drops an RPC
	InFlight  int64
	Limit     uint32
	Endpoints []EndpointShare // by index as in Result; endpoints beyond the end have a share of 0
	// Localities are the shares of localities whose balancer picks, by index as in Result.
	Localities []float64
	Hash       *HashExplanation // nil unless the policy hashes
	// Routing explains the choice of a locality, as LocalityRouting does.
	Routing *LocalityRouting
}

// An EndpointShare is an endpoint's share of the RPCs to its cluster.
type EndpointShare struct {
	// Weight is the effective weight: configured, equal or reported, scaled to integers,
	// reduced in slow start; for hash policies the weight of A113. It compares with the weights
	// of other endpoints of the same locality, or of all if the policy is flat. 0 means that
	// the endpoint is not picked.
	Weight uint32
	// Share is the probability of being picked. In a sequence it is the long-run share. For
	// least request, or with bounded loads, it is the probability for the next RPC, with the
	// current RPCs in flight.
	Share float64
	// Waits is the probability that an RPC waits for the endpoint (hash policies).
	Waits float64
}

// A HashExplanation explains the hash of an RPC and its position in rings and tables.
type HashExplanation struct {
	Hash uint64
	// Known reports whether the RPC has a hash. Otherwise a random word serves as hash, or the
	// RPC goes to any READY endpoint (T-RING-6).
	Known bool
	// Sources are the inputs of the hash: "request", "channel id" or "header " and a name.
	Sources []string
	// Places are the positions of the hash: one for each locality, or one if the policy is
	// flat. It is empty without a hash.
	Places []hashPlace
}

// A hashPlace is the place of a hash on a ring or in a table.
type hashPlace struct {
	Table    bool // Maglev
	Position int  // of the entry or slot
	Size     int  // entries or slots
	// Order are the endpoints for the hash, by index as in Result: the one to which it belongs
	// and then the fallbacks, each once, up to eight.
	Order []int32
}

// ExplainCluster explains the picks of a cluster at present, for an RPC that matched a route;
// route is -1 if it is unknown. It calls Env.Header and Env.RequestHash. O(endpoints of the active
// priority) plus O(entries) of rings and tables.
func (s *Snapshot) ExplainCluster(ctx context.Context, route, cluster int32) *ClusterExplanation {
	if uint(cluster) >= uint(s.clusters.Len()) {
		return &ClusterExplanation{Err: fmt.Errorf("picker: there is no cluster %d", cluster), Fails: 1}
	}
	c := s.clusters.At(int(cluster))
	x := &ClusterExplanation{Version: c.version, Err: c.err, Limit: c.limit, Routing: c.routing}
	if c.breaker != nil {
		x.InFlight = c.breaker.InFlight()
	}
	before := probability(0)
	for _, bound := range c.drops {
		x.Drops = append(x.Drops, float64(bound-before)/float64(always))
		before = bound
	}
	switch c.outcome {
	case Queue:
		x.Waits = 1
	case Failed:
		x.Fails = 1
	}
	if c.outcome != Picked {
		return x
	}
	shares := []float64{1}
	if c.alias != nil {
		shares = c.alias.shares(len(c.groups))
	}
	for i := range c.groups {
		c.groups[i].explain(ctx, s, route, c, shares[i], x)
	}
	return x
}

// at returns the entry of an endpoint.
func (x *ClusterExplanation) at(index int32) *EndpointShare {
	if n := int(index) + 1; n > len(x.Endpoints) {
		x.Endpoints = append(x.Endpoints, make([]EndpointShare, n-len(x.Endpoints))...)
	}
	return &x.Endpoints[index]
}

// explain adds the results of picks in the group to x. The group gets a share of the RPCs.
func (g *group) explain(ctx context.Context, s *Snapshot, route int32, c *cluster, share float64, x *ClusterExplanation) {
	switch g.rule {
	case byDelegate:
		x.Delegated += share
		x.Localities = append(x.Localities, make([]float64, int(g.first)+1-len(x.Localities))...)
		x.Localities[g.first] = share
	case byHash:
		g.explainHash(ctx, s, route, c, share, x)
	case byLeastRequest:
		g.explainSamples(g.least.candidates, g.least.odds(), share, x)
	case byLeastLatency:
		g.explainSamples(g.latency.candidates, g.latency.odds(), share, x)
	case byZones:
		g.explainZoned(share, x)
	case byProbes:
		g.explainSamples(g.probes.least.candidates, g.probes.odds(), share, x)
	default:
		x.Picked += share
		sum, weights := 0., g.schedule.Weights()
		for _, w := range weights {
			sum += float64(w)
		}
		for i, w := range weights {
			if w > 0 {
				*x.at(g.first + int32(i)) = EndpointShare{Weight: w, Share: share * float64(w) / sum}
			}
		}
	}
}

// explainSamples adds the results of picks in the group to x, given the odds of its candidates.
func (g *group) explainSamples(candidates []candidate, odds []float64, share float64, x *ClusterExplanation) {
	x.Picked += share
	for i, p := range odds {
		e := x.at(g.first + candidates[i].index)
		e.Weight, e.Share = candidates[i].weight, e.Share+share*p
	}
}

// shares returns the probability of each of n indexes. O(weights).
func (a *Alias) shares(n int) []float64 {
	shares := make([]float64, n)
	column := 1 / float64(len(a.cells))
	for _, c := range a.cells {
		below := float64(c.threshold) / (1 << 64)
		shares[c.self] += column * below
		shares[c.other] += column * (1 - below)
	}
	return shares
}

// odds returns for each candidate the probability that the next RPC goes to it, from the
// answers of the endpoints so far. O(n·log n + PoolSize²).
func (g *ProbeGroup) odds() []float64 {
	v := g.Pool.view.Load()
	if v == nil || v.group != g {
		return g.least.odds()
	}
	at := make(map[int32]int, len(g.least.candidates)) // candidates by index in the group
	for i := range g.least.candidates {
		at[g.least.candidates[i].index] = i
	}
	odds := make([]float64, len(at))
	add := func(l *leastLatency, share float64) {
		for i, p := range l.odds() {
			odds[at[l.candidates[i].index]] += share * p
		}
	}
	left := 1.
	if v.silent != nil {
		for i, p := range v.silent.odds() {
			if c := &v.silent.candidates[i]; !c.endpoint.PushedBack() {
				p *= float64(len(v.silent.candidates)) / float64(len(odds))
				odds[at[c.index]] += p
				left -= p
			}
		}
	}
	spent := v.spent.Load()
	for i := range v.entries {
		if v.entries[i].timing.isPushedBack(g.least.clock) {
			spent |= 1 << i
		}
	}
	if len(v.entries) == 0 {
		add(g.least, left)
	}
	for first := range v.entries {
		if i, part := v.best(first, spent), left/float64(len(v.entries)); i >= 0 {
			odds[at[v.entries[i].index]] += part
		} else {
			add(g.least, part)
		}
	}
	return odds
}

// odds returns for each candidate the probability that the next RPC goes to it.
func (l *leastRequest) odds() []float64 {
	load := make([]float64, len(l.candidates))
	for i := range l.candidates {
		load[i] = float64(l.candidates[i].endpoint.inFlight.Load()) / float64(l.candidates[i].weight)
	}
	choices := l.choices
	if choices == 0 {
		choices = math.MaxInt32
	}
	return l.sampler.odds(choices, load)
}

// odds returns for each candidate the probability that it is the sample with the least load,
// out of a number of samples.
//
// Of the samples with the least load, the first one wins. So the classes of candidates with the
// same load win with probability Sᵏ − Tᵏ, where a sample is in the class or above with
// probability S and above with T, and within a class the samples' own probabilities decide.
// O(n·log n).
func (s *sampler) odds(choices int, load []float64) []float64 {
	n := len(s.candidates)
	odds := make([]float64, n) // initially, of a sample
	for i := range odds {
		odds[i] = 1 / float64(n)
	}
	if s.alias != nil {
		odds = s.alias.shares(n)
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareFloat(load[a], load[b]) })
	left := 1.
	for begin := 0; begin < n; {
		end, class := begin, 0.
		for ; end < n && load[order[end]] == load[order[begin]]; end++ {
			class += odds[order[end]]
		}
		above := max(left-class, 0)
		if end == n {
			above = 0
		}
		wins := math.Pow(left, float64(choices)) - math.Pow(above, float64(choices))
		for _, i := range order[begin:end] {
			odds[i] *= wins / class
		}
		begin, left = end, above
	}
	return odds
}

func compareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// InFlight returns the number of RPCs in flight to the endpoint if its policy compares them,
// otherwise 0.
func (e *EndpointState) InFlight() int {
	if e.binding != nil && e.binding.timing != nil {
		return e.binding.timing.inFlight()
	}
	return int(e.inFlight.Load())
}

// Latency returns the recent mean latency of the endpoint's RPCs, as used by
// least latency; 0 if none has ended yet or the policy does not measure it.
func (e *EndpointState) Latency() time.Duration {
	if e.binding == nil || e.binding.timing == nil {
		return 0
	}
	return e.binding.timing.estimate()
}

// ReportedWeight returns the weight set by SetWeight: 0 if no weight is known. Like the
// exported fields it must not be read while it is set.
func (e *EndpointState) ReportedWeight() float64 { return e.reportedWeight() }

// Factor returns the factor for the weight of an endpoint that has been READY for age: 1 from
// Window on.
func (s *SlowStart) Factor(age time.Duration) float64 { return s.factor(age) }
