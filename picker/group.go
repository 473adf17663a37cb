// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/xdslb/xdslb/edf"
)

// A group is a set of endpoints that one policy picks from, compiled for that policy:
// the endpoints of a locality, or those of the whole priority if the policy is Flat.
type group struct {
	rule     rule
	first    int32         // index in the priority of its first endpoint; for byDelegate, of its locality
	schedule *edf.Schedule // of rule inSequence
	// issued counts the RPCs issued so far, which is the position in schedule: that of
	// the locality's Load, or the cluster's own for a flat group of several localities.
	issued *atomic.Uint64
	// endpoints count the RPCs that they get. It is nil if issued already does so, being
	// the count of their Load.
	endpoints []*EndpointState
	hashing   *hashing      // of rule byHash
	least     *leastRequest // of rule byLeastRequest
	latency   *leastLatency // of rule byLeastLatency
	probes    *ProbeGroup   // of rule byProbes

	// What the next Build compares with.
	load     *Load          // of the group's locality; nil if it has several
	weights  []uint32       // that schedule was made of: 0 for endpoints that are not picked
	selected *EndpointState // of PolicyPickFirst
}

// A rule is a way to pick. Several policies share one.
type rule uint8

const (
	inSequence     rule = iota // the next endpoint of schedule
	byHash                     // the endpoint that the RPC's hash belongs to
	byLeastRequest             // the least loaded of a few random ones
	byDelegate                 // the caller's balancer picks
	byLeastLatency             // that of two random ones where an RPC costs less
	byProbes                   // the one that said it is the best
)

// random reports whether picks by the rule need a random word. Picks by hash need one
// for RPCs without a hash.
func (r rule) random() bool {
	switch r {
	case byHash, byLeastRequest, byLeastLatency, byProbes:
		return true
	}
	return false
}

// groupsByLoad returns the groups of c, which may be nil, by the Load of their locality.
func (c *cluster) groupsByLoad() map[*Load]*group {
	if c == nil {
		return nil
	}
	m := make(map[*Load]*group, len(c.groups))
	for i := range c.groups {
		m[c.groups[i].load] = &c.groups[i]
	}
	return m
}

// A groupInput is what a group is made from: endpoints and their states at the moment.
type groupInput struct {
	load       *Load // of its locality; nil if it has several
	weight     uint32
	locality   int        // index in the priority of its first locality
	first      int        // index in the priority of its first endpoint
	localities []Locality // as configured
	endpoints  EndpointStates
	states     []Connectivity // as new RPCs see them; parallel to endpoints
	count      [4]int         // endpoints by state
}

// collect returns the inputs of the groups of the priority in use: one if the policy is
// flat, else one for each locality. The next call reuses their memory.
func (b *builder) collect(policy *Policy, cfg *Priority, state *ClusterState) ([]groupInput, error) {
	inputs, first, total := b.inputs[:0], 0, 0
	for i := range cfg.Localities {
		total += cfg.Localities[i].Endpoints.Len()
	}
	if total > math.MaxInt32 {
		return nil, fmt.Errorf("%d endpoints, more than %d", total, math.MaxInt32)
	}
	b.states = slices.Grow(b.states[:0], total)
	var flat StateSlice // the endpoints of several localities
	for i := range cfg.Localities {
		lc, ls := &cfg.Localities[i], &state.Localities[i]
		if !policy.Flat || i == 0 {
			inputs = append(inputs, groupInput{load: ls.Load, weight: lc.Weight, locality: i, first: first, endpoints: ls.Endpoints})
		} else {
			in := &inputs[0]
			if i == 1 {
				in.load, flat = nil, appendStates(make(StateSlice, 0, total), in.endpoints)
			}
			if flat = appendStates(flat, ls.Endpoints); i == len(cfg.Localities)-1 {
				in.endpoints = flat
			}
		}
		in := &inputs[len(inputs)-1]
		in.localities = cfg.Localities[in.locality : i+1]
		if err := b.collectLocality(in, lc, ls, state.Breaker, policy); err != nil {
			return nil, fmt.Errorf("locality %v: %w", lc.ID, err)
		}
		first += lc.Endpoints.Len()
	}
	for i := range inputs {
		in := &inputs[i]
		in.states = b.states[in.first : in.first+in.endpoints.Len()]
	}
	b.inputs = inputs
	return inputs, nil
}

// collectLocality checks the endpoints of a locality and appends their states to
// b.states.
func (b *builder) collectLocality(in *groupInput, cfg *Locality, state *LocalityState, breaker *Breaker, policy *Policy) error {
	if state.Endpoints == nil || state.Endpoints.Len() != cfg.Endpoints.Len() {
		return fmt.Errorf("no state for each of %d endpoints", cfg.Endpoints.Len())
	}
	if state.Load == nil {
		return errors.New("no load counters")
	}
	countInFlight, timed := policy.CountsInFlight(), policy.TimesRPCs()
	for i, ec := range cfg.Endpoints.All() {
		e := state.Endpoints.State(i)
		switch {
		case e == nil || e.binding == nil || e.binding.load != state.Load || e.binding.breaker != breaker:
			return fmt.Errorf("endpoint %d (%v) is not bound to the counters of its locality and cluster", i, ec.Addr)
		case e.binding.countInFlight != countInFlight:
			return fmt.Errorf("endpoint %d (%v) counts RPCs in flight: %t, its policy wants %t", i, ec.Addr, e.binding.countInFlight, countInFlight)
		case (e.binding.timing != nil) != timed:
			return fmt.Errorf("endpoint %d (%v) times RPCs: %t, its policy wants %t", i, ec.Addr, !timed, timed)
		case e.Connectivity > TransientFailure:
			return fmt.Errorf("endpoint %d (%v) has connectivity %d", i, ec.Addr, e.Connectivity)
		}
		s := e.Connectivity
		if ec.Health == Draining || s == Ready && e.Ejected { // EDF-16, A50
			s = TransientFailure
		}
		in.count[s]++
		b.states = append(b.states, s)
	}
	return nil
}

// A usability says what an RPC can get from a group, in ascending order.
type usability uint8

const (
	allFailed      usability = iota // all endpoints have failed
	someConnecting                  // an endpoint may become READY by itself
	someOnDemand                    // an endpoint may become READY once an RPC asks for it
	someReady                       // an endpoint is READY
)

// usability returns what an RPC can get from a group of these endpoints. Only the groups
// with the highest usability of their priority are picked from (T-LOC-1).
func (in *groupInput) usability(policy *Policy) usability {
	hashes := policy.Hashes()
	switch {
	case in.count[Ready] > 0:
		return someReady
	case in.count[Idle] > 0 && (hashes || policy.Kind == PolicyCustom), in.count[Connecting] > 0 && hashes:
		return someOnDemand
	case in.count[Idle]+in.count[Connecting] > 0:
		return someConnecting
	default:
		return allFailed
	}
}
