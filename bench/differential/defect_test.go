// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// Defects by type of resource. Each changes a resource so that both clients ought to
// reject it, and both ought to go on with the version before.
var (
	listenerDefects = map[string]func(hcm *hcmv3.HttpConnectionManager){
		"unknown filter": func(hcm *hcmv3.HttpConnectionManager) {
			unknown := &hcmv3.HttpFilter{Name: "unknown", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: mustAny(wrapperspb.String("what"))}}
			hcm.HttpFilters = append([]*hcmv3.HttpFilter{unknown}, hcm.HttpFilters...)
		},
		"no router": func(hcm *hcmv3.HttpConnectionManager) {
			hcm.HttpFilters = hcm.HttpFilters[:max(0, len(hcm.HttpFilters)-1)]
		},
		"no filters":        func(hcm *hcmv3.HttpConnectionManager) { hcm.HttpFilters = nil },
		"no routes":         func(hcm *hcmv3.HttpConnectionManager) { hcm.RouteSpecifier = nil },
		"filters of a name": func(hcm *hcmv3.HttpConnectionManager) { hcm.HttpFilters = append(hcm.HttpFilters, hcm.HttpFilters...) },
		"rds not by ads": func(hcm *hcmv3.HttpConnectionManager) {
			hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: service}}
		},
	}
	routeDefects = map[string]func(vh *routev3.VirtualHost, r *routev3.Route){
		"bad regex": func(_ *routev3.VirtualHost, r *routev3.Route) {
			r.Match.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "(["}}
		},
		"no path":  func(_ *routev3.VirtualHost, r *routev3.Route) { r.Match.PathSpecifier = nil },
		"no match": func(_ *routev3.VirtualHost, r *routev3.Route) { r.Match = nil },
		"zero retries": func(vh *routev3.VirtualHost, _ *routev3.Route) {
			vh.RetryPolicy = &routev3.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(0)}
		},
		"zero backoff": func(vh *routev3.VirtualHost, _ *routev3.Route) {
			vh.RetryPolicy = &routev3.RetryPolicy{RetryOn: "unavailable", RetryBackOff: &routev3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(0)}}
		},
		"no weights": func(_ *routev3.VirtualHost, r *routev3.Route) {
			wc := &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "c0", Weight: wrapperspb.UInt32(0)}}}
			r.Action = &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: wc}}}
		},
		"weights beyond 32 bits": func(_ *routev3.VirtualHost, r *routev3.Route) {
			wc := &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{
				{Name: "c0", Weight: wrapperspb.UInt32(math.MaxUint32)}, {Name: "c1", Weight: wrapperspb.UInt32(1)},
			}}
			r.Action = &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: wc}}}
		},
		"header without a condition": func(_ *routev3.VirtualHost, r *routev3.Route) {
			r.Match.Headers = append(r.Match.Headers, &routev3.HeaderMatcher{Name: "x-tenant"})
		},
	}
	clusterDefects = map[string]func(c *clusterv3.Cluster){
		"ring beyond 8M":     func(c *clusterv3.Cluster) { c.LoadBalancingPolicy = nil; testplane.RingHash(1<<24, 1<<25)(c) },
		"ring min above max": func(c *clusterv3.Cluster) { c.LoadBalancingPolicy = nil; testplane.RingHash(100, 10)(c) },
		"lb_policy CLUSTER_PROVIDED": func(c *clusterv3.Cluster) {
			c.LoadBalancingPolicy = nil
			c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		},
		"least of 1":      func(c *clusterv3.Cluster) { c.LoadBalancingPolicy = nil; testplane.LeastRequest(1)(c) },
		"no known policy": testplane.Policies(testplane.TypedStruct("nobody.Knows", nil)),
		"no policy":       testplane.Policies(),
		"lrs not self": func(c *clusterv3.Cluster) {
			c.LrsServer = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
		},
		"eds by nobody": func(c *clusterv3.Cluster) {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
			c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{}
		},
		"type STATIC": func(c *clusterv3.Cluster) {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		},
		"aggregate of none": func(c *clusterv3.Cluster) {
			c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
				Name: "envoy.clusters.aggregate", TypedConfig: mustAny(&aggregatev3.ClusterConfig{}),
			}}
		},
		"outliers of 101 %": func(c *clusterv3.Cluster) {
			c.OutlierDetection = &clusterv3.OutlierDetection{MaxEjectionPercent: wrapperspb.UInt32(101)}
		},
		"dns without an endpoint": func(c *clusterv3.Cluster) {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS}
			c.LoadAssignment = &endpointv3.ClusterLoadAssignment{}
		},
	}
	endpointDefects = map[string]func(cla *endpointv3.ClusterLoadAssignment){
		"priority gap": func(cla *endpointv3.ClusterLoadAssignment) { cla.Endpoints[0].Priority += 7 },
		"locality twice": func(cla *endpointv3.ClusterLoadAssignment) {
			l := cla.Endpoints[0]
			cla.Endpoints = append(cla.Endpoints, &endpointv3.LocalityLbEndpoints{
				Locality: l.Locality, Priority: l.Priority, LoadBalancingWeight: wrapperspb.UInt32(1),
			})
			l.LoadBalancingWeight = wrapperspb.UInt32(1)
		},
		"address twice": func(cla *endpointv3.ClusterLoadAssignment) {
			l := cla.Endpoints[0]
			l.LoadBalancingWeight = wrapperspb.UInt32(1)
			first := &endpointv3.LbEndpoint{HostIdentifier: l.LbEndpoints[0].HostIdentifier}
			l.LbEndpoints = append([]*endpointv3.LbEndpoint{first, first}, l.LbEndpoints...)
		},
		"locality weights beyond 32 bits": func(cla *endpointv3.ClusterLoadAssignment) {
			l := cla.Endpoints[0]
			l.LoadBalancingWeight = wrapperspb.UInt32(math.MaxUint32)
			cla.Endpoints = append(cla.Endpoints, &endpointv3.LocalityLbEndpoints{
				Locality: &corev3.Locality{Region: "other"}, Priority: l.Priority, LoadBalancingWeight: wrapperspb.UInt32(1),
			})
		},
		"endpoint of weight 0": func(cla *endpointv3.ClusterLoadAssignment) {
			cla.Endpoints[0].LoadBalancingWeight = wrapperspb.UInt32(1)
			cla.Endpoints[0].LbEndpoints[0].LoadBalancingWeight = wrapperspb.UInt32(0)
		},
		"drops of an unknown denominator": func(cla *endpointv3.ClusterLoadAssignment) {
			cla.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
				Category: "x", DropPercentage: &typev3.FractionalPercent{Numerator: 1, Denominator: 77},
			}}}
		},
		"no locality": func(cla *endpointv3.ClusterLoadAssignment) {
			cla.Endpoints[0].LoadBalancingWeight = wrapperspb.UInt32(1)
			cla.Endpoints[0].Locality = nil
		},
	}
)

