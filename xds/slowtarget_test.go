// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"reflect"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// slowTarget evaluates a target the slow way: everything from scratch, each time that the cache may
// have changed. It is the oracle of dependencyManager, which evaluates only the stale parts.
type slowTarget struct {
	m        *dependencyManager
	used     map[*entry]bool
	seen     map[string]bool // clusters of this evaluation
	clusters map[string]*slowCluster
	leaves   map[string]*slowLeaf
	active   *plan
	origin   *entry // of its routes
	halvings uint8
	err      error
	unknown  string // a resource that the manager does not watch
}

// lack is a resource that an update still needs, by the rules (and not by readiness): T-WATCH-2 has an update wait
// for resources about which nothing is known. A74 confines the error of a cluster to that cluster, so
// an update does not wait for resources with an error. A57 has an outage of servers change nothing, so an
// update still waits for resources of the same servers that could not arrive because of an outage.
type lack struct {
	unknown bool // a resource without a version or an error
	cut     bool // a resource that the unreachable servers of the update have not sent
}

func (l lack) and(o lack) lack { return lack{l.unknown || o.unknown, l.cut || o.cut} }

// takesEffect reports whether an update that lacks l replaces a version that lacked old when it took
// effect; nil if there is none.
func (l lack) takesEffect(old *lack) bool {
	return !l.unknown && (!l.cut || old == nil || old.cut)
}

// lackOf returns the lack of an update that names a resource.
func lackOf(e, update *entry) lack {
	switch {
	case e.value != nil || e.err != nil && !e.transient:
		return lack{}
	case e.err == nil:
		return lack{unknown: true}
	}
	return lack{cut: e.state == Requested && authorityOf(e.key.name) == authorityOf(update.key.name)}
}

type slowCluster struct {
	root     *entry
	found    bool // there is a version in use, which lacked lacks
	lacks    lack
	pending  lack // of the wanted version, unless it is in use
	leaves   []string
	err      error
	received receiveTime
}

// slowLeaf is a leaf whose version in use, if there is one, lacks lacks, and has known endpoints or
// not.
type slowLeaf struct {
	leaf
	found, known bool
	lacks        lack
}

func newSlowTarget(m *dependencyManager) *slowTarget {
	return &slowTarget{m: m, clusters: map[string]*slowCluster{}, leaves: map[string]*slowLeaf{}}
}

func (s *slowTarget) lookup(typ resource.Type, name string) *entry {
	if typ != dnsType {
		name = resource.CanonicalName(name)
	}
	e := s.m.cache.entries[entryKey{typ, name}]
	if e != nil {
		e = s.m.all.entryLocked(e, s.m.selection, !s.m.key.options.DropDeleted)
	}
	if e == nil || e.watchers[s.m] == nil {
		s.unknown = fmt.Sprintf("%v %q", typ, name)
		return &entry{}
	}
	s.used[e] = true
	return e
}

// checkLocked evaluates, and reports differences from the manager's outcome.
func (s *slowTarget) checkLocked() error {
	s.used, s.seen, s.unknown, s.err = map[*entry]bool{}, map[string]bool{}, "", nil
	s.update()
	if s.active != nil {
		if name := s.active.listener.RouteConfigName; name != "" {
			s.lookup(resource.RouteConfigType, name)
		}
		s.resolve(s.active)
		needs := s.needs()
		if s.halvings = halvingsFor(needs, s.m.key.options.MaxHashBytes); s.halvings != s.m.halvings {
			return fmt.Errorf("%d halvings, want %d", s.m.halvings, s.halvings)
		}
	}
	for name := range s.clusters {
		if !s.seen[name] {
			delete(s.clusters, name)
		}
	}
	for name := range s.leaves {
		if !s.seen["leaf "+name] {
			delete(s.leaves, name)
		}
	}
	return s.compare()
}

