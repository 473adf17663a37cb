// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// plan is a configuration in a scenario's terms. It is not changed once pushed.
type plan struct {
	number   int
	silent   bool              // without load reports
	hedged   bool              // unary RPCs that are retried are hedged
	oneRetry bool              // may be under way, for each cluster
	perTry   time.Duration     // the time of an attempt, in plans that limit it
	routed   map[string]uint32 // weights of the clusters that RPCs go to
	clusters map[string]*clusterPlan
}

// clusterPlan is a cluster of a plan; clusters have no backends in common.
type clusterPlan struct {
	endpoints []placed
	policy    int
	breaker   uint32
	checked   bool   // by the health service of its backends
	drop      uint32 // per million
}

// The policies of clusters.
const (
	roundRobin = iota
	leastRequest
	ringHash
	randomly
	numPolicies
)

// placed is a backend and its place.
type placed struct {
	addr     string
	zone     int
	priority int
	weight   uint32
	draining bool
}

func (p *plan) String() string {
	text := fmt.Sprintf("#%d to %v:", p.number, p.routed)
	for _, name := range slices.Sorted(maps.Keys(p.clusters)) {
		text += fmt.Sprintf(" %s by %d, checked %v", name, p.clusters[name].policy, p.clusters[name].checked)
		for _, e := range p.clusters[name].endpoints {
			text += fmt.Sprintf(" %s/p%d,z%d,w%d", e.addr, e.priority, e.zone, e.weight)
			if e.draining {
				text += ",drains"
			}
		}
	}
	return text
}

func (p *plan) clone() *plan {
	q := &plan{number: p.number + 1, silent: p.silent, hedged: p.hedged, perTry: p.perTry, routed: maps.Clone(p.routed), clusters: map[string]*clusterPlan{}}
	for name, c := range p.clusters {
		d := *c
		d.endpoints = slices.Clone(c.endpoints)
		q.clusters[name] = &d
	}
	return q
}

// clusterOf returns the cluster that a backend is in.
func (p *plan) clusterOf(addr string) string {
	for name, c := range p.clusters {
		if slices.ContainsFunc(c.endpoints, func(e placed) bool { return e.addr == addr }) {
			return name
		}
	}
	return ""
}

// takes reports whether a backend gets new RPCs.
func (p *plan) takes(addr string) bool {
	for _, c := range p.clusters {
		if slices.ContainsFunc(c.endpoints, func(e placed) bool { return e.addr == addr && !e.draining }) {
			return true
		}
	}
	return false
}

// defect makes one of the served resources invalid.
type defect int

const (
	noDefect defect = iota
	badEndpoints
	badCluster
	badRoutes
	badListener
	numDefects
)

// retries reports whether RPCs are retried.
func (p *plan) retries() bool { return p.number%3 > 0 }

// retry has the RPCs of two of three plans retried: by gRPC, unless there is a budget, or by
// interceptors, and in half of the plans elsewhere. In hedged worlds, and with a per_try_timeout,
// it is interceptors.
func (p *plan) retry(r *routev3.Route) {
	switch p.number % 3 {
	case 1:
		retried(r, 2)
	case 2:
		absent(retried(r, 3), "nobody")
	}
	if p.retries() && p.number%2 == 1 {
		previousHosts(r)
	}
	if d := p.tryTimeout(); d > 0 {
		r.GetRoute().RetryPolicy.PerTryTimeout = durationpb.New(d)
		r.GetRoute().RetryPolicy.RetryOn += ",deadline-exceeded"
	}
	if p.retries() && p.hedged {
		r.GetRoute().RetryPolicy.PerTryTimeout = durationpb.New(100 * time.Millisecond)
		r.GetRoute().HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true}
	}
}

// tryTimeout is the per_try_timeout of unary RPCs; 0 is none.
func (p *plan) tryTimeout() time.Duration {
	if p.hedged || !p.retries() || p.number%4 != 1 {
		return 0
	}
	return p.perTry
}

