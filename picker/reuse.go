// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "github.com/xdslb/xdslb/edf"

// A compiledLocality records a locality that a cluster was compiled from, for the next Build to
// compare with.
type compiledLocality struct {
	version   uint64 // of its state; never 0
	load      *Load
	weight    uint32
	first     int // index in the priority of its first endpoint
	endpoints EndpointList
	count     [4]int // endpoints by state; for a flat group, the first locality has the total
	group     int    // index in cluster.groups of the group that starts with it, or -1
}

// recordInputs records the inputs of c, if the caller sets versions.
func (c *cluster) recordInputs(policy *Policy, inputs []groupInput) {
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
	c.sources = make([]compiledLocality, 0, n)
	for i := range inputs {
		in := &inputs[i]
		first := in.first
		for k := range in.live {
			l := &in.localities[k]
			c.sources = append(c.sources, compiledLocality{version: in.live[k].Version, load: in.live[k].Load, weight: l.Weight, first: first, endpoints: l.Endpoints, group: -1})
			first += l.Endpoints.Len()
		}
		c.sources[in.locality].count = in.count
	}
}

// canReuse reports whether c, which may be nil, was compiled from the localities of in with
// their endpoints in the same states. It stores in in the previous localities and the
// differences between their configurations. O(localities) plus the differences between their
// lists of endpoints.
//
// It returns false for policies that compare latencies, which depend on all endpoints of the
// priority, and for zone-aware ones, which may weigh them.
func (c *cluster) canReuse(in *groupInput, policy *Policy, breaker *Breaker) bool {
	if c == nil || c.breaker != breaker || c.policy != *policy || policy.TimesRPCs() || policy.ZoneAware != nil {
		return false
	}
	to := in.locality + len(in.live)
	if to > len(c.sources) || policy.Flat && to != len(c.sources) {
		return false
	}
	in.before, in.unchanged = c.sources[in.locality:to], true
	for k := range in.before {
		if !in.compare(k, policy) {
			in.before, in.unchanged, in.changes = nil, false, nil
			return false
		}
		for s, n := range in.before[k].count {
			in.count[s] += n
		}
	}
	return true
}

// compare records the differences between locality k of in and its previous form. It returns
// false if its endpoints may be in other states.
func (in *groupInput) compare(k int, policy *Policy) bool {
	was, is, state := &in.before[k], &in.localities[k], &in.live[k]
	use := policy.Kind.Traits().weights
	if was.version != state.Version || was.load != state.Load || was.endpoints.Len() != is.Endpoints.Len() {
		return false
	}
	if policy.Hashes() && was.weight != is.Weight {
		in.unchanged = false
	}
	for then, now := range is.Endpoints.Since(was.endpoints) {
		if then != now {
			return false // endpoints and their states have moved
		}
		for i := now.From; i < now.To; i++ {
			switch a, b := was.endpoints.At(i), is.Endpoints.At(i); {
			case *a == *b:
			case a.Health != b.Health:
				return false
			case policy.Hashes() || (a.Weight > 0) != (b.Weight > 0) || use == weightsDrawn && !policy.EqualWeights():
				in.unchanged = false
			case a.Weight != b.Weight && use == weightsScheduled && stateOf(state.Endpoints.State(i), b) == Ready:
				in.changes = append(in.changes, edf.Change{Index: was.first - in.before[0].first + i, Weight: b.Weight})
			}
		}
	}
	return true
}

// reuse returns the group that prev compiled from in, with the configuration of in applied. ok
// is false if the group must be compiled. canReuse must have returned true for in.
func (in *groupInput) reuse(prev *cluster) (g group, ok bool) {
	if !in.unchanged || in.before[0].group < 0 {
		return group{}, false
	}
	if g = prev.groups[in.before[0].group]; g.aging {
		return group{}, false
	}
	if g.rule != byDelegate { // first is a locality for byDelegate
		g.first += int32(in.first - in.before[0].first)
	}
	if len(in.changes) == 0 {
		return g, true
	}
	if g.scaled {
		return group{}, false
	}
	var err error
	g.schedule, err = g.schedule.ReweighSome(in.changes, g.cursor.issued.Load())
	return g, err == nil // an error must be reported for all weights
}
