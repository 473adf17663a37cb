// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/xdslb/xdslb/picker/persistent"
)

// Build returns the snapshot of cfg with its clusters in the given states, which are parallel
// to cfg.Clusters. prev is the previous snapshot, or nil.
//
// Build reuses the unchanged parts of prev:
//
//   - a whole cluster with the same name and Version;
//   - in other clusters, each locality with the same Version and configuration, and also if
//     only the weights of some endpoints differ (reuse);
//   - otherwise, each locality with the same READY endpoints and the same weights;
//   - the routes, if they are the same slice and clusters have the same indexes.
//
// A locality in which only weights changed keeps its position in the sequence. A locality whose
// set of READY endpoints changed starts at a random position, so that clients of a fleet that
// are updated simultaneously do not start with the same endpoint (D2).
//
// If the routes are invalid, Build returns an error and prev remains valid. A cluster that is
// invalid, or whose state does not fit it, does not affect other clusters: its RPCs fail, and
// Snapshot.ClusterErr returns the reason.
//
// The cost of reused parts is O(clusters). For each changed cluster it is O(localities of the
// active priority) plus O(endpoints) of the localities that changed or have no Version, with
// allocations for each changed locality. With a Flat policy all localities count as one.
func Build(prev *Snapshot, cfg *Config, states []ClusterState, env Env) (*Snapshot, error) {
	return builder{start: rand.Uint64, env: env.withDefaults()}.build(prev, cfg, states)
}

