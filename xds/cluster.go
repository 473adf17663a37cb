// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"slices"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// cluster is the state of a cluster that the routes of a target name.
type cluster struct {
	name      string
	plans     int32     // number of plans in use that name it
	position  int32     // in the published plan, if the cluster is part of it
	stale     bool      // a resource that it uses has changed
	readiness readiness // of the version in use; waiting without a version

	root *entry        // of the Cluster resource; nil before the first evaluation
	deps []*dependency // resources that it and its leaves use

	// The version in use: the leaves, or the reason why there are no leaves.
	leaves   []*leaf
	err      error
	received receiveTime // of the latest aggregate that leads to the leaves

	absent  int       // clusters of the latest version that have not been received, which may be leaves
	wanted  []*leaf   // leaves of the wanted version, if it differs and is not ready yet
	pending readiness // of the wanted version; ready if it is in use

	// The value, and the leaves that it was built from.
	value   *picker.Cluster
	parts   []*picker.Leaf
	arrived receiveTime // the latest one of the parts
}

// evaluateClusterLocked evaluates a cluster. Its errors do not affect other clusters (T-WATCH-4).
func (m *dependencyManager) evaluateClusterLocked(c *cluster) {
	m.trackLocked(c, func() { m.resolveClusterLocked(c) })
	m.evaluated = append(m.evaluated, c)
}

// resolveClusterLocked is evaluateClusterLocked without the tracking of dependencies.
func (m *dependencyManager) resolveClusterLocked(c *cluster) {
	var received receiveTime
	c.root = m.useLocked(resource.ClusterType, c.name)
	names, absent, r, err := flatten(c.name, maxLeaves+1-m.excess+c.excess(), func(name string) *entry {
		e := m.useLocked(resource.ClusterType, name)
		if c, ok := e.value.(*resource.Cluster); !ok || c.Kind == resource.ClusterAggregate {
			received = latest(received, e.updated) // all other entries are leaves, which have their own arrival
		}
		return e
	})
	if m.boundLeavesLocked(c, len(names)+absent) {
		names, absent, r, err = nil, 0, ready, fmt.Errorf("xdslb: aggregate cluster %q: the aggregate clusters of the target lead to more than %d clusters in all", c.name, maxLeaves)
	}
	wanted := make([]*leaf, len(names))
	for i, name := range names {
		wanted[i] = m.leafLocked(name)
		r = min(r, wanted[i].readiness)
	}
	if r.replaces(c.readiness) {
		c.readiness, c.pending, c.err, c.received = r, ready, err, received
		m.exchangeLeavesLocked(c, wanted, nil, absent)
	} else {
		c.pending = r
		m.exchangeLeavesLocked(c, c.leaves, wanted, absent)
		for _, l := range c.leaves {
			m.resolveLeafLocked(l)
		}
	}
	if c.readiness != waiting {
		c.assembleLocked(m)
	}
}

// maxLeaves bounds the sum of the leaves of all clusters of a target, apart from the first of each: a
// channel has state for each, and aggregates of aggregates make it a product of what a control plane
// sends (T-SEC-2).
const maxLeaves = 1 << 14

// boundLeavesLocked reports whether a cluster with n leaves, or clusters that may be leaves, exceeds maxLeaves. It is evaluated again
// once another cluster has fewer leaves.
func (m *dependencyManager) boundLeavesLocked(c *cluster, n int) bool {
	if n > 1 && m.excess-c.excess()+n-1 > maxLeaves {
		m.refused[c] = struct{}{}
		return true
	}
	delete(m.refused, c)
	return false
}

// excess returns the number of leaves of a cluster that count for maxLeaves.
func (c *cluster) excess() int {
	return max(0, len(c.leaves)-1) + max(0, len(c.wanted)-1) + max(0, c.absent-1)
}

// assembleLocked makes the value of the version in use, unless it has not changed.
func (c *cluster) assembleLocked(m *dependencyManager) {
	c.arrived = c.received
	if c.err != nil {
		err := m.core.withNodeID(c.err)
		if c.value == nil || c.value.Err == nil || c.value.Err.Error() != err.Error() {
			c.value, c.parts = &picker.Cluster{Name: c.name, Err: err}, nil
		}
		return
	}
	same := c.value != nil && c.value.Err == nil && len(c.parts) == len(c.leaves)
	parts := make([]*picker.Leaf, len(c.leaves))
	for i, l := range c.leaves {
		c.arrived = latest(c.arrived, l.received)
		parts[i] = l.value
		same = same && parts[i] == c.parts[i]
	}
	if same {
		return
	}
	made := &m.useLocked(resource.ClusterType, c.name).made
	// Two names may mean the same resource; see resource.CanonicalName.
	if made.cluster == nil || made.cluster.Name != c.name || !slices.Equal(made.leaves, parts) {
		made.leaves = parts
		made.cluster = &picker.Cluster{Name: c.name, Leaves: make([]picker.Leaf, len(parts))}
		for i, part := range parts {
			made.cluster.Leaves[i] = *part
		}
	}
	c.parts, c.value = made.leaves, made.cluster
}

