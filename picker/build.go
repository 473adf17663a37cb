// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/xdslb/xdslb/edf"
)

// Build returns the snapshot of cfg with its clusters in the given states, which
// are parallel to cfg.Clusters. prev is the snapshot before, or nil. header
// returns the values of an RPC's header, for routes that depend on some; nil
// stands for none.
//
// What did not change is taken over from prev: a cluster with the same name and
// Version as it is; of a cluster that changed, each locality whose endpoints can
// be picked and weighted as before; the routes if they are the same slice and
// clusters have the same places. A locality whose weights alone changed goes on
// from its place in the sequence, and one whose set of endpoints changed starts
// at a random place, so that a fleet that is updated together does not begin
// with the same endpoint (D2).
//
// Build fails on a cfg that is not valid and on states that do not fit it, and
// leaves nothing changed then. Its cost is O(clusters) for what it takes over
// and O(endpoints of the priority in use) for each cluster that changed, with
// allocations for the localities that did.
func Build(prev *Snapshot, cfg *Config, states []ClusterState, header func(ctx context.Context, name string) []string) (*Snapshot, error) {
	return builder{start: rand.Uint64}.build(prev, cfg, states, header)
}

// A builder is what one Build works with.
type builder struct {
	start   func() uint64 // where a new sequence starts
	scratch []uint32
}

func (b builder) build(prev *Snapshot, cfg *Config, states []ClusterState, header func(ctx context.Context, name string) []string) (*Snapshot, error) {
	if cfg == nil {
		return nil, errors.New("picker: no configuration")
	}
	if len(states) != len(cfg.Clusters) {
		return nil, fmt.Errorf("picker: %d states for %d clusters", len(states), len(cfg.Clusters))
	}
	if prev == nil {
		prev = new(Snapshot)
	}
	if header == nil {
		header = func(context.Context, string) []string { return nil }
	}
	s := &Snapshot{
		table:    prev.table,
		clusters: make([]*cluster, len(states)),
		header:   header,
		routes:   cfg.Routes,
		index:    prev.index,
	}
	moved := !prev.sameNames(cfg.Clusters)
	if moved {
		s.index = make(map[string]int32, len(cfg.Clusters))
		for i, c := range cfg.Clusters {
			if c == nil {
				return nil, fmt.Errorf("picker: cluster %d is nil", i)
			}
			if _, twice := s.index[c.Name]; twice {
				return nil, fmt.Errorf("picker: cluster %q is configured twice", c.Name)
			}
			s.index[c.Name] = int32(i)
		}
	}
	if s.table == nil || moved || !sameSlice(prev.routes, cfg.Routes) {
		t, err := newRouteTable(cfg.Routes, s.index)
		if err != nil {
			return nil, fmt.Errorf("picker: %w", err)
		}
		s.table = t
	}
	s.random = s.table.random
	for i := range states {
		c, err := b.cluster(prev.cluster(cfg.Clusters[i].Name), cfg.Clusters[i], &states[i])
		if err != nil {
			return nil, fmt.Errorf("picker: cluster %q: %w", cfg.Clusters[i].Name, err)
		}
		s.clusters[i] = c
		s.random = s.random || c.random
	}
	if invariants {
		s.checkInvariants(states)
	}
	return s, nil
}

// sameNames reports whether clusters have the names, at the indexes, of those
// of s.
func (s *Snapshot) sameNames(clusters []*Cluster) bool {
	return s.index != nil && slices.EqualFunc(s.clusters, clusters, func(a *cluster, b *Cluster) bool {
		return b != nil && a.name == b.Name
	})
}

