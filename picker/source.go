// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "github.com/xdslb/xdslb/edf"

// A source is a locality as a cluster was compiled from it, for the next Build to compare with.
type source struct {
	version   uint64 // of its state, never 0
	load      *Load
	weight    uint32
	first     int // index in the priority of its first endpoint
	endpoints EndpointList
	count     [4]int // endpoints by state; the first locality of a flat group has that of all
	group     int    // index in cluster.groups of the group that begins with it, or -1
}

// compiledFrom notes what c is compiled from, if the caller has versions.
func (c *cluster) compiledFrom(policy *Policy, inputs []groupInput) {
	c.policy = *policy
	n := 0
	for i := range inputs {
		for k := range inputs[i].live {
			if inputs[i].live[k].Version == 0 {
				return
			}
		}
		n += len(inputs[i].live)
	}
	c.sources = make([]source, 0, n)
	for i := range inputs {
		in := &inputs[i]
		first := in.first
		for k := range in.live {
			l := &in.localities[k]
			c.sources = append(c.sources, source{version: in.live[k].Version, load: in.live[k].Load, weight: l.Weight, first: first, endpoints: l.Endpoints, group: -1})
			first += l.Endpoints.Len()
		}
		c.sources[in.locality].count = in.count
	}
}

// knows reports whether c, which may be nil, was made of the localities of in with their
// endpoints in the same states. It tells in what c knows of these, and what differs between
// their configurations. O(localities), and what differs between their lists of endpoints.
//
// Policies that compare latencies depend on all endpoints of the priority, and zone-aware ones
// may weigh them. Of neither anything is known.
func (c *cluster) knows(in *groupInput, policy *Policy, breaker *Breaker) bool {
	if c == nil || c.breaker != breaker || c.policy != *policy || policy.TimesRPCs() || policy.ZoneAware != nil {
		return false
	}
	to := in.locality + len(in.live)
	if to > len(c.sources) || policy.Flat && to != len(c.sources) {
		return false
	}
	in.before, in.inKeeping = c.sources[in.locality:to], true
	for k := range in.before {
		if !in.compare(k, policy) {
			in.before, in.inKeeping, in.changes = nil, false, nil
			return false
		}
		for s, n := range in.before[k].count {
			in.count[s] += n
		}
	}
	return true
}

// compare notes what differs between locality k of in and what it was, or returns false if
// its endpoints are not known to be in the same states.
func (in *groupInput) compare(k int, policy *Policy) bool {
	was, is, state := &in.before[k], &in.localities[k], &in.live[k]
	if was.version != state.Version || was.load != state.Load || was.endpoints.Len() != is.Endpoints.Len() {
		return false
	}
	if policy.Hashes() && was.weight != is.Weight {
		in.inKeeping = false
	}
	for then, now := range is.Endpoints.Since(was.endpoints) {
		if then != now {
			return false // endpoints have moved, and so have their states
		}
		for i := now.From; i < now.To; i++ {
			switch a, b := was.endpoints.At(i), is.Endpoints.At(i); {
			case *a == *b:
			case a.Health != b.Health:
				return false
			case policy.Hashes() || (a.Weight > 0) != (b.Weight > 0) || policy.Kind == PolicyLeastRequest && !policy.equalWeights():
				in.inKeeping = false
			case a.Weight != b.Weight && policy.Kind == PolicyEDF && stateOf(state.Endpoints.State(i), b) == Ready:
				in.changes = append(in.changes, edf.Change{Index: was.first - in.before[0].first + i, Weight: b.Weight})
			}
		}
	}
	return true
}

// takeOver returns the group that prev, which in is known to, had made of it, with the
// configuration of in, or ok = false if the group has to be made anew.
func (in *groupInput) takeOver(prev *cluster) (g group, ok bool) {
	if !in.inKeeping || in.before[0].group < 0 {
		return group{}, false
	}
	if g = prev.groups[in.before[0].group]; g.aging {
		return group{}, false
	}
	if g.rule != byDelegate { // whose first is a locality
		g.first += int32(in.first - in.before[0].first)
	}
	if len(in.changes) == 0 {
		return g, true
	}
	if g.scaled {
		return group{}, false
	}
	var err error
	g.schedule, err = g.schedule.ReweighSome(in.changes, g.issued.Load())
	return g, err == nil // an error is for all weights to say
}
