// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/picker"
)

// A plan has the settings of interceptors for the RPCs of one route and cluster.
type plan struct {
	timeout  time.Duration            // 0 means no timeout
	retry    *picker.RetryPolicy      // nil means no retries
	hedge    bool                     // the retry policy also hedges unary RPCs
	clusters []picker.WeightedCluster // of the route
	filters  filterSet
	headers  []*picker.HeaderMutations // in the order of evaluation
	// otherHosts reports whether picks for further attempts avoid endpoints, also for the
	// attempts of gRPC.
	otherHosts  bool
	probesFirst bool // a unary RPC may probe endpoints for their load first
}

// Plans contains the plans of a target's routes. Only routes that need an interceptor have an
// entry, unless routes are chosen at random: the pick of an RPC whose route has no entry would
// choose again, with other probabilities.
type Plans struct {
	routes   []*routePlans
	deep     map[int32]*routePlans // of routes with other plans for paths of more than two parts
	onlyDeep bool                  // no other RPCs need an interceptor
	drawn    bool                  // a route is for a fraction of RPCs
	byHeader bool                  // a route matches by headers
	// Settings that are not applied on a channel without interceptors.
	filters           []string // names
	timeouts, retries int      // numbers of routes
	others            int      // number of routes whose retries avoid endpoints
	headers           int      // number of routes that change request headers
	probing           bool     // endpoints are probed for each RPC
}

// plan returns the plan for an RPC, or nil if the RPC needs no plan.
func (p *Plans) plan(m *match, method string) *plan {
	switch {
	case m.outcome == picker.Picked:
		r := p.routes[m.route]
		if p.deep != nil && methodconfig.IsDeep(method) {
			if deep := p.deep[m.route]; deep != nil {
				r = deep
			}
		}
		if r != nil {
			return r.of(m.name)
		}
	case p.drawn:
		return new(plan) // the RPC fails without further actions
	}
	return nil
}

// routePlans are the plans of a route. Most routes have one plan. Weighted clusters that override
// filters (A39) or change headers have one more for each of their entries.
type routePlans struct {
	all       *plan
	byCluster map[string][]weightedPlan // nil if no entry overrides anything
}

// weightedPlan is the plan of an entry of weighted_clusters, and the entry's weight.
type weightedPlan struct {
	plan   *plan
	weight uint32 // above 0
}

// of returns the plan for an RPC to a cluster. If the route names the cluster twice, with
// different overrides, the entry is chosen at random by weight.
func (r *routePlans) of(cluster string) *plan {
	entries := r.byCluster[cluster]
	switch len(entries) {
	case 0:
		return r.all
	case 1:
		return entries[0].plan
	}
	sum := uint64(0)
	for _, e := range entries {
		sum += uint64(e.weight)
	}
	n, i := rand.Uint64N(sum), 0
	for n >= uint64(entries[i].weight) {
		n -= uint64(entries[i].weight)
		i++
	}
	return entries[i].plan
}

// plans returns all plans of the route.
func (r *routePlans) plans() []*plan {
	list := []*plan{r.all}
	for _, entries := range r.byCluster {
		for _, e := range entries {
			list = append(list, e.plan)
		}
	}
	return list
}

// plansFor makes the plans of a route.
func plansFor(cfg *picker.Config, filters *filterPlanner, r *picker.Route, inServiceConfig bool) *routePlans {
	all := filters.forRoute(r)
	rp := &routePlans{all: planFor(cfg, all, r, &picker.WeightedCluster{}, inServiceConfig)}
	for i := range r.Clusters {
		if len(r.Clusters[i].Overrides) == 0 && r.Clusters[i].RequestHeaders == nil {
			continue
		}
		if rp.byCluster == nil {
			rp.byCluster = map[string][]weightedPlan{}
		}
		rp.byCluster[r.Clusters[i].Name] = nil
	}
	for i := range r.Clusters {
		c := &r.Clusters[i]
		if entries, overridden := rp.byCluster[c.Name]; overridden && c.Weight > 0 {
			rp.byCluster[c.Name] = append(entries, weightedPlan{planFor(cfg, filters.forCluster(all, r, c), r, c, inServiceConfig), c.Weight})
		}
	}
	return rp
}

// Compile returns the settings of a configuration's routes: as method configs, as far as gRPC's
// service config can express them, and as plans for interceptors. intercepted reports whether the
// channel has interceptors. Without them, gRPC's method configs apply to deep paths. O(n log n)
// comparisons of the paths of n routes.
func Compile(cfg *picker.Config, intercepted bool) ([]methodconfig.Config, *Plans) {
	methods, inServiceConfig, notDeep := methodconfig.Compile(cfg, intercepted)
	return methods, makePlans(cfg, inServiceConfig, notDeep)
}