// changesHeaders reports whether routes change request headers.
func (p *plan) changesHeaders() bool { return p.number%2 == 0 }

// authority is the authority that routes set; empty is that of the channel.
func (p *plan) authority() string {
	if p.number%3 == 0 {
		return ""
	}
	return fmt.Sprintf("plan-%d.test", p.number)
}

// rewrite sets the authority of RPCs (A111), and has them carry the plan, their cluster, and a header
// that hash policies used before.
func (p *plan) rewrite(host *routev3.VirtualHost, r *routev3.Route) {
	if a := p.authority(); a != "" {
		r.GetRoute().HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: a}
	}
	if !p.changesHeaders() {
		return
	}
	host.RequestHeadersToAdd = []*corev3.HeaderValueOption{setHeader("x-plan", fmt.Sprint(p.number))}
	r.RequestHeadersToAdd = []*corev3.HeaderValueOption{setHeader("user", "same")}
	for _, c := range r.GetRoute().GetWeightedClusters().GetClusters() {
		c.RequestHeadersToAdd = []*corev3.HeaderValueOption{setHeader("x-cluster", c.GetName())}
	}
}

// retryLimit is how many retries of a cluster may be under way; 0 is any number.
func (p *plan) retryLimit() int {
	switch {
	case p.oneRetry || p.number%4 == 3:
		return 1
	case p.number%4 == 2:
		return 3
	}
	return 0
}

// resources returns the resources of a control plane for p.
func (p *plan) resources(service string, d defect) xdstest.Resources {
	var r xdstest.Resources
	r.Listeners = append(r.Listeners, xdstest.Listener(service, service))
	var to []testplane.Weighted
	for _, name := range slices.Sorted(maps.Keys(p.routed)) {
		to = append(to, testplane.Weighted{Cluster: service + name, Weight: p.routed[name]})
	}
	route := testplane.HashHeader(testplane.WeightedRoute("", to...), "user")
	p.retry(route)
	r.Routes = append(r.Routes, xdstest.RouteConfig(service, route))
	p.rewrite(r.Routes[0].VirtualHosts[0], route)
	for _, name := range slices.Sorted(maps.Keys(p.clusters)) {
		c := p.clusters[name]
		opts := []testplane.ClusterOption{testplane.MaxRequests(c.breaker)}
		if !p.silent {
			opts = append(opts, testplane.LoadReports())
		}
		switch c.policy {
		case leastRequest:
			opts = append(opts, testplane.LeastRequest(2))
		case ringHash:
			opts = append(opts, testplane.RingHash(64, 256))
		case randomly:
			opts = append(opts, func(c *clusterv3.Cluster) { c.LbPolicy = clusterv3.Cluster_RANDOM })
		}
		if c.checked {
			opts = append(opts, func(c *clusterv3.Cluster) { checked(c, "s") })
		}
		r.Clusters = append(r.Clusters, xdstest.Cluster(service+name, service+name, opts...))
		switch limits := r.Clusters[len(r.Clusters)-1].CircuitBreakers.Thresholds[0]; p.retryLimit() {
		case 1:
			limits.RetryBudget = &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
				BudgetPercent: new(typev3.Percent), MinRetryConcurrency: wrapperspb.UInt32(1),
			}
		case 3:
			limits.RetryBudget = new(clusterv3.CircuitBreakers_Thresholds_RetryBudget) // 20 %, of few RPCs
		}
		zones := map[[2]int]*xdstest.Locality{}
		var order [][2]int
		for _, e := range c.endpoints {
			key := [2]int{e.priority, e.zone}
			if zones[key] == nil {
				zones[key] = &xdstest.Locality{Place: xdstest.Place{Zone: fmt.Sprint("z", e.zone)}, Priority: uint32(e.priority), Weight: uint32(e.zone + 1)}
				order = append(order, key)
			}
			ep := xdstest.Endpoint{Addr: netip.MustParseAddrPort(e.addr), Weight: e.weight}
			if e.draining {
				ep.Health = corev3.HealthStatus_DRAINING
			}
			zones[key].Endpoints = append(zones[key].Endpoints, ep)
		}
		var list []xdstest.Locality
		for _, key := range order {
			list = append(list, *zones[key])
		}
		cla := xdstest.Endpoints(service+name, list...)
		if c.drop > 0 {
			testplane.Drop(cla, "chaos", c.drop)
		}
		r.Endpoints = append(r.Endpoints, cla)
	}
	switch d {
	case badEndpoints:
		for _, cla := range r.Endpoints {
			cla.Endpoints[0].LbEndpoints[0].LoadBalancingWeight = wrapperspb.UInt32(0)
		}
	case badCluster:
		for _, c := range r.Clusters {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		}
	case badRoutes:
		r.Routes[0].VirtualHosts[0].Domains = []string{"a*b*c"}
	case badListener:
		r.Listeners[0].ApiListener.ApiListener.Value = []byte("\xff")
	}
	return r
}

