// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
	"github.com/xdslb/xdslb/xds/resource"
)

// plan is a route table and the clusters that it needs.
type plan struct {
	listener *resource.Listener
	host     *resource.VirtualHost

	routes            []picker.Route
	filters           []picker.Filter
	maxStreamDuration time.Duration
	ignored           []string
	clusters          []string    // as first named by the routes
	received          receiveTime // of the later one of listener and host
	origin            source      // of the routes

	// While the manager holds the plan, as want or active or both: how often, and its clusters,
	// which are shared with other plans.
	holds    int
	resolved []*cluster
}

// evaluateLocked updates everything that the target depends on, and then the outcome.
//
// On each of three levels (the plan, the leaves of a cluster, the endpoints of a leaf) the wanted
// version may lack a part that was requested only now. Then the version in use stays in use, and is
// kept up to date, until the part has arrived or is known to be missing (T-WATCH-2). A cluster that is
// temporarily unavailable counts as missing, so that its error is confined to it (A74), unless an
// outage of its servers has interrupted the update that names it: see readiness.replaces. A leaf, a
// Listener or a RouteConfiguration that is unavailable does not replace one that is in use. Hence a
// failure of a control plane does not remove a configuration.
//
// Only stale clusters are evaluated: see dependency.go.
func (m *dependencyManager) evaluateLocked() {
	m.selectLocked()
	want, r, err := m.evaluatePlansLocked()
	m.setPlanLocked(&m.want, want)
	if want != m.active {
		replaces := r == ready || r == unavailable && m.active == nil
		if want != nil {
			m.resolvePlanLocked(want)
			replaces = min(want.readinessLocked(), want.pendingLocked()).replaces(m.active.readinessLocked())
		}
		if replaces {
			m.setPlanLocked(&m.active, want)
			m.evaluatePlansLocked() // releases the resources of the previous plan
		}
	}
	m.resolveStaleLocked()
	m.sweepLocked()
	if m.active == nil && err == nil {
		err = m.unpatchedLocked()
	}
	switch {
	case m.active != nil:
		m.boundHashesLocked()
		m.publishLocked()
	case err != nil:
		m.publishErrorLocked(err)
	}
	m.evaluated = nil
}

// evaluatePlansLocked returns the result of desiredLocked, and keeps the RouteConfiguration of the
// active plan in use.
func (m *dependencyManager) evaluatePlansLocked() (want *plan, r readiness, err error) {
	m.trackLocked(&m.root, func() {
		want, r, err = m.desiredLocked()
		if m.active == nil {
			return
		}
		if name := m.active.listener.RouteConfigName; name != "" {
			m.useLocked(resource.RouteConfigType, name)
		}
	})
	return want, r, err
}

// desiredLocked returns the plan of the present Listener and RouteConfiguration, or the reason
// why there is no plan, and the readiness of the resource that is the reason.
func (m *dependencyManager) desiredLocked() (*plan, readiness, error) {
	e := m.useLocked(resource.ListenerType, m.key.listener)
	listener, _ := e.value.(*resource.Listener)
	if listener == nil {
		return nil, e.readinessLocked(nil), e.err
	}
	if listener.Socket {
		return nil, ready, fmt.Errorf("xdslb: listener %q is a socket listener: a client requires a listener with api_listener", m.key.listener)
	}
	routes := listener.RouteConfig
	if routes == nil {
		e = m.useLocked(resource.RouteConfigType, listener.RouteConfigName)
		if routes, _ = e.value.(*resource.RouteConfig); routes == nil {
			return nil, e.readinessLocked(nil), e.err
		}
	}
	host := routes.Match(m.key.authority)
	if host == nil {
		return nil, ready, fmt.Errorf("xdslb: route configuration %q of listener %q has no virtual host for %q", routes.Name, m.key.listener, m.key.authority)
	}
	if m.latest == nil || m.latest.listener != listener || m.latest.host != host {
		next := comparison{prev: cmp.Or(m.active, m.latest), listener: listener, host: host}
		switch {
		case m.compared != nil && m.compared.of(next):
			next = *m.compared
		case next.large():
			m.compared = &next
			return m.want, waiting, nil // until run has compared them
		default:
			next.run()
		}
		m.compared, m.latest = nil, newPlan(next)
		m.latest.origin = e.originLocked()
		m.latest.received = latest(m.useLocked(resource.ListenerType, m.key.listener).updated, e.updated)
	}
	return m.latest, ready, nil
}

