// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// This file says what picks would come to, as probabilities instead of draws. It reads
// what picks read, in plain loops, and writes nothing: no counter, no position of a
// sequence. Only latencies that are out of date are renewed as by a pick. Picks use none of
// it.

// A RouteCheck is how a route takes to an RPC.
type RouteCheck struct {
	Route int // index in Config.Routes
	// Failed is the first condition that the RPC does not meet, in the order of
	// Condition. Header and Values belong to ConditionHeader: the condition, and the values
	// that routes see, nil if the RPC lacks the header.
	Failed Condition
	Header *HeaderMatch
	Values []string
	// Probability is that of the RPC taking this route and none before.
	Probability float64
}

// Condition is a kind of condition of a route.
type Condition uint8

// The conditions of a route. The fraction fails only where it is 0.
const (
	ConditionNone Condition = iota // all are met
	ConditionPath
	ConditionHeader
	ConditionFraction
)

// ExplainRoutes checks an RPC against the routes one by one, up to the first that takes
// whatever reaches it. unmatched is the probability that no route matches. Match draws
// from the same probabilities. O(conditions); calls Env.Header.
func (s *Snapshot) ExplainRoutes(ctx context.Context, method string) (checks []RouteCheck, unmatched float64) {
	unmatched = 1
	for i := range s.routes {
		if unmatched == 0 {
			break
		}
		r := &s.routes[i]
		c := RouteCheck{Route: i}
		fraction := 1.
		if r.Fraction != nil {
			fraction = float64(*r.Fraction) / 1e6
		}
		if c.Header, c.Values = s.failingHeader(ctx, r); c.Header != nil {
			c.Failed = ConditionHeader
		} else if fraction == 0 {
			c.Failed = ConditionFraction
		}
		if !r.Path.matches(method) {
			c = RouteCheck{Route: i, Failed: ConditionPath}
		}
		if c.Failed == ConditionNone {
			c.Probability = unmatched * fraction
			unmatched -= c.Probability
		}
		checks = append(checks, c)
	}
	return checks, unmatched
}

// failingHeader returns the first condition on a header that an RPC does not meet, and
// what it sees of that header; nil if all are met.
func (s *Snapshot) failingHeader(ctx context.Context, r *Route) (*HeaderMatch, []string) {
	for i := range r.Headers {
		if values := s.visible(ctx, r.Headers[i].Name); !r.Headers[i].matches(values) {
			return &r.Headers[i], values
		}
	}
	return nil, nil
}

// visible returns the values of a header that conditions and hash policies see: none of
// binary headers (T-RC-3), and a fixed content type (A28).
func (s *Snapshot) visible(ctx context.Context, name string) []string {
	switch {
	case strings.HasSuffix(name, "-bin"):
		return nil
	case name == "content-type":
		return contentType
	}
	return s.env.Header(ctx, name)
}

// A ClusterShare is a cluster that a route leads to.
type ClusterShare struct {
	Cluster int32   // index in Config.Clusters
	Share   float64 // of the route's RPCs
}