// cluster returns the cluster of a name, or nil.
func (s *Snapshot) cluster(name string) *cluster {
	if i, ok := s.index[name]; ok {
		return s.clusters[i]
	}
	return nil
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// cluster compiles a cluster. prev is its last form, or nil.
func (b *builder) cluster(prev *cluster, cfg *Cluster, state *ClusterState) (*cluster, error) {
	if prev != nil && prev.version == state.Version {
		return prev, nil
	}
	c := &cluster{name: cfg.Name, version: state.Version}
	if cfg.Err != nil || state.Leaf < 0 {
		c.outcome = Queue
		if cfg.Err != nil || state.Failed {
			c.outcome = Failed
		}
		return c, nil
	}
	leaf, priority, err := inUse(cfg, state)
	if err != nil {
		return nil, err
	}
	if err := c.account(leaf, state); err != nil {
		return nil, err
	}
	if err := leaf.Policy.check(); err != nil {
		return nil, err
	}
	if err := b.localities(c, prev, leaf.Policy.Kind, priority, state); err != nil {
		return nil, err
	}
	c.random = c.alias != nil || c.dropped.random()
	return c, nil
}

// inUse returns the leaf and priority that are in use.
func inUse(cfg *Cluster, state *ClusterState) (*Leaf, *Priority, error) {
	if state.Leaf >= len(cfg.Leaves) {
		return nil, nil, fmt.Errorf("leaf %d of %d is in use", state.Leaf, len(cfg.Leaves))
	}
	leaf := &cfg.Leaves[state.Leaf]
	if state.Priority < 0 || state.Priority >= len(leaf.Priorities) {
		return nil, nil, fmt.Errorf("priority %d of %d is in use", state.Priority, len(leaf.Priorities))
	}
	p := &leaf.Priorities[state.Priority]
	if len(state.Localities) != len(p.Localities) {
		return nil, nil, fmt.Errorf("%d states for %d localities", len(state.Localities), len(p.Localities))
	}
	return leaf, p, nil
}

// account fills in what comes before an endpoint is chosen: drops and breaker.
func (c *cluster) account(leaf *Leaf, state *ClusterState) (err error) {
	if state.Breaker == nil || state.Overload == nil {
		return errors.New("no circuit breaker or no counter of what it refuses")
	}
	if len(state.Drops) != len(leaf.Drops) || slices.Contains(state.Drops, nil) {
		return fmt.Errorf("%d drop categories have no counter each", len(leaf.Drops))
	}
	if c.drops, err = dropBounds(leaf.Drops); err != nil {
		return err
	}
	if len(c.drops) > 0 {
		c.dropped = c.drops[len(c.drops)-1]
	}
	c.counts, c.overload = state.Drops, state.Overload
	c.breaker, c.limit = state.Breaker, leaf.MaxRequests
	return nil
}

// check reports whether snapshots know the policy.
func (p *Policy) check() error {
	switch {
	case p.Kind != PolicyEDF && p.Kind != PolicyRoundRobin:
		return fmt.Errorf("policy kind %d is not supported", p.Kind)
	case p.Flat:
		return fmt.Errorf("policy kind %d in one layer of all localities is not supported", p.Kind)
	}
	return nil
}

// localities compiles the localities of the priority in use and decides on the
// cluster's outcome (T-LOC-1).
func (b *builder) localities(c, prev *cluster, kind PolicyKind, cfg *Priority, state *ClusterState) error {
	before := prev.byLoad()
	var shares []uint32
	first, pending := 0, false
	for i := range cfg.Localities {
		lc, ls := &cfg.Localities[i], &state.Localities[i]
		weights, waits, err := b.weigh(kind, lc, ls, c.breaker)
		if err != nil {
			return fmt.Errorf("locality %v: %w", lc.ID, err)
		}
		pending = pending || waits
		if weights != nil {
			l := locality{load: ls.Load, first: int32(first)}
			if err := b.schedule(&l, before[ls.Load], weights); err != nil {
				return fmt.Errorf("locality %v: %w", lc.ID, err)
			}
			c.localities, shares = append(c.localities, l), append(shares, lc.Weight)
		}
		if first += len(lc.Endpoints); first > math.MaxInt32 {
			return fmt.Errorf("more than %d endpoints", math.MaxInt32)
		}
	}
	switch {
	case len(c.localities) == 0 && pending:
		c.outcome = Queue
	case len(c.localities) == 0:
		c.outcome = Failed
	case len(c.localities) > 1:
		alias, err := NewAlias(shares)
		if err != nil {
			return fmt.Errorf("localities: %w", err)
		}
		c.alias = alias
	}
	return nil
}

// byLoad returns the localities of c, which may be nil, by their Load.
func (c *cluster) byLoad() map[*Load]*locality {
	if c == nil {
		return nil
	}
	m := make(map[*Load]*locality, len(c.localities))
	for i := range c.localities {
		m[c.localities[i].load] = &c.localities[i]
	}
	return m
}

// weigh returns the weights of a locality's endpoints, 0 for those that are not
// to be picked (EDF-16), or nil if none is, in memory that the next call reuses.
// waits says that an endpoint may yet become READY.
func (b *builder) weigh(kind PolicyKind, cfg *Locality, state *LocalityState, breaker *Breaker) (weights []uint32, waits bool, err error) {
	if len(state.Endpoints) != len(cfg.Endpoints) {
		return nil, false, fmt.Errorf("%d states for %d endpoints", len(state.Endpoints), len(cfg.Endpoints))
	}
	if state.Load == nil {
		return nil, false, errors.New("no load counters")
	}
	weights, usable := b.scratch[:0], false
	for i, e := range state.Endpoints {
		if e == nil || e.load != state.Load || e.breaker != breaker {
			return nil, false, fmt.Errorf("endpoint %d (%v) is not bound to the counters of its locality and cluster", i, cfg.Endpoints[i].Addr)
		}
		w := uint32(0)
		if cfg.Endpoints[i].Health != Draining {
			switch e.Connectivity {
			case Ready:
				if w = cfg.Endpoints[i].Weight; kind == PolicyRoundRobin {
					w = 1
				}
				usable = usable || w > 0
			case Idle, Connecting:
				waits = true
			}
		}
		weights = append(weights, w)
	}
	b.scratch = weights
	if !usable {
		return nil, waits, nil
	}
	return weights, waits, nil
}

// schedule gives l the sequence of weights. before is its last form, or nil.
func (b *builder) schedule(l, before *locality, weights []uint32) (err error) {
	switch {
	case before == nil || !sameActive(before.weights, weights):
		l.weights = slices.Clone(weights)
		l.schedule, err = edf.Config{Weights: l.weights, Start: b.start(), Base: l.load.issued.Load()}.Schedule()
	case slices.Equal(before.weights, weights):
		l.weights, l.schedule = before.weights, before.schedule
	default:
		l.weights = slices.Clone(weights)
		l.schedule, err = before.schedule.Reweigh(l.weights, l.load.issued.Load())
	}
	return err
}

// sameActive reports whether the same indexes have a weight in a and b.
func sameActive(a, b []uint32) bool {
	return slices.EqualFunc(a, b, func(v, w uint32) bool { return (v > 0) == (w > 0) })
}