// A builder is the state of one call of Build.
type builder struct {
	start func() uint64 // returns the start position of a new sequence
	env   Env           // with defaults applied

	// Scratch memory, reused for each cluster.
	inputs  []groupInput
	states  []Connectivity
	weights []uint32

	// Fields of the current cluster.
	policy      *Policy // localities are grouped for it
	breaker     *Breaker
	inSlowStart bool // an endpoint is in slow start
	scaled      bool // the latest weights were divided
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
	routed := b.env.Routed
	b.env.Routed = nil
	s := &Snapshot{
		table:  prev.table,
		env:    b.env,
		routes: cfg.Routes,
		index:  prev.index,
	}
	moved := !prev.sameNames(cfg.Clusters)
	if routed != nil && persistent.SameSlice(routed.routes, cfg.Routes) && routed.sameNames(cfg.Clusters) {
		s.table, s.index = routed.table, routed.index
	} else if moved {
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
	if s.table == nil || s.table == prev.table && (moved || !persistent.SameSlice(prev.routes, cfg.Routes)) {
		t, err := newRouteTable(cfg.Routes, s.index)
		if err != nil {
			return nil, fmt.Errorf("picker: %w", err)
		}
		s.table = t
	}
	items := make([]*clusterItem, len(states))
	for i := range states {
		var before *clusterItem
		if moved {
			before = prev.cluster(cfg.Clusters[i].Name)
		} else {
			before = prev.clusters.Item(i)
		}
		items[i] = b.cluster(before, cfg.Clusters[i], &states[i])
		s.count(items[i], +1)
	}
	s.clusters.Set(items)
	s.random = s.table.random || s.drawing > 0
	if invariants {
		s.checkInvariants(states)
	}
	return s, nil
}

// A ClusterChange is a change of one cluster of a snapshot.
type ClusterChange struct {
	Index   int // in Config.Clusters
	Cluster *Cluster
	State   *ClusterState
}

// Rebuild returns a snapshot that differs from prev, which must not be nil, in the states or
// configurations of some clusters. The names of all clusters and the routes are the same as in prev,
// and changes contains each cluster at most once. The result is the same as the result of Build with
// the same states. On average the cost is that of compiling the clusters in changes, if prev is the
// latest snapshot.
func Rebuild(prev *Snapshot, changes []ClusterChange, env Env) *Snapshot {
	return builder{start: rand.Uint64, env: env.withDefaults()}.rebuild(prev, changes)
}

func (b builder) rebuild(prev *Snapshot, changes []ClusterChange) *Snapshot {
	s := &Snapshot{
		table:   prev.table,
		env:     b.env,
		routes:  prev.routes,
		index:   prev.index,
		drawing: prev.drawing,
	}
	items := make([]persistent.Change[cluster], 0, len(changes))
	for _, ch := range changes {
		before := prev.clusters.Item(ch.Index)
		if it := b.cluster(before, ch.Cluster, ch.State); it != before {
			s.count(before, -1)
			s.count(it, +1)
			items = append(items, persistent.Change[cluster]{Index: ch.Index, Item: it})
		}
	}
	s.clusters.Follow(&prev.clusters, items)
	s.random = s.table.random || s.drawing > 0
	return s
}

// count adds n, which is +1 or -1, to the number of clusters that need the random word, if it
// does.
func (s *Snapshot) count(it *clusterItem, n int) {
	if it.Value.random {
		s.drawing += n
	}
}

// sameNames reports whether clusters have the same names at the same indexes as the clusters of
// s.
func (s *Snapshot) sameNames(clusters []*Cluster) bool {
	if s.index == nil || s.clusters.Len() != len(clusters) {
		return false
	}
	for i, c := range clusters {
		if c == nil || c.Name != s.clusters.At(i).name {
			return false
		}
	}
	return true
}

// cluster returns the cluster with the given name, or nil.
func (s *Snapshot) cluster(name string) *clusterItem {
	if i, ok := s.index[name]; ok {
		return s.clusters.Item(int(i))
	}
	return nil
}

// cluster compiles a cluster. before is its previous form, or nil.
func (b *builder) cluster(before *clusterItem, cfg *Cluster, state *ClusterState) *clusterItem {
	var prev *cluster
	if before != nil {
		prev = &before.Value
		if prev.version == state.Version {
			return before
		}
	}
	next := &clusterItem{Value: cluster{name: cfg.Name, version: state.Version}}
	c := &next.Value
	if prev != nil {
		c.cursor, c.peers = prev.cursor, prev.peers
	}
	if cfg.Err != nil || state.Leaf < 0 {
		c.outcome = Queue
		if cfg.Err != nil || state.Failed {
			c.outcome = Failed
		}
		return next
	}
	if err := b.compile(c, prev, cfg, state); err != nil {
		*c = cluster{name: c.name, version: c.version, cursor: c.cursor, peers: c.peers, outcome: Failed, err: err}
	}
	return next
}

// compile fills in c from the active leaf and priority.
func (b *builder) compile(c, prev *cluster, cfg *Cluster, state *ClusterState) error {
	leaf, priority, err := inUse(cfg, state)
	if err != nil {
		return err
	}
	if err := c.admission(leaf, state); err != nil {
		return err
	}
	if err := leaf.Policy.Check(); err != nil {
		return err
	}
	if invariants {
		checkLoads(state.Localities)
	}
	return b.groups(c, prev, leaf, priority, state)
}

// inUse returns the active leaf and priority.
func inUse(cfg *Cluster, state *ClusterState) (*Leaf, *Priority, error) {
	if state.Leaf >= len(cfg.Leaves) {
		return nil, nil, fmt.Errorf("active leaf %d: only %d leaves", state.Leaf, len(cfg.Leaves))
	}
	leaf := &cfg.Leaves[state.Leaf]
	if state.Priority < 0 || state.Priority >= len(leaf.Priorities) {
		return nil, nil, fmt.Errorf("active priority %d: only %d priorities", state.Priority, len(leaf.Priorities))
	}
	p := &leaf.Priorities[state.Priority]
	if len(state.Localities) != len(p.Localities) {
		return nil, nil, fmt.Errorf("%d states for %d localities", len(state.Localities), len(p.Localities))
	}
	return leaf, p, nil
}

// admission sets the fields that admit reads: drops and breaker.
func (c *cluster) admission(leaf *Leaf, state *ClusterState) (err error) {
	if state.Breaker == nil || state.Overload == nil {
		return errors.New("no circuit breaker or no counter of rejected RPCs")
	}
	if len(state.Drops) != len(leaf.Drops) || slices.Contains(state.Drops, nil) {
		return fmt.Errorf("drop categories: want %d counters", len(leaf.Drops))
	}
	if c.drops, err = dropBounds(leaf.Drops); err != nil {
		return err
	}
	if len(c.drops) > 0 {
		c.dropped = c.drops[len(c.drops)-1]
	}
	c.counts, c.overload = state.Drops, state.Overload
	c.breaker, c.limit, c.uncounted = state.Breaker, leaf.MaxRequests, state.Breaker.Unlimited
	if c.uncounted && leaf.CountsRPCs() {
		return errors.New("the circuit breaker does not count RPCs, which the leaf needs")
	}
	if boundsLoads(&leaf.Policy) {
		c.breaker.needTotal()
	}
	return nil
}

// groups compiles the groups of the active priority that can receive RPCs, and sets the
// cluster's outcome (T-LOC-1).
func (b *builder) groups(c, prev *cluster, leaf *Leaf, cfg *Priority, state *ClusterState) error {
	inputs, policy, err := b.route(c, prev, leaf, cfg, state)
	if err != nil {
		return err
	}
	if c.cursor == nil && policy.Flat {
		c.cursor = &Load{unreported: true}
	}
	b.inSlowStart = false
	best := allFailed
	for i := range inputs {
		best = max(best, inputs[i].readiness(policy))
	}
	c.recordInputs(policy, inputs)
	var weights []uint32
	if best >= someOnDemand {
		c.groups, weights = make([]group, 0, len(inputs)), make([]uint32, 0, len(inputs))
	}
	for i := range inputs {
		in := &inputs[i]
		if best < someOnDemand || in.readiness(policy) < best {
			continue
		}
		if c.routing != nil && c.routing.InForce {
			in.weight = shareWeight(c.routing.Localities[i].Share)
			if in.weight == 0 && (!policy.TimesRPCs() || c.routing.forced) {
				continue
			}
		}
		g, err := b.group(c, prev, in, policy)
		if err != nil {
			return fmt.Errorf("locality %v: %w", in.localities[0].ID, err)
		}
		if len(c.sources) > 0 {
			c.sources[in.locality].group = len(c.groups)
		}
		c.groups, weights = append(c.groups, g), append(weights, in.weight)
	}
	switch {
	case best == allFailed:
		c.outcome = Failed
	case best == someConnecting:
		c.outcome = Queue
	case len(c.groups) > 1:
		if c.alias, err = NewAlias(weights); err != nil {
			return fmt.Errorf("localities: %w", err)
		}
	}
	if len(c.groups) > 1 && policy.TimesRPCs() && c.routing != nil && c.routing.InForce && !c.routing.forced {
		var before *zones
		if prev != nil {
			before = prev.zones
		}
		c.joinZones(before)
	}
	c.inSlowStart = b.inSlowStart
	c.random = c.alias != nil || slices.ContainsFunc(c.drops, probability.random) || len(c.groups) > 0 && c.groups[0].rule.random()
	return nil
}

// route returns the inputs of the groups, and sets the shares of the localities if the policy
// is zone-aware. While zone-aware routing is in effect, a flat policy picks by locality, so the
// returned policy is not flat.
func (b *builder) route(c, prev *cluster, leaf *Leaf, cfg *Priority, state *ClusterState) ([]groupInput, *Policy, error) {
	policy := &leaf.Policy
	if policy.ZoneAware != nil {
		byLocality := *policy
		byLocality.Flat = false
		inputs, err := b.groupInputs(&byLocality, prev, cfg, state)
		if err != nil {
			return nil, nil, err
		}
		if c.routing = b.zoneRouting(leaf, state.Priority, inputs); c.routing.InForce {
			return inputs, &byLocality, nil
		}
	}
	inputs, err := b.groupInputs(policy, prev, cfg, state)
	return inputs, policy, err
}

// group compiles a group, or reuses the group of prev, the previous form of the cluster, which
// may be nil.
func (b *builder) group(c, prev *cluster, in *groupInput, policy *Policy) (group, error) {
	if g, ok := in.reuse(prev); ok {
		if invariants {
			b.checkReused(&g, *in, policy)
		}
		return g, nil
	}
	if in.endpoints == nil {
		if err := b.scan(in); err != nil {
			return group{}, err
		}
	}
	g, before := group{first: int32(in.first), load: in.load}, prev.groupOf(in)
	others := b.inSlowStart
	b.inSlowStart = false
	err := policy.Kind.Traits().compile(b, &g, before, in, c, policy)
	g.aging = b.inSlowStart
	b.inSlowStart = b.inSlowStart || others
	return g, err
}

// delegate makes g delegate its picks.
func (b *builder) delegate(g, _ *group, in *groupInput, _ *cluster, _ *Policy) error {
	g.rule, g.first = byDelegate, int32(in.locality)
	return nil
}
