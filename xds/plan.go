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
	"github.com/xdslb/xdslb/xds/resource"
)

// plan is a route table and the clusters that it needs.
type plan struct {
	listener *resource.Listener
	host     *resource.VirtualHost

	routes            []picker.Route
	filters           []picker.Filter
	maxStreamDuration time.Duration
	clusters          []string // as first named by the routes
	received          arrival  // of the later one of listener and host
}

// evaluateLocked puts together everything that the target depends on, and updates
// the outcome.
//
// On each of three levels (the plan, a cluster's leaves, a leaf's endpoints)
// what is wanted may lack a part that was asked for only now. Then what is in
// use stays in use, and is kept up to date, until the part has arrived or is
// known to be missing (T-WATCH-2). Only where there is nothing to lose is a
// part that cannot be had at present as good as missing (A88); see shouldReplace. Hence
// no failure of a control plane can take away what it has given.
func (m *dependencyManager) evaluateLocked() {
	m.generation++
	want, r, err := m.desiredLocked()
	if want != nil {
		r = m.resolvePlanLocked(want)
	}
	if r == ready || r == unreachable && m.active == nil {
		m.active = want
	}
	if m.active != nil {
		if name := m.active.listener.RouteConfigName; name != "" {
			m.useLocked(resource.RouteConfigType, name)
		}
		if m.active != want {
			m.resolvePlanLocked(m.active)
		}
		if halvings := m.halvingsLocked(); halvings != m.halvings {
			m.c.logLocked(slog.LevelWarn, "xdslb: hash rings and Maglev tables of a target are halved, to stay within Options.MaxHashBytes",
				fact{typ: resource.ListenerType, name: m.key.listener}, slog.Int("times", int(halvings)), slog.Uint64("bytes", m.c.opts.MaxHashBytes))
			m.halvings = halvings
			m.evaluateLocked() // which comes to the same halvings
			return
		}
		m.publishLocked()
	} else if err != nil {
		m.publishErrorLocked(err)
	}
	m.sweepLocked()
}

// desiredLocked returns the plan that Listener and RouteConfiguration ask for, or why
// there is none, and whether that is final.
func (m *dependencyManager) desiredLocked() (*plan, readiness, error) {
	e := m.useLocked(resource.ListenerType, m.key.listener)
	listener, _ := e.value.(*resource.Listener)
	if listener == nil {
		return nil, e.readinessLocked(), e.err
	}
	if listener.Socket {
		return nil, ready, fmt.Errorf("xds: listener %q is a socket listener, and a client needs one with api_listener", m.key.listener)
	}
	routes := listener.RouteConfig
	if routes == nil {
		e = m.useLocked(resource.RouteConfigType, listener.RouteConfigName)
		if routes, _ = e.value.(*resource.RouteConfig); routes == nil {
			return nil, e.readinessLocked(), e.err
		}
	}
	host := routes.Match(m.key.authority)
	if host == nil {
		return nil, ready, fmt.Errorf("xds: route configuration %q of listener %q has no virtual host for %q", routes.Name, m.key.listener, m.key.authority)
	}
	if m.latest == nil || m.latest.listener != listener || m.latest.host != host {
		m.latest = newPlan(listener, host, cmp.Or(m.active, m.latest))
		m.latest.received = later(m.useLocked(resource.ListenerType, m.key.listener).updated, e.updated)
	}
	return m.latest, ready, nil
}

// newPlan returns the plan for a virtual host. What says the same as in the
// previous plan, as when only other virtual hosts changed, stays the same.
func newPlan(listener *resource.Listener, host *resource.VirtualHost, prev *plan) *plan {
	p := &plan{
		listener:          listener,
		host:              host,
		routes:            host.Routes,
		filters:           listener.Filters,
		maxStreamDuration: listener.MaxStreamDuration,
	}
	if prev != nil && reflect.DeepEqual(prev.routes, p.routes) {
		p.routes, p.clusters = prev.routes, prev.clusters
	}
	if prev != nil && reflect.DeepEqual(prev.filters, p.filters) {
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

// resolvePlanLocked brings the plan's clusters up to date, and returns how ready they
// are as a whole.
func (m *dependencyManager) resolvePlanLocked(p *plan) readiness {
	r := ready
	for _, name := range p.clusters {
		r = min(r, m.clusterLocked(name).readiness)
	}
	return r
}

// publishLocked makes the active plan the outcome, unless it is already.
func (m *dependencyManager) publishLocked() {
	p := m.active
	clusters := make([]*picker.Cluster, len(p.clusters))
	at := p.received
	for i, name := range p.clusters {
		c := m.clusters[name]
		clusters[i] = c.value
		at = later(at, c.received)
		for _, leaf := range c.leaves {
			at = later(at, m.leaves[leaf].received)
		}
	}
	if old := m.config; old != nil && sameSlice(old.Routes, p.routes) && sameSlice(old.Filters, p.filters) &&
		old.MaxStreamDuration == p.maxStreamDuration && slices.Equal(old.Clusters, clusters) {
		return
	}
	m.config = &picker.Config{
		Routes:            p.routes,
		Clusters:          clusters,
		MaxStreamDuration: p.maxStreamDuration,
		Filters:           p.filters,
		Received:          when(at),
	}
	m.err = nil
	m.outcome++
}

// publishErrorLocked makes err the outcome, unless it is already.
func (m *dependencyManager) publishErrorLocked(err error) {
	err = m.c.withNodeID(err)
	if m.err != nil && m.err.Error() == err.Error() {
		return
	}
	m.config, m.err = nil, err
	m.outcome++
}

// sameSlice reports whether a and b are one and the same.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