// apply puts the defect in the resources; nothing happens if its place is not there.
func (d defect) apply(r *xdstest.Resources) {
	switch d.typ {
	case "LDS":
		for _, l := range r.Listeners {
			hcm := new(hcmv3.HttpConnectionManager)
			if err := l.GetApiListener().GetApiListener().UnmarshalTo(hcm); err != nil {
				panic(err)
			}
			hcm.StatPrefix = d.String()
			listenerDefects[d.kind](hcm)
			l.ApiListener = &listenerv3.ApiListener{ApiListener: mustAny(hcm)}
		}
	case "RDS":
		for _, rc := range r.Routes {
			vh := rc.VirtualHosts[len(rc.VirtualHosts)-1]
			vh.Name = d.String()
			routeDefects[d.kind](vh, vh.Routes[0])
		}
	case "CDS":
		for _, c := range r.Clusters {
			if c.Name == d.name {
				c.AltStatName = d.String()
				clusterDefects[d.kind](c)
			}
		}
	case "EDS":
		for _, cla := range r.Endpoints {
			if cla.ClusterName == d.name && len(cla.Endpoints) > 0 && len(cla.Endpoints[0].LbEndpoints) > 0 {
				cla.Endpoints[0].LbEndpoints[0].HealthStatus = corev3.HealthStatus_HEALTHY // unhealthy endpoints are not validated (A27-CLA-8)
				cla.NamedEndpoints = map[string]*endpointv3.Endpoint{d.String(): {}}
				endpointDefects[d.kind](cla)
			}
		}
	}
}

// ofPolicy reports whether the defect is that of a cluster's LB policy.
func (d defect) ofPolicy() bool {
	return d.typ == "CDS" && slices.Contains([]string{"ring beyond 8M", "ring min above max", "lb_policy CLUSTER_PROVIDED", "least of 1", "no known policy", "no policy"}, d.kind)
}

func (d defect) String() string { return fmt.Sprintf("%s %s %s #%d", d.typ, d.name, d.kind, d.version) }

// mutate returns a later state of the world, and the changes.
func (g *gen) mutate(before *world) (w *world, news []string) {
	w = before.clone()
	for range 1 + g.IntN(3) {
		news = append(news, g.change(w))
	}
	return w, news
}

// change makes one change.
func (g *gen) change(w *world) string {
	switch n := g.IntN(100); {
	case n < 25:
		return g.changeRoutes(w)
	case n < 60:
		return g.changeCluster(w, &w.clusters[g.IntN(len(w.clusters))])
	case n < 66:
		w.fault = nil
		if g.chance(70) {
			w.fault = g.fault()
		}
		return fmt.Sprintf("the listener's fault: %v", w.fault)
	case n < 70:
		if g.timeouts {
			w.maxStream = pick(g, 0, 2*time.Second, 3*time.Second)
		}
		return fmt.Sprintf("the listener's max_stream_duration: %v", w.maxStream)
	case n < 72:
		w.inline = !w.inline
		return "routes inline or not"
	case n < 84 && !g.without("removals"):
		return g.removeOrReturn(w)
	case n < 94 && !g.without("defects"):
		return g.breakOrMend(w)
	case !g.without("outages"):
		return g.reach(w)
	}
	return g.changeRoutes(w)
}