// comparison finds the parts of a plan that are equal in the previous plan, as when only other virtual
// hosts changed. That takes a second of processor time for 600,000 routes, so it is not done with core.mu
// held if there are many.
type comparison struct {
	prev     *plan // may be nil
	listener *resource.Listener
	host     *resource.VirtualHost

	done            bool
	routes, filters bool // are equal
}

// large reports whether the comparison may take more than a few milliseconds.
func (c *comparison) large() bool {
	return c.prev != nil && min(len(c.prev.routes), len(c.host.Routes)) > 1000
}

// of reports whether a comparison that is done is of the same plans.
func (c *comparison) of(as comparison) bool {
	return c.done && c.prev == as.prev && c.listener == as.listener && c.host == as.host
}

// run compares. The plans are immutable.
func (c *comparison) run() {
	c.done = true
	if c.prev != nil {
		c.routes = reflect.DeepEqual(c.prev.routes, c.host.Routes)
		c.filters = reflect.DeepEqual(c.prev.filters, c.listener.Filters)
	}
}

// newPlan returns the plan for a virtual host. It shares the parts that are equal in the previous plan.
func newPlan(c comparison) *plan {
	listener, host, prev := c.listener, c.host, c.prev
	p := &plan{
		listener:          listener,
		host:              host,
		routes:            host.Routes,
		filters:           listener.Filters,
		maxStreamDuration: listener.MaxStreamDuration,
		ignored:           slices.Concat(listener.Ignored, host.Ignored),
	}
	if c.routes {
		p.routes, p.clusters = prev.routes, prev.clusters
	}
	if c.filters {
		p.filters = prev.filters
	}
	if p.clusters == nil {
		p.clusters = clusterNames(p.routes)
	}
	return p
}

