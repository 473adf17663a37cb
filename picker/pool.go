// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// A pool is what a group is made from: a set of endpoints, and how they are at
// the moment.
type pool struct {
	load       *Load // of its locality; nil if it has several
	weight     uint32
	locality   int        // the index of its first locality in the priority
	first      int        // the index of its first endpoint in the priority
	localities []Locality // as configured
	endpoints  []*EndpointState
	states     []Connectivity // what new RPCs may take them for; parallel to endpoints
	count      [4]int         // of states
}

// survey returns the pools of the priority in use: one if the policy is flat,
// else one for each locality. Their states are in memory that the next call
// reuses.
func (b *builder) survey(policy *Policy, cfg *Priority, state *ClusterState) ([]pool, error) {
	pools, first, total := b.pools[:0], 0, 0
	for i := range cfg.Localities {
		total += len(cfg.Localities[i].Endpoints)
	}
	if total > math.MaxInt32 {
		return nil, fmt.Errorf("%d endpoints, more than %d", total, math.MaxInt32)
	}
	b.states = slices.Grow(b.states[:0], total)
	for i := range cfg.Localities {
		lc, ls := &cfg.Localities[i], &state.Localities[i]
		if !policy.Flat || i == 0 {
			pools = append(pools, pool{load: ls.Load, weight: lc.Weight, locality: i, first: first, endpoints: ls.Endpoints})
		} else {
			p := &pools[0]
			if i == 1 {
				p.load, p.endpoints = nil, append(make([]*EndpointState, 0, total), p.endpoints...)
			}
			p.endpoints = append(p.endpoints, ls.Endpoints...)
		}
		p := &pools[len(pools)-1]
		p.localities = cfg.Localities[p.locality : i+1]
		if err := b.visit(p, lc, ls, state.Breaker, policy.CountsInFlight()); err != nil {
			return nil, fmt.Errorf("locality %v: %w", lc.ID, err)
		}
		first += len(lc.Endpoints)
	}
	for i := range pools {
		p := &pools[i]
		p.states = b.states[p.first : p.first+len(p.endpoints)]
	}
	b.pools = pools
	return pools, nil
}

// visit checks the endpoints of a locality and takes down their states.
func (b *builder) visit(p *pool, cfg *Locality, state *LocalityState, breaker *Breaker, counted bool) error {
	if len(state.Endpoints) != len(cfg.Endpoints) {
		return fmt.Errorf("%d states for %d endpoints", len(state.Endpoints), len(cfg.Endpoints))
	}
	if state.Load == nil {
		return errors.New("no load counters")
	}
	for i, e := range state.Endpoints {
		switch {
		case e == nil || e.load != state.Load || e.breaker != breaker:
			return fmt.Errorf("endpoint %d (%v) is not bound to the counters of its locality and cluster", i, cfg.Endpoints[i].Addr)
		case e.counted != counted:
			return fmt.Errorf("endpoint %d (%v) counts RPCs in flight: %t, its policy wants %t", i, cfg.Endpoints[i].Addr, e.counted, counted)
		case e.Connectivity > TransientFailure:
			return fmt.Errorf("endpoint %d (%v) has connectivity %d", i, cfg.Endpoints[i].Addr, e.Connectivity)
		}
		s := e.Connectivity
		if cfg.Endpoints[i].Health == Draining || s == Ready && e.Ejected { // EDF-16, A50
			s = TransientFailure
		}
		p.count[s]++
		b.states = append(b.states, s)
	}
	return nil
}

// A prospect is what RPCs may hope for in a pool.
type prospect uint8

const (
	hopeless prospect = iota // all endpoints have failed
	hopeful                  // an endpoint may become READY by itself
	lazy                     // an endpoint may become READY once an RPC asks for it
	good                     // an endpoint is READY
)

// prospect returns what RPCs may hope for in p. Only the pools that offer most get
// any (T-LOC-1).
func (p *pool) prospect(kind PolicyKind) prospect {
	hashes := kind == PolicyRingHash || kind == PolicyMaglev
	switch {
	case p.count[Ready] > 0:
		return good
	case p.count[Idle] > 0 && (hashes || kind == PolicyCustom), p.count[Connecting] > 0 && hashes:
		return lazy
	case p.count[Idle]+p.count[Connecting] > 0:
		return hopeful
	default:
		return hopeless
	}
}