// leaf is the state of a cluster that has endpoints.
type leaf struct {
	name      string
	users     int32     // clusters, each as often as it uses the leaf or wants to
	uses      int32     // clusters whose version in use has the leaf
	readiness readiness // of the version in use; waiting without a version

	// The version in use. The entry of the endpoints may be the one that an earlier version of the
	// cluster names.
	cluster   *resource.Cluster
	endpoints *entry
	received  receiveTime // of the later one of them
	held      error       // why a newer version of the cluster is not in use, if its endpoints are unavailable

	value *picker.Leaf
	made  leafInputs
	need  hashNeed
}

// leafLocked returns a leaf, up to date. Its Cluster resource is in the cache.
func (m *dependencyManager) leafLocked(name string) *leaf {
	l := m.leaves[name]
	if l == nil {
		l = &leaf{name: name}
		m.leaves[name] = l
	}
	m.resolveLeafLocked(l)
	return l
}

// resolveLeafLocked updates a leaf of the cluster that is being evaluated. It is idempotent.
func (m *dependencyManager) resolveLeafLocked(l *leaf) {
	cds := m.useLocked(resource.ClusterType, l.name)
	if want, _ := cds.value.(*resource.Cluster); want != nil && want.Kind != resource.ClusterAggregate {
		l.wantLocked(want, m.endpointsLocked(want), cds.originLocked())
	}
	if l.readiness == waiting {
		return
	}
	m.useEntryLocked(l.endpoints) // which may differ from the wanted ones
	if l.cluster == cds.value {
		l.received = latest(l.received, cds.updated)
	}
	l.received = latest(l.received, l.endpoints.updated)
	origin, at := m.originLocked(l.cluster)
	l.received = latest(l.received, at)
	endpoints := l.endpoints.value
	if l.cluster.Strict != nil {
		endpoints = l.cluster.Strict
	}
	need := hashNeedOf(&l.cluster.Policy, endpoints)
	if need != l.need {
		m.hashes.add(l.need, -int(l.uses))
		m.hashes.add(need, int(l.uses))
		l.need = need
	}
	made := leafInputs{cluster: l.cluster, endpoints: l.endpoints.value, origin: origin, halvings: m.halvings}
	if cds.from != nil && l.cluster.LoadReporting {
		made.server = cds.from.Key()
	}
	note := l.noteLocked(cds)
	if note != nil {
		note = m.core.withNodeID(note)
		made.note = note.Error()
	}
	if l.value == nil || l.made != made {
		if cds.made.leaf == nil || cds.made.inputs != made {
			cds.made.inputs, cds.made.leaf = made, newLeaf(made, note)
		}
		l.made, l.value = made, cds.made.leaf
	}
}

// wantLocked makes a version of the cluster the one in use. A version whose endpoints are not known
// does not replace a version whose endpoints are, since that would only harm the cluster.
func (l *leaf) wantLocked(c *resource.Cluster, endpoints *entry, origin source) {
	l.held = nil
	switch r := endpoints.readinessLocked(origin); {
	case r == ready || r > waiting && l.readiness != ready:
		l.readiness, l.cluster, l.endpoints = r, c, endpoints
	case r == unavailable && !endpoints.unansweredLocked():
		l.held = fmt.Errorf("%w; the previous version of the cluster stays in use", endpoints.err)
	}
}

// endpointsLocked returns the entry that has the endpoints of a cluster.
func (m *dependencyManager) endpointsLocked(c *resource.Cluster) *entry {
	if c.Kind == resource.ClusterDNS {
		names := dnsNames{c.DNSTargets, c.DNSRefresh}
		key := names.String()
		m.cache.entryLocked(dnsType, key).names = names // before its lookups start
		return m.useLocked(dnsType, key)
	}
	return m.useLocked(resource.EndpointsType, c.EDSService)
}

// noteLocked returns the error about a leaf in use (A74, A88).
func (l *leaf) noteLocked(cds *entry) error {
	var note error
	for _, err := range []error{cds.err, l.endpoints.noteLocked(), l.held} {
		switch {
		case note == nil:
			note = err
		case err != nil:
			note = fmt.Errorf("%w; %w", note, err)
		}
	}
	return note
}

// newLeaf joins cluster and endpoints. It copies slice headers only.
func newLeaf(of leafInputs, note error) *picker.Leaf {
	c := of.cluster
	l := &picker.Leaf{
		Name:           c.Name,
		Policy:         bounded(c.Policy, of.halvings),
		MaxRequests:    c.MaxRequests,
		DefaultLimit:   c.DefaultLimit,
		Retries:        c.Retries,
		Outlier:        c.Outlier,
		Override:       c.Override,
		TLS:            c.TLS,
		HealthCheck:    c.HealthCheck,
		Origin:         of.origin,
		Ignored:        c.Ignored,
		ResolutionNote: note,
	}
	if c.Kind == resource.ClusterEDS {
		l.Service = c.ServiceName
	}
	if of.server != "" {
		l.Load = picker.LoadReporting{Server: of.server, Metrics: c.Metrics}
	}
	switch endpoints := of.endpoints.(type) {
	case *resource.Endpoints:
		l.Priorities, l.Drops, l.Unhealthy = endpoints.Priorities, endpoints.Drops, endpoints.Unhealthy
	case *addresses:
		l.Priorities = endpoints.priorities(c)
		if c.Strict != nil {
			l.Drops, l.Unhealthy = c.Strict.Drops, c.Strict.Unhealthy
		}
	}
	return l
}
