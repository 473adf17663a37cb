// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"fmt"
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
}

// evaluate looks at everything that the target depends on, and updates the
// outcome.
//
// On each of three levels (the plan, a cluster's leaves, a leaf's endpoints)
// what is wanted may lack a part that was asked for only now. Then what is in
// use stays in use, and is kept up to date, until the part has arrived or is
// known to be missing (T-WATCH-2). Only where there is nothing to lose is a
// part that cannot be had at present as good as missing (A88); see adopt. Hence
// no failure of a control plane can take away what it has given.
func (v *view) evaluate() {
	v.look++
	want, r, err := v.want()
	if want != nil {
		r = v.resolve(want)
	}
	if r == ready || r == unreachable && v.live == nil {
		v.live = want
	}
	if v.live != nil {
		if name := v.live.listener.RouteConfigName; name != "" {
			v.use(resource.RouteConfigType, name)
		}
		if v.live != want {
			v.resolve(v.live)
		}
		v.publish()
	} else if err != nil {
		v.outcomeError(err)
	}
	v.sweep()
}

// want returns the plan that Listener and RouteConfiguration ask for, or why
// there is none, and whether that is final.
func (v *view) want() (*plan, readiness, error) {
	e := v.use(resource.ListenerType, v.key.listener)
	listener, _ := e.value.(*resource.Listener)
	if listener == nil {
		return nil, e.readiness(), e.err
	}
	if listener.Socket {
		return nil, ready, fmt.Errorf("xds: listener %q is a socket listener, and a client needs one with api_listener", v.key.listener)
	}
	routes := listener.RouteConfig
	if routes == nil {
		e = v.use(resource.RouteConfigType, listener.RouteConfigName)
		if routes, _ = e.value.(*resource.RouteConfig); routes == nil {
			return nil, e.readiness(), e.err
		}
	}
	host := routes.Match(v.key.authority)
	if host == nil {
		return nil, ready, fmt.Errorf("xds: route configuration %q of listener %q has no virtual host for %q", routes.Name, v.key.listener, v.key.authority)
	}
	if v.last == nil || v.last.listener != listener || v.last.host != host {
		v.last = newPlan(listener, host, cmp.Or(v.live, v.last))
	}
	return v.last, ready, nil
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

// resolve brings the plan's clusters up to date, and returns how ready they
// are as a whole.
func (v *view) resolve(p *plan) readiness {
	r := ready
	for _, name := range p.clusters {
		r = min(r, v.cluster(name).readiness)
	}
	return r
}

// publish makes the live plan the outcome, unless it is already.
func (v *view) publish() {
	p := v.live
	clusters := make([]*picker.Cluster, len(p.clusters))
	for i, name := range p.clusters {
		clusters[i] = v.clusters[name].value
	}
	if old := v.config; old != nil && sameSlice(old.Routes, p.routes) && sameSlice(old.Filters, p.filters) &&
		old.MaxStreamDuration == p.maxStreamDuration && slices.Equal(old.Clusters, clusters) {
		return
	}
	v.config = &picker.Config{
		Routes:            p.routes,
		Clusters:          clusters,
		MaxStreamDuration: p.maxStreamDuration,
		Filters:           p.filters,
	}
	v.err = nil
	v.outcome++
}

// outcomeError makes err the outcome, unless it is already.
func (v *view) outcomeError(err error) {
	err = v.c.annotate(err)
	if v.err != nil && v.err.Error() == err.Error() {
		return
	}
	v.config, v.err = nil, err
	v.outcome++
}

// sameSlice reports whether a and b are one and the same.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