// compare compares the manager's state with the evaluation.
func (s *slowTarget) compare() error {
	m := s.m
	if s.unknown != "" {
		return fmt.Errorf("%s is not watched", s.unknown)
	}
	n := 0
	for e := range m.depsLocked() {
		if n++; !s.used[e] {
			return fmt.Errorf("%v resource %q is watched for nothing", e.key.typ, e.key.name)
		}
	}
	if n != len(s.used) {
		return fmt.Errorf("%d resources are known to be in use, want %d", n, len(s.used))
	}
	if len(m.clusters) != len(s.clusters) || len(m.leaves) != len(s.leaves) {
		return fmt.Errorf("%d clusters and %d leaves are kept, want %d and %d", len(m.clusters), len(m.leaves), len(s.clusters), len(s.leaves))
	}
	if s.active == nil {
		if m.config != nil || s.err != nil && (m.err == nil || m.err.Error() != m.core.withNodeID(s.err).Error()) {
			return fmt.Errorf("configuration %v and error %v, want error %v", m.config, m.err, s.err)
		}
		return nil
	}
	if m.config == nil {
		return fmt.Errorf("no configuration but %v, want one", m.err)
	}
	got, want := m.config, &picker.Config{Routes: s.active.routes, Filters: s.active.filters, MaxStreamDuration: s.active.maxStreamDuration}
	var at receiveTime
	for _, name := range s.active.clusters {
		value, arrived := s.assemble(name)
		want.Clusters, at = append(want.Clusters, value), latest(at, arrived)
	}
	want.Received = got.Received
	if !equalConfigs(got, want) {
		return fmt.Errorf("%s\nwant %s", describe(got), describe(want))
	}
	if timeOrZero(m.received).Before(timeOrZero(at)) {
		return fmt.Errorf("received at %v, want %v or later", timeOrZero(m.received), timeOrZero(at))
	}
	return nil
}

// update makes the plan of the present Listener and RouteConfiguration the active one if it takes
// effect. Without one, the target fails if the resource is known to be unusable. If it is temporarily
// unavailable, the active plan stays (A88).
func (s *slowTarget) update() {
	key := s.m.key
	e := s.lookup(resource.ListenerType, key.listener)
	listener, _ := e.value.(*resource.Listener)
	var routes *resource.RouteConfig
	if listener != nil {
		if routes = listener.RouteConfig; routes == nil {
			e = s.lookup(resource.RouteConfigType, listener.RouteConfigName)
			routes, _ = e.value.(*resource.RouteConfig)
		}
	}
	if routes == nil {
		s.err = e.err
		if e.err != nil && !e.transient {
			s.active = nil
		}
		return
	}
	host := routes.Match(key.authority)
	if host == nil {
		s.err = fmt.Errorf("xdslb: route configuration %q of listener %q has no virtual host for %q", routes.Name, key.listener, key.authority)
		s.active = nil
		return
	}
	want := newPlan(comparison{listener: listener, host: host})
	s.resolve(want)
	var old *lack
	if s.active != nil {
		lacks := s.lacks(s.active, s.origin)
		old = &lacks
	}
	lacks := s.lacks(want, e)
	for _, name := range want.clusters {
		if c := s.clusters[name]; len(c.leaves) == 0 { // it has an error, and may have been received since
			lacks = lacks.and(c.pending)
		}
	}
	if lacks.takesEffect(old) {
		s.active, s.origin = want, e
	}
}

// resolve evaluates the clusters of a plan.
func (s *slowTarget) resolve(p *plan) {
	for _, name := range p.clusters {
		s.cluster(name)
	}
}

// lacks returns the resources that a plan lacks. origin has the routes.
func (s *slowTarget) lacks(p *plan, origin *entry) (l lack) {
	for _, name := range p.clusters {
		c := s.clusters[name]
		if !c.found {
			l.unknown = true
		}
		l = l.and(c.lacks).and(lackOf(c.root, origin))
	}
	return l
}

func (s *slowTarget) cluster(name string) *slowCluster {
	c := s.clusters[name]
	if c == nil {
		c = &slowCluster{}
		s.clusters[name] = c
	}
	s.seen[name] = true
	var received receiveTime
	graph := map[string]*entry{}
	leaves, _, _, err := flatten(name, maxLeaves, func(name string) *entry {
		e := s.lookup(resource.ClusterType, name)
		if c, ok := e.value.(*resource.Cluster); !ok || c.Kind == resource.ClusterAggregate {
			received = latest(received, e.updated)
		}
		graph[name] = e
		return e
	})
	c.root = graph[name]
	lacks := lack{unknown: lackOf(c.root, c.root).unknown}
	for _, e := range graph {
		if of, _ := e.value.(*resource.Cluster); of != nil {
			for _, child := range of.Children {
				if graph[child] != nil {
					lacks = lacks.and(lackOf(graph[child], e))
				}
			}
		}
	}
	for _, name := range leaves {
		l := s.leaf(name)
		lacks = lacks.and(l.lacks).and(lack{unknown: !l.found})
	}
	old := &c.lacks
	if !c.found {
		old = nil
	}
	if lacks.takesEffect(old) {
		c.found, c.lacks, c.leaves, c.err, c.received = true, lacks, leaves, err, received
		lacks = lack{}
	}
	c.pending = lacks
	for _, leaf := range c.leaves {
		s.leaf(leaf)
	}
	return c
}