// mutate returns a plan that differs from p in a random way: weights, localities,
// priorities, members, draining, policies, clusters, routes. Every cluster keeps
// an endpoint, and priorities are without a gap.
func (p *plan) mutate(rng *rand.Rand, pools map[string][]string) *plan {
	q := p.clone()
	names := slices.Sorted(maps.Keys(pools))
	name := names[rng.IntN(len(names))]
	c := q.clusters[name]
	switch rng.IntN(9) {
	case 0: // weights
		for i := range c.endpoints {
			c.endpoints[i].weight = 1 + rng.Uint32N(5)
		}
	case 1: // localities
		for i := range c.endpoints {
			c.endpoints[i].zone = rng.IntN(3)
		}
	case 2: // a flip of priorities
		for i := range c.endpoints {
			c.endpoints[i].priority = 1 - c.endpoints[i].priority
		}
	case 3: // other priorities
		for i := range c.endpoints {
			c.endpoints[i].priority = rng.IntN(2)
		}
	case 4: // members, and their order
		c.endpoints = randomEndpoints(rng, pools[name])
	case 5: // draining, of not all
		for i := range c.endpoints {
			c.endpoints[i].draining = i > 0 && rng.IntN(3) == 0
		}
	case 6: // routes
		q.routed = map[string]uint32{}
		for _, n := range rng.Perm(len(names))[:1+rng.IntN(len(names))] {
			q.routed[names[n]] = 1 + rng.Uint32N(3)
		}
	case 7: // the policy
		c.policy = rng.IntN(numPolicies)
	case 8: // the health check
		c.checked = !c.checked
	}
	c.close()
	return q
}

// close closes gaps in the priorities.
func (c *clusterPlan) close() {
	if !slices.ContainsFunc(c.endpoints, func(e placed) bool { return e.priority == 0 }) {
		for i := range c.endpoints {
			c.endpoints[i].priority = 0
		}
	}
}

func randomEndpoints(rng *rand.Rand, pool []string) (list []placed) {
	for _, i := range rng.Perm(len(pool))[:1+rng.IntN(len(pool))] {
		list = append(list, placed{addr: pool[i], zone: rng.IntN(3), priority: rng.IntN(2), weight: 1 + rng.Uint32N(5)})
	}
	return list
}

// firstPlan routes to all clusters, which have all their backends.
func firstPlan(rng *rand.Rand, pools map[string][]string) *plan {
	p := &plan{routed: map[string]uint32{}, clusters: map[string]*clusterPlan{}}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		p.routed[name] = 1
		c := &clusterPlan{breaker: 1 << 20}
		for i, addr := range pools[name] {
			c.endpoints = append(c.endpoints, placed{addr: addr, priority: i % 2, weight: 1 + rng.Uint32N(5)})
		}
		p.clusters[name] = c
	}
	return p
}