// makePlans returns the plans for cfg, or nil if no RPC needs an interceptor. gRPC retries the RPCs
// of routes that the service config expresses, and applies their timeouts unless they have filters,
// whose time counts. An RPC that gRPC may retry still keeps its cluster.
func makePlans(cfg *picker.Config, inServiceConfig, notDeep []bool) *Plans {
	p := &Plans{
		routes:   make([]*routePlans, len(cfg.Routes)),
		drawn:    slices.ContainsFunc(cfg.Routes, func(r picker.Route) bool { return r.Fraction != nil && *r.Fraction%1e6 != 0 }),
		byHeader: slices.ContainsFunc(cfg.Routes, func(r picker.Route) bool { return len(r.Headers) > 0 }),
	}
	filters := newFilterPlanner(cfg.Filters)
	needed, probing, timing := false, methodconfig.ClustersWith(cfg, probesFirst), methodconfig.ClustersWith(cfg, timesRPCs)
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		rp := plansFor(cfg, filters, r, inServiceConfig[i])
		rp.mark(r, probing, timing)
		need := r.Retry != nil || slices.ContainsFunc(rp.plans(), (*plan).needed)
		if need || p.drawn {
			p.routes[i] = rp
		}
		if len(r.Clusters) > 0 {
			p.count(r, rp, inServiceConfig[i])
			filters.note(rp)
		}
		needed = needed || need
		if !notDeep[i] {
			continue
		}
		deep := plansFor(cfg, filters, r, false)
		deep.mark(r, probing, timing)
		if slices.ContainsFunc(deep.plans(), (*plan).needed) {
			if p.deep == nil {
				p.deep = map[int32]*routePlans{}
			}
			p.deep[int32(i)] = deep
		}
	}
	if !needed && p.deep == nil {
		return nil
	}
	p.filters = filters.noted()
	p.onlyDeep = !needed && !p.drawn
	return p
}

// skips reports whether no RPC of a method needs an interceptor. It is true for a nil Plans.
func (p *Plans) skips(method string) bool {
	return p == nil || p.onlyDeep && !methodconfig.IsDeep(method)
}

// count adds the settings of a route that are not applied on a channel without interceptors.
func (p *Plans) count(route *picker.Route, r *routePlans, inServiceConfig bool) {
	if !inServiceConfig && r.all.timeout > 0 {
		p.timeouts++
	}
	if r.all.retry != nil {
		p.retries++
	}
	if avoidsHosts(route) {
		p.others++
	}
	if slices.ContainsFunc(r.plans(), func(p *plan) bool { return len(p.headers) > 0 }) {
		p.headers++
	}
	for _, plan := range r.plans() {
		p.probing = p.probing || plan.probesFirst
	}
}

func planFor(cfg *picker.Config, filters filterSet, r *picker.Route, c *picker.WeightedCluster, inServiceConfig bool) *plan {
	p := &plan{clusters: r.Clusters, filters: filters, headers: r.RequestHeaders}
	if c.RequestHeaders != nil {
		p.headers = slices.Concat([]*picker.HeaderMutations{c.RequestHeaders}, r.RequestHeaders)
	}
	p.otherHosts = avoidsHosts(r)
	p.hedge = hedges(r)
	if !inServiceConfig {
		p.retry = r.Retry
	}
	if !inServiceConfig || p.filters.active > 0 {
		p.timeout = methodconfig.Timeout(cfg, r)
	}
	return p
}

// avoidsHosts reports whether further attempts of a route's RPCs are configured to avoid endpoints.
func avoidsHosts(r *picker.Route) bool { return r.Retry != nil && r.Retry.OtherHosts || hedges(r) }

// timesRPCs reports whether a cluster's policy compares latencies. Retries then avoid the endpoints of
// earlier attempts: the endpoint that has just failed may be the cheapest for a while.
func timesRPCs(c *picker.Cluster) bool {
	return slices.ContainsFunc(c.Leaves, func(l picker.Leaf) bool { return l.Policy.TimesRPCs() })
}

// mark completes the plans of a route by properties of its clusters.
func (r *routePlans) mark(route *picker.Route, probing, timing methodconfig.ClusterSet) {
	probes, avoids := probing.Serves(route), route.Retry != nil && timing.Serves(route)
	for _, p := range r.plans() {
		p.probesFirst = probes
		p.otherHosts = p.otherHosts || avoids
	}
}

// needed reports whether an interceptor has to apply the plan. Otherwise the RPC only needs a
// Call.
func (p *plan) needed() bool {
	return p.timeout > 0 || p.retry != nil || p.filters.active > 0 || len(p.headers) > 0 || p.probesFirst
}

// cancels reports whether interceptors may cancel attempts: hedges that lost, and attempts that
// exceed the per_try_timeout.
func (p *plan) cancels() bool { return p.retry != nil && p.retry.PerTryTimeout > 0 }

// HasSessions reports whether a route's RPCs may belong to sessions (A55).
func (p *Plans) HasSessions() bool {
	return p.any(func(p *plan) bool { return p.filters.sessions > 0 })
}

// AvoidHosts reports whether a route's RPCs avoid endpoints that were tried.
func (p *Plans) AvoidHosts() bool { return p.any(func(p *plan) bool { return p.otherHosts }) }

// any reports whether the condition holds for some plan.
func (p *Plans) any(is func(*plan) bool) bool {
	return p != nil && slices.ContainsFunc(p.routes, func(r *routePlans) bool { return r != nil && slices.ContainsFunc(r.plans(), is) })
}

// probesFirst reports whether unary RPCs to the cluster probe endpoints for their load
// (picker.Prequal.Synchronous). See Call.probe.
func probesFirst(c *picker.Cluster) bool {
	return slices.ContainsFunc(c.Leaves, func(l picker.Leaf) bool {
		return l.Policy.Kind.Traits().Probes && l.Policy.Prequal.Synchronous > 0
	})
}

// SameClusters reports whether Compile depends on the same clusters of two configurations.
// O(clusters).
func SameClusters(a, b *picker.Config) bool {
	return methodconfig.SameClustersWith(a, b, methodconfig.LimitsRetries) && methodconfig.SameClustersWith(a, b, probesFirst) && methodconfig.SameClustersWith(a, b, timesRPCs)
}