// clusterNames returns the clusters that routes name, each once.
func clusterNames(routes []picker.Route) (names []string) {
	seen := map[string]bool{}
	for i := range routes {
		for j := range routes[i].Clusters {
			if name := routes[i].Clusters[j].Name; !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// setPlanLocked stores a plan, which may be nil, in one of the two places where the manager holds
// plans: want and active. O(clusters) if it is a new plan.
func (m *dependencyManager) setPlanLocked(place **plan, p *plan) {
	old := *place
	if old == p {
		return
	}
	*place = p
	if p != nil {
		if p.holds++; p.holds == 1 {
			m.holdLocked(p) // before the release of the old one, with which it may share clusters
		}
	}
	if old == nil {
		return
	}
	if old.holds--; old.holds > 0 {
		return
	}
	for _, c := range old.resolved {
		if c.plans--; c.plans == 0 {
			m.forgetClusterLocked(c)
		}
	}
	old.resolved = nil
}

// holdLocked resolves the clusters of a plan, and marks the new ones as stale.
func (m *dependencyManager) holdLocked(p *plan) {
	p.resolved = make([]*cluster, len(p.clusters))
	for i, name := range p.clusters {
		c := m.clusters[name]
		if c == nil {
			c = &cluster{name: name}
			m.clusters[name] = c
			m.markLocked(c)
		}
		c.plans++
		p.resolved[i] = c
	}
}

// resolvePlanLocked evaluates the stale clusters of a plan. O(clusters).
func (m *dependencyManager) resolvePlanLocked(p *plan) {
	for _, c := range p.resolved {
		if c.stale {
			m.evaluateClusterLocked(c)
		}
	}
}

// pendingLocked returns the lowest readiness of the wanted versions of clusters that have no version
// with leaves. Such a cluster is in use with an error, and may have been received since. O(clusters).
func (p *plan) pendingLocked() readiness {
	r := ready
	for _, c := range p.resolved {
		if len(c.leaves) == 0 {
			r = min(r, c.pending)
		}
	}
	return r
}

// readinessLocked returns the lowest readiness of the clusters of a plan, waiting for nil. O(clusters).
func (p *plan) readinessLocked() readiness {
	if p == nil {
		return waiting
	}
	r := ready
	for _, c := range p.resolved {
		r = min(r, c.readiness)
		if c.root != nil {
			r = min(r, c.root.readinessLocked(p.origin))
		}
	}
	return r
}

// resolveStaleLocked evaluates all stale clusters. Clusters that this makes stale wait for the next
// evaluation.
func (m *dependencyManager) resolveStaleLocked() {
	stale := m.stale
	m.stale = nil
	for _, c := range stale {
		if c.stale && c.plans > 0 {
			m.evaluateClusterLocked(c)
		}
	}
}

// boundHashesLocked keeps the hash rings and tables of all clusters within TargetOptions.MaxHashBytes.
func (m *dependencyManager) boundHashesLocked() {
	if !m.hashes.changed {
		return
	}
	m.hashes.changed = false
	halvings := halvingsFor(m.hashes.leaves, m.key.options.MaxHashBytes)
	if halvings == m.halvings {
		return
	}
	m.core.logLocked(slog.LevelWarn, "xdslb: hash rings and Maglev tables halved to stay within MaxHashBytes",
		logFields{typ: resource.ListenerType, name: m.key.listener}, slog.Int("times", int(halvings)), slog.Uint64("bytes", m.key.options.MaxHashBytes))
	m.halvings = halvings
	for _, c := range m.clusters {
		m.evaluateClusterLocked(c)
	}
}

// publishLocked makes the active plan the outcome, if anything has changed. It takes
// O(clusters) if the plan is new; otherwise O(evaluated clusters), and a copy of the pointers
// if any cluster has a new value.
func (m *dependencyManager) publishLocked() {
	p, old := m.active, m.config
	if old == nil || m.published != p {
		m.publishPlanLocked()
		return
	}
	clusters := old.Clusters
	for _, c := range m.evaluated {
		if int(c.position) >= len(p.resolved) || p.resolved[c.position] != c {
			continue // it belongs to another plan
		}
		m.received = latest(m.received, c.arrived)
		if clusters[c.position] == c.value {
			continue
		}
		if persistent.SameSlice(clusters, old.Clusters) {
			clusters = slices.Clone(clusters)
		}
		clusters[c.position] = c.value
	}
	if !persistent.SameSlice(clusters, old.Clusters) {
		m.deliverLocked(clusters)
	}
}

// publishPlanLocked is publishLocked for a new plan. O(clusters).
func (m *dependencyManager) publishPlanLocked() {
	p, old := m.active, m.config
	clusters := make([]*picker.Cluster, len(p.resolved))
	m.published, m.received = p, p.received
	for i, c := range p.resolved {
		c.position = int32(i)
		clusters[i] = c.value
		m.received = latest(m.received, c.arrived)
	}
	if old != nil && persistent.SameSlice(old.Routes, p.routes) && persistent.SameSlice(old.Filters, p.filters) &&
		old.MaxStreamDuration == p.maxStreamDuration && slices.Equal(old.Ignored, p.ignored) && slices.Equal(old.Clusters, clusters) {
		return
	}
	m.deliverLocked(clusters)
}

// deliverLocked makes the active plan, with the values of its clusters, the outcome.
func (m *dependencyManager) deliverLocked(clusters []*picker.Cluster) {
	m.config = &picker.Config{
		Routes:            m.active.routes,
		Clusters:          clusters,
		MaxStreamDuration: m.active.maxStreamDuration,
		Filters:           m.active.filters,
		Ignored:           m.active.ignored,
		Received:          timeOrZero(m.received),
	}
	m.err = nil
	m.outcome++
}

// publishErrorLocked makes err the outcome, if it is a new one.
func (m *dependencyManager) publishErrorLocked(err error) {
	err = m.core.withNodeID(err)
	if m.err != nil && m.err.Error() == err.Error() {
		return
	}
	m.config, m.err = nil, err
	m.outcome++
}
