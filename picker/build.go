// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Build returns the snapshot of cfg with its clusters in the given states, which
// are parallel to cfg.Clusters. prev is the snapshot before, or nil.
//
// What did not change is taken over from prev: a cluster with the same name and
// Version as it is; of a cluster that changed, each locality whose endpoints can
// be picked and weighted as before; the routes if they are the same slice and
// clusters have the same places. A locality whose weights alone changed goes on
// from its place in the sequence, and one whose set of endpoints changed starts
// at a random place, so that a fleet that is updated together does not begin
// with the same endpoint (D2).
//
// Build fails on a cfg whose routes are not valid and leaves nothing changed then.
// A cluster that is not valid, or whose state does not fit it, does not stand in
// the way of others: its RPCs fail, and Snapshot.ClusterErr says why. Build's cost is O(clusters) for what it takes over
// and O(endpoints of the priority in use) for each cluster that changed, with
// allocations for the localities that did.
func Build(prev *Snapshot, cfg *Config, states []ClusterState, env Env) (*Snapshot, error) {
	return builder{start: rand.Uint64, env: env.withDefaults()}.build(prev, cfg, states)
}

// A builder is what one Build works with.
type builder struct {
	start func() uint64 // where a new sequence starts
	env   Env           // with defaults

	// Memory that one cluster leaves to the next.
	pools   []pool
	states  []Connectivity
	weights []uint32

	warming bool // slow start is under way in the cluster
}

func (b builder) build(prev *Snapshot, cfg *Config, states []ClusterState) (*Snapshot, error) {
	if cfg == nil {
		return nil, errors.New("picker: no configuration")
	}
	if len(states) != len(cfg.Clusters) {
		return nil, fmt.Errorf("picker: %d states for %d clusters", len(states), len(cfg.Clusters))
	}
	if prev == nil {
		prev = new(Snapshot)
	}
	s := &Snapshot{
		table:    prev.table,
		clusters: make([]*cluster, len(states)),
		env:      b.env,
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
		c := b.cluster(prev.cluster(cfg.Clusters[i].Name), cfg.Clusters[i], &states[i])
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
func (b *builder) cluster(prev *cluster, cfg *Cluster, state *ClusterState) *cluster {
	if prev != nil && prev.version == state.Version {
		return prev
	}
	c := &cluster{name: cfg.Name, version: state.Version}
	if prev != nil {
		c.tickets = prev.tickets
	}
	if cfg.Err != nil || state.Leaf < 0 {
		c.outcome = Queue
		if cfg.Err != nil || state.Failed {
			c.outcome = Failed
		}
		return c
	}
	if err := b.compile(c, prev, cfg, state); err != nil {
		return &cluster{name: c.name, version: c.version, tickets: c.tickets, outcome: Failed, err: err}
	}
	return c
}

// compile fills in c from the leaf and priority that are in use.
func (b *builder) compile(c, prev *cluster, cfg *Cluster, state *ClusterState) error {
	leaf, priority, err := inUse(cfg, state)
	if err != nil {
		return err
	}
	if err := c.account(leaf, state); err != nil {
		return err
	}
	if err := leaf.Policy.check(); err != nil {
		return err
	}
	return b.groups(c, prev, &leaf.Policy, priority, state)
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

// groups compiles the groups of the priority in use that RPCs can be sent to, and
// decides on the cluster's outcome (T-LOC-1).
func (b *builder) groups(c, prev *cluster, policy *Policy, cfg *Priority, state *ClusterState) error {
	pools, err := b.survey(policy, cfg, state)
	if err != nil {
		return err
	}
	if c.tickets == nil && policy.Flat {
		c.tickets = new(Counter)
	}
	before := prev.byLoad()
	b.warming = false
	best := hopeless
	for i := range pools {
		best = max(best, pools[i].prospect(policy.Kind))
	}
	var weights []uint32
	for i := range pools {
		p := &pools[i]
		if best < lazy || p.prospect(policy.Kind) < best {
			continue
		}
		g, err := b.group(c, before[p.load], p, policy)
		if err != nil {
			return fmt.Errorf("locality %v: %w", p.localities[0].ID, err)
		}
		c.groups, weights = append(c.groups, g), append(weights, p.weight)
	}
	switch {
	case best == hopeless:
		c.outcome = Failed
	case best == hopeful:
		c.outcome = Queue
	case len(c.groups) > 1:
		if c.alias, err = NewAlias(weights); err != nil {
			return fmt.Errorf("localities: %w", err)
		}
	}
	c.warming = b.warming
	c.random = c.alias != nil || slices.ContainsFunc(c.drops, chance.random) || len(c.groups) > 0 && c.groups[0].rule.random()
	return nil
}

// group compiles a group. before is its last form, or nil.
func (b *builder) group(c *cluster, before *group, p *pool, policy *Policy) (group, error) {
	g := group{first: int32(p.first), load: p.load}
	var err error
	switch policy.Kind {
	case PolicyRingHash, PolicyMaglev:
		err = b.hashing(&g, before, p, policy)
	case PolicyLeastRequest:
		err = b.lottery(&g, p, policy)
	case PolicyPickFirst:
		err = b.pickFirst(&g, before, p)
	case PolicyCustom:
		g.rule, g.first = byChild, int32(p.locality)
	default:
		err = b.sequence(&g, before, p, c, policy)
	}
	return g, err
}
