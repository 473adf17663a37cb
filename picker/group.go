// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/xdslb/xdslb/edf"
)

// A group is a set of endpoints from which one policy picks, compiled for that policy: the
// endpoints of a locality, or of the whole priority if the policy is Flat.
type group struct {
	rule     rule
	first    int32         // index in the priority of its first endpoint; for byDelegate, of its locality
	schedule *edf.Schedule // of rule inSequence
	// cursor counts the RPCs issued so far, which is the position in schedule. It is the
	// locality's Load, or the cluster's for a flat group of several localities.
	cursor *Load
	// endpoints count their RPCs. It is nil if cursor, as their Load, already does so.
	endpoints []*EndpointState
	hashing   *hashing      // of rule byHash
	least     *leastRequest // of rule byLeastRequest
	latency   *leastLatency // of rule byLeastLatency
	probes    *ProbeGroup   // of rule byProbes
	zoned     *zoned        // of rule byZones, which has latency or probes, too

	// Compared by the next Build.
	load     *Load          // of the group's locality; nil if it has several
	selected *EndpointState // of pick first
	aging    bool           // weights change with time
	scaled   bool           // weights were divided by scaleDown
}

// A rule is the implementation of a pick. Several policies share one.
type rule uint8

const (
	inSequence     rule = iota // the next endpoint of schedule
	byHash                     // the endpoint to which the RPC's hash belongs
	byLeastRequest             // the least loaded of a few random ones
	byDelegate                 // the caller's balancer picks
	byLeastLatency             // the cheaper of two random endpoints
	byProbes                   // the endpoint with the best answer
	byZones                    // one of the last two, possibly in another zone
)

// random reports whether picks by the rule need a random word. Picks by hash need one
// for RPCs without a hash.
func (r rule) random() bool {
	switch r {
	case byHash, byLeastRequest, byLeastLatency, byProbes, byZones:
		return true
	}
	return false
}

// groupOf returns the group of c that has the Load of in, or nil. c may be nil. O(1) for
// localities at an unchanged position.
func (c *cluster) groupOf(in *groupInput) *group {
	if c == nil {
		return nil
	}
	for k := range c.groups {
		if g := &c.groups[(in.locality+k)%len(c.groups)]; g.load == in.load {
			return g
		}
	}
	return nil
}

// A groupInput is the input of a group: endpoints and their current states.
type groupInput struct {
	load       *Load // of its locality; nil if it has several
	weight     uint32
	locality   int        // index in the priority of its first locality
	first      int        // index in the priority of its first endpoint
	localities []Locality // as configured
	live       []LocalityState
	count      [4]int // endpoints by state
	// before are the previous localities if their endpoints are in the same states, otherwise
	// nil. If unchanged, the group is then reused, apart from changes of its weights.
	before    []compiledLocality
	unchanged bool
	changes   []edf.Change

	// Set by scan.
	endpoints EndpointStates
	states    []Connectivity // as relevant to new RPCs; parallel to endpoints
}

// groupInputs returns the inputs of the groups of the active priority: one if the policy is
// flat, otherwise one for each locality. The next call reuses their memory. It scans only
// endpoints whose state may differ from prev.
func (b *builder) groupInputs(policy *Policy, prev *cluster, cfg *Priority, state *ClusterState) ([]groupInput, error) {
	b.policy, b.breaker = policy, state.Breaker
	n := len(cfg.Localities)
	if policy.Flat {
		n = min(n, 1)
	}
	inputs, first := slices.Grow(b.inputs[:0], n), 0
	b.states = b.states[:0]
	for i := range cfg.Localities {
		if !policy.Flat || i == 0 {
			inputs = append(inputs, groupInput{load: state.Localities[i].Load, weight: cfg.Localities[i].Weight, locality: i, first: first})
		}
		in := &inputs[len(inputs)-1]
		if len(in.live) == 1 {
			in.load = nil
		}
		in.localities, in.live = cfg.Localities[in.locality:i+1], state.Localities[in.locality:i+1]
		if first += cfg.Localities[i].Endpoints.Len(); first > math.MaxInt32 {
			return nil, fmt.Errorf("%d endpoints exceed the limit of %d", first, math.MaxInt32)
		}
	}
	for i := range inputs {
		in := &inputs[i]
		if prev.canReuse(in, policy, state.Breaker) {
			continue
		}
		if err := b.scan(in); err != nil {
			return nil, err
		}
	}
	b.inputs = inputs
	return inputs, nil
}