// leaf evaluates a leaf. Endpoints that are not known do not replace endpoints that are.
func (s *slowTarget) leaf(name string) *slowLeaf {
	l := s.leaves[name]
	if l == nil {
		l = &slowLeaf{}
		s.leaves[name] = l
	}
	s.seen["leaf "+name] = true
	cds := s.lookup(resource.ClusterType, name)
	if want, _ := cds.value.(*resource.Cluster); want != nil && want.Kind != resource.ClusterAggregate {
		endpoints := s.lookup(resource.EndpointsType, want.EDSService)
		known, lacks := endpoints.value != nil || endpoints.err != nil && !endpoints.transient, lackOf(endpoints, cds)
		l.held = nil
		if known || !l.known && !lacks.unknown {
			l.found, l.known, l.lacks, l.cluster, l.endpoints = true, known, lacks, want, endpoints
		} else if endpoints.err != nil && endpoints.state != Requested {
			l.held = fmt.Errorf("%w; the previous version of the cluster stays in use", endpoints.err)
		}
	}
	if !l.found {
		return l
	}
	s.used[l.endpoints] = true
	if l.cluster.Policy.ZoneAware != nil {
		s.lookup(resource.EndpointsType, s.m.key.options.LocalCluster)
	}
	if l.cluster == cds.value {
		l.received = latest(l.received, cds.updated)
	}
	l.received = latest(l.received, l.endpoints.updated)
	return l
}

func (s *slowTarget) needs() map[hashNeed]int {
	var needs hashNeeds
	for name, c := range s.clusters {
		if !s.seen[name] {
			continue
		}
		for _, name := range c.leaves { // each has tables for this cluster
			l := s.leaves[name]
			needs.add(hashNeedOf(&l.cluster.Policy, l.endpoints.value), 1)
		}
	}
	return needs.leaves
}

// assemble makes the value of a cluster, and returns the time at which its latest part arrived.
func (s *slowTarget) assemble(name string) (*picker.Cluster, receiveTime) {
	c := s.clusters[name]
	if c.err != nil {
		return &picker.Cluster{Name: name, Err: s.m.core.withNodeID(c.err)}, c.received
	}
	value, at := &picker.Cluster{Name: name}, c.received
	for _, name := range c.leaves {
		l := s.leaves[name]
		at = latest(at, l.received)
		cds := s.lookup(resource.ClusterType, name)
		made := leafInputs{cluster: l.cluster, endpoints: l.endpoints.value, halvings: s.halvings}
		if l.cluster.Policy.ZoneAware != nil {
			fleet := s.lookup(resource.EndpointsType, s.m.key.options.LocalCluster)
			of, _ := fleet.value.(*resource.Endpoints)
			err := fleet.err
			if err != nil {
				err = s.m.core.withNodeID(err)
			}
			made.origin = newOrigin(s.m.core.node.GetLocality(), s.m.key.options.LocalCluster, of, err)
		}
		if cds.from != nil && l.cluster.LoadReporting {
			made.server = cds.from.Key()
		}
		note := l.noteLocked(cds)
		if note != nil {
			note = s.m.core.withNodeID(note)
		}
		value.Leaves = append(value.Leaves, *newLeaf(made, note))
	}
	return value, at
}

// equalConfigs compares errors by their texts.
func equalConfigs(a, b *picker.Config) bool {
	if len(a.Clusters) != len(b.Clusters) || !reflect.DeepEqual(a.Routes, b.Routes) ||
		!reflect.DeepEqual(a.Filters, b.Filters) || a.MaxStreamDuration != b.MaxStreamDuration {
		return false
	}
	for i := range a.Clusters {
		x, y := *a.Clusters[i], *b.Clusters[i]
		if x.Name != y.Name || fmt.Sprint(x.Err) != fmt.Sprint(y.Err) || len(x.Leaves) != len(y.Leaves) {
			return false
		}
		for j := range x.Leaves {
			p, q := x.Leaves[j], y.Leaves[j]
			if fmt.Sprint(p.ResolutionNote) != fmt.Sprint(q.ResolutionNote) || fmt.Sprint(p.Origin) != fmt.Sprint(q.Origin) {
				return false
			}
			p.ResolutionNote, p.Origin, q.ResolutionNote, q.Origin = nil, nil, nil, nil
			if !reflect.DeepEqual(p, q) {
				return false
			}
		}
	}
	return true
}

// describe returns the parts of a configuration that these tests compare.
func describe(c *picker.Config) (s string) {
	for _, c := range c.Clusters {
		s += fmt.Sprintf("%s (%v)", c.Name, c.Err)
		for _, l := range c.Leaves {
			s += fmt.Sprintf(" [%s %v %v %v]", l.Name, l.Priorities, l.ResolutionNote, l.Origin)
		}
		s += "; "
	}
	return s
}