// ExplainTargets returns the clusters of a route, each once, as first named. Their shares
// are those of the compiled table that Match draws from. It is empty for a route that does
// not forward, and for an index that is none of a route.
func (s *Snapshot) ExplainTargets(route int) []ClusterShare {
	if route < 0 || route >= len(s.table.routes) {
		return nil
	}
	to := &s.table.routes[route]
	switch {
	case to.cluster >= 0:
		return []ClusterShare{{to.cluster, 1}}
	case to.cluster == noCluster:
		return nil
	}
	var list []ClusterShare
	for i, share := range to.split.shares(len(to.clusters)) {
		k := slices.IndexFunc(list, func(c ClusterShare) bool { return c.Cluster == to.clusters[i] })
		if k < 0 {
			k, list = len(list), append(list, ClusterShare{Cluster: to.clusters[i]})
		}
		list[k].Share += share
	}
	return list
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

// A ClusterExplanation says what picks of a cluster come to. Picked, Delegated, Waits and
// Fails add up to 1. Of what is picked or delegated, the drops take their part, and then the
// circuit breaker refuses it if InFlight has reached Limit.
type ClusterExplanation struct {
	Version uint64 // of the ClusterState that it was built from
	Err     error  // as of ClusterErr

	Picked    float64 // probability of an endpoint
	Delegated float64 // of a balancer of the caller's that picks
	Waits     float64
	Fails     float64

	Drops     []float64 // by category: probability that it drops an RPC
	InFlight  int64
	Limit     uint32
	Endpoints []EndpointShare // by index as in Result; those beyond the end get nothing
	// Localities are the shares of those whose balancer picks, by index as in Result.
	Localities []float64
	Hash       *HashExplanation // nil unless the policy hashes
	// Routing is how a locality is chosen, as of LocalityRouting.
	Routing *LocalityRouting
}

// An EndpointShare is an endpoint's part of the RPCs to its cluster.
type EndpointShare struct {
	// Weight is the one that picks go by: configured, equal or reported, scaled to
	// integers, reduced in slow start; for hash policies that of A113. It compares with
	// others of the same locality, or of all if the policy is flat. 0 is out.
	Weight uint32
	// Share is the probability of being picked. In a sequence it is the long-run share. By
	// least request, or with bounded loads, it is that of the next RPC, with the RPCs in
	// flight as they are.
	Share float64
	// Waits is the probability that an RPC waits for the endpoint (hash policies).
	Waits float64
}

// A HashExplanation is the hash of an RPC, and where that leads.
type HashExplanation struct {
	Hash uint64
	// Known says that the RPC has a hash. Otherwise a random word serves as one, or any
	// READY endpoint (T-RING-6).
	Known bool
	// Sources are what the hash was made from: "request", "channel id" or the name of a
	// header after "header ".
	Sources []string
	// Places are where the hash leads: one for each locality, or one if the policy is flat.
	// There are none without a hash.
	Places []HashPlace
}

// A HashPlace is the place of a hash on a ring or in a table.
type HashPlace struct {
	Table    bool // Maglev
	Position int  // of the entry or slot
	Size     int  // entries or slots
	// Order are the endpoints that the hash leads to, by index as in Result: the one that it
	// belongs to, and then those that it falls back to, each once, up to eight.
	Order []int32
}

// ExplainCluster says what picks of a cluster come to at present for an RPC that came by a
// route, -1 being none. It calls Env.Header and Env.RequestHash. O(endpoints of the
// priority in use), and O(entries) of rings and tables.
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

// explain adds to x what picks in the group come to, which gets a share of them.
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

// explainSamples adds to x what picks in the group come to, by the odds of its candidates.
func (g *group) explainSamples(candidates []candidate, odds []float64, share float64, x *ClusterExplanation) {
	x.Picked += share
	for i, p := range odds {
		e := x.at(g.first + candidates[i].index)
		e.Weight, e.Share = candidates[i].weight, share*p
	}
}

// odds returns the probability of each candidate that the next RPC goes to it, by what
// the endpoints have said so far. O(n·log n + PoolSize²).
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
		part := float64(len(v.silent.candidates)) / float64(len(odds))
		add(v.silent, part)
		left -= part
	}
	if len(v.entries) == 0 {
		add(g.least, left)
	}
	for first := range v.entries {
		if i, part := v.best(first), left/float64(len(v.entries)); i >= 0 {
			odds[at[v.entries[i].index]] += part
		} else {
			add(g.least, part)
		}
	}
	return odds
}

// odds returns the probability of each candidate that the next RPC goes to it.
func (l *leastRequest) odds() []float64 {
	load := make([]float64, len(l.candidates))
	for i := range l.candidates {
		load[i] = float64(l.candidates[i].endpoint.inFlight.Load()) / float64(l.candidates[i].weight)
	}
	return l.sampler.odds(l.choices, load)
}

// odds returns the probability of each candidate that it is the one of a number of samples
// that has the least load.
//
// Of the samples those with the least load win, and of these the first. So the
// classes of candidates with the same load win with probability Sᵏ − Tᵏ, where a sample is
// in the class or above with probability S and above with T, and within a class the samples'
// own probabilities decide. O(n·log n).
func (s *sampler) odds(choices int, load []float64) []float64 {
	n := len(s.candidates)
	odds := make([]float64, n) // of a sample, to begin with
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

// InFlight returns the number of RPCs in flight to the endpoint, if its policy compares
// these, else 0.
func (e *EndpointState) InFlight() int {
	if e.binding != nil && e.binding.timing != nil {
		return e.binding.timing.InFlight()
	}
	return int(e.inFlight.Load())
}

// Latency returns the mean latency of the endpoint's RPCs of late, as PolicyLeastLatency goes
// by it; 0 if it is not known, or nobody asks for it.
func (e *EndpointState) Latency() time.Duration {
	if e.binding == nil || e.binding.timing == nil {
		return 0
	}
	return e.binding.timing.estimate()
}

// ReportedWeight returns what SetWeight has set: 0 if no weight is known. Like the exported
// fields it must not be read while it is set.
func (e *EndpointState) ReportedWeight() float64 { return e.reportedWeight() }

// Factor returns the factor for the weight of an endpoint that has been READY for age: 1
// once that is Window.
func (s *SlowStart) Factor(age time.Duration) float64 { return s.factor(age) }