func (g *gen) changeRoutes(w *world) string {
	h := &w.hosts[g.IntN(len(w.hosts))]
	i := g.IntN(len(h.routes))
	switch n := g.IntN(10); {
	case n < 3:
		h.routes = slices.Insert(h.routes, i, g.route(w))
		return "a new route"
	case n < 5 && len(h.routes) > 1:
		h.routes = slices.Delete(h.routes, i, i+1)
		return "a route less"
	case n < 6:
		h.routes[0], h.routes[i] = h.routes[i], h.routes[0]
		return "routes in another order"
	case n < 7:
		h.retry = nil
		if g.chance(60) {
			h.retry = g.retry()
		}
		return "another retry policy of a host"
	case n < 9:
		h.routes[i] = g.route(w)
		return "another route"
	default:
		w.fillHost(g, h)
		return "other routes altogether"
	}
}

func (g *gen) changeCluster(w *world, c *cluster) string {
	if c.kind == aggregate {
		c.children = nil
		for _, i := range g.Perm(len(w.clusters))[:2] {
			if w.clusters[i].kind != aggregate {
				c.children = append(c.children, w.clusters[i].name)
			}
		}
		return "other children of aggregate " + c.name
	}
	l := &c.localities[g.IntN(len(c.localities))]
	switch n := g.IntN(16); {
	case n < 3:
		g.fillCluster(c)
		return "other endpoints of " + c.name
	case n < 5:
		c.policy = g.policy()
		return "another policy of " + c.name
	case n < 6:
		c.policy = roundRobin
		return "ROUND_ROBIN of " + c.name
	case n < 8:
		l.weight = uint32(1 + g.IntN(6))
		return "another locality weight of " + c.name
	case n < 10:
		if len(l.endpoints) > 0 {
			e := &l.endpoints[g.IntN(len(l.endpoints))]
			*e = g.endpoint(e.backend)
			e.health = pick(g, corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_HEALTHY)
		}
		return "another health and weight of an endpoint of " + c.name
	case n < 11:
		l.endpoints = nil
		return "a locality without endpoints of " + c.name
	case n < 12:
		c.drops = nil
		if g.chance(60) {
			c.drops = []drop{{category: "d0", fraction: g.fraction()}}
		}
		return "other drops of " + c.name
	case n < 13:
		c.maxRequests = uint32(g.IntN(4))
		return "another max_requests of " + c.name
	case n < 14:
		c.edsName = pick(g, "", "service-"+c.name, "service2-"+c.name)
		return "another EDS service of " + c.name
	case n < 15:
		c.loadReports, c.outlier, c.checked = g.chance(50), g.chance(30), g.chance(50)
		return "other load reports, outlier detection and health check of " + c.name
	default:
		if c.kind == eds {
			c.kind = dns
		} else {
			c.kind = eds
		}
		return "another type of " + c.name
	}
}

// removeOrReturn takes resources away, or gives all back.
func (g *gen) removeOrReturn(w *world) string {
	if len(w.gone) > 0 && g.chance(60) {
		w.gone = nil
		return "all resources are served again"
	}
	c := &w.clusters[g.IntN(len(w.clusters))]
	r := pick(g, "LDS", "RDS", "CDS "+c.name, "CDS "+c.name, "EDS "+c.name)
	w.gone = append(w.gone, r)
	return "not served any more: " + r
}

// breakOrMend adds a defect, or takes all away.
func (g *gen) breakOrMend(w *world) string {
	if len(w.defects) > 0 && g.chance(50) {
		w.defects = nil
		return "no defects any more"
	}
	g.versions++
	c := &w.clusters[g.IntN(len(w.clusters))]
	d := defect{typ: pick(g, "LDS", "RDS", "CDS", "EDS"), version: g.versions}
	switch d.typ {
	case "LDS":
		d.kind = pick(g, slices.Sorted(maps.Keys(listenerDefects))...)
	case "RDS":
		d.kind = pick(g, slices.Sorted(maps.Keys(routeDefects))...)
	case "CDS":
		d.name, d.kind = c.name, pick(g, slices.Sorted(maps.Keys(clusterDefects))...)
	case "EDS":
		d.name, d.kind = c.edsResource(), pick(g, slices.Sorted(maps.Keys(endpointDefects))...)
	}
	w.defects = append(w.defects, d)
	return fmt.Sprintf("a defect: %v", d)
}

// reach makes backends unreachable, or all reachable.
func (g *gen) reach(w *world) string {
	if len(w.unreachable) > 0 && g.chance(60) {
		w.unreachable = nil
		return "all backends are reachable"
	}
	names := backendNames()
	for range 1 + g.IntN(4) {
		w.unreachable = append(w.unreachable, pick(g, names...))
	}
	return fmt.Sprintf("unreachable: %q", w.unreachable)
}