// scan collects the endpoints of in and their states. O(endpoints).
func (b *builder) scan(in *groupInput) error {
	n := 0
	for i := range in.localities {
		n += in.localities[i].Endpoints.Len()
	}
	in.count = [4]int{}
	b.states = slices.Grow(b.states, n)
	from := len(b.states)
	for i := range in.localities {
		if err := b.scanLocality(in, i); err != nil {
			return fmt.Errorf("locality %v: %w", in.localities[i].ID, err)
		}
	}
	in.states = b.states[from:]
	if in.endpoints = in.live[0].Endpoints; len(in.live) > 1 {
		all := make(StateSlice, 0, n)
		for i := range in.live {
			all = appendStates(all, in.live[i].Endpoints)
		}
		in.endpoints = all
	}
	return nil
}

// scanLocality checks the endpoints of locality i of in and appends their states to b.states.
func (b *builder) scanLocality(in *groupInput, i int) error {
	cfg, state, breaker, policy := &in.localities[i], &in.live[i], b.breaker, b.policy
	if state.Endpoints == nil || state.Endpoints.Len() != cfg.Endpoints.Len() {
		return fmt.Errorf("endpoint states: want %d", cfg.Endpoints.Len())
	}
	if state.Load == nil {
		return errors.New("no load counters")
	}
	countInFlight, timed := policy.CountsInFlight(), policy.TimesRPCs()
	for i, ec := range cfg.Endpoints.All() {
		e := state.Endpoints.State(i)
		switch {
		case e == nil || e.binding == nil || e.binding.load != state.Load || e.binding.breaker != breaker:
			return fmt.Errorf("endpoint %d (%s) is not bound to the counters of its locality and cluster", i, AddrText(ec.Addr))
		case e.binding.countInFlight != countInFlight:
			return fmt.Errorf("endpoint %d (%s) counts RPCs in flight: %t, want %t for its policy", i, AddrText(ec.Addr), e.binding.countInFlight, countInFlight)
		case (e.binding.timing != nil) != timed:
			return fmt.Errorf("endpoint %d (%s) times RPCs: %t, want %t for its policy", i, AddrText(ec.Addr), !timed, timed)
		case e.Connectivity > TransientFailure:
			return fmt.Errorf("endpoint %d (%s) has connectivity %d", i, AddrText(ec.Addr), e.Connectivity)
		}
		s := stateOf(e, ec)
		in.count[s]++
		b.states = append(b.states, s)
	}
	return nil
}

// stateOf returns the effective state of an endpoint for new RPCs.
func stateOf(e *EndpointState, cfg *Endpoint) Connectivity {
	if cfg.Health == Draining || e.Connectivity == Ready && e.Ejected { // EDF-16, A50
		return TransientFailure
	}
	return e.Connectivity
}

// readiness is the best result an RPC can get from a group, in ascending order.
type readiness uint8

const (
	allFailed      readiness = iota // all endpoints have failed
	someConnecting                  // an endpoint may become READY without a request
	someOnDemand                    // an endpoint may become READY once an RPC requests it
	someReady                       // an endpoint is READY
)

// readiness returns the best result an RPC can get from a group. Only the groups with the
// highest readiness of their priority are used (T-LOC-1).
func (in *groupInput) readiness(policy *Policy) readiness {
	hashes := policy.Hashes()
	switch {
	case in.count[Ready] > 0:
		return someReady
	case in.count[Idle] > 0 && (hashes || policy.Kind.Traits().Delegates), in.count[Connecting] > 0 && hashes:
		return someOnDemand
	case in.count[Idle]+in.count[Connecting] > 0:
		return someConnecting
	default:
		return allFailed
	}
}
