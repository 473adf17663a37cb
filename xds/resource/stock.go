// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// This file finds the rules of google.golang.org/grpc/xds of grpc-go 1.85, called stock here, that
// a valid resource violates, so that stock rejects the resource: its RPCs fail after a roll-back.
// bench/differential holds each of them to stock.

// maxStockRejections limits the number of reported rules of a resource.
const maxStockRejections = 8

// RejectedByStock returns why google.golang.org/grpc/xds would reject a decoded resource: paths of
// fields with reasons. It is empty if that package accepts the resource.
func RejectedByStock(decoded any) []string {
	switch r := decoded.(type) {
	case *Listener:
		return r.Stock
	case *RouteConfig:
		return r.Stock
	case *Cluster:
		return r.Stock
	}
	return nil
}

// refusedByStock records that stock rejects the value at p.
func (p *path) refusedByStock(why string) {
	if l := p.to; len(l.stock) < maxStockRejections {
		l.stock = append(l.stock, p.String()+": "+why)
	}
}

// Filters that stock supports on clients.
var (
	stockFilters   = []string{routerType, faultType}
	stockOverrides = []string{faultType, "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"}
)

// stockFilter checks the configuration of a filter, or an override of one, whose type is one of the
// supported types.
func (cfg *filterConfig) stockFilter(optional bool, supported []string) {
	switch {
	case slices.Contains(supported, cfg.kind):
		if cfg.object != nil {
			cfg.p.refusedByStock("the filter " + quote(cfg.kind) + " in a TypedStruct is unsupported")
		}
	case !optional:
		cfg.p.refusedByStock("the filter " + quote(cfg.kind) + " is unsupported, and not optional")
	}
}

// rlsPlugin is the type of the cluster specifier plugin that stock has, and rlsPolicy the LB policy
// that it requires, which a program has to import.
const (
	rlsPlugin = "grpc.lookup.v1.RouteLookupClusterSpecifier"
	rlsPolicy = "rls_experimental"
)

// stockPlugins checks the cluster specifier plugins of a RouteConfiguration.
func stockPlugins(list []*routev3.ClusterSpecifierPlugin, p *path) {
	for i, m := range list {
		p := p.dot("cluster_specifier_plugins").at(i)
		switch name := baseName(m.GetExtension().GetTypedConfig().GetTypeUrl()); {
		case name == rlsPlugin && balancer.Get(rlsPolicy) == nil:
			p.refusedByStock("the plugin requires the LB policy " + rlsPolicy + ", which the program does not import")
		case name != rlsPlugin && !m.GetIsOptional():
			p.refusedByStock("the plugin " + quote(name) + " is unsupported, and not optional")
		}
	}
}

// stockCluster checks the type and the LB policy of a Cluster. Stock validates lb_policy also if
// load_balancing_policy replaces it, and the LB policy of an aggregate cluster.
func stockCluster(m *clusterv3.Cluster, p *path) {
	const aggregate = "envoy.clusters.aggregate"
	if t := m.GetClusterType(); t != nil && t.GetName() != aggregate {
		p.dot("cluster_type").dot("name").refusedByStock("must be " + aggregate)
	}
	if m.GetType() == clusterv3.Cluster_STRICT_DNS {
		p.dot("type").refusedByStock("STRICT_DNS is unsupported")
	}
	switch policy := m.GetLbPolicy(); policy {
	case clusterv3.Cluster_ROUND_ROBIN:
	case clusterv3.Cluster_RING_HASH:
		if f := m.GetRingHashLbConfig().GetHashFunction(); f != clusterv3.Cluster_RingHashLbConfig_XX_HASH {
			p.dot("ring_hash_lb_config").dot("hash_function").refusedByStock(f.String() + " is unsupported")
		}
	case clusterv3.Cluster_LEAST_REQUEST:
		if n := m.GetLeastRequestLbConfig().GetChoiceCount(); n != nil && n.GetValue() < 2 {
			p.dot("least_request_lb_config").dot("choice_count").refusedByStock("must be at least 2")
		}
	default:
		p.dot("lb_policy").refusedByStock(policy.String() + " is unsupported")
	}
	if list := m.GetLoadBalancingPolicy(); list != nil {
		stockPolicies(list, p.dot("load_balancing_policy"), 0)
	}
}

// stockPolicies checks a list of LB policies. Stock uses the first entry whose type it knows.
func stockPolicies(list *clusterv3.LoadBalancingPolicy, p *path, level int) {
	const maxLevels = 16
	if level == maxLevels {
		return // this package rejects more levels, too
	}
	p = p.dot("policies")
	for i, entry := range list.GetPolicies() {
		if stockPolicy(entry.GetTypedExtensionConfig().GetTypedConfig(), p.at(i).dot("typed_extension_config").dot("typed_config"), level) {
			return
		}
	}
	p.refusedByStock("no LB policy of the list is supported")
}

// stockPolicy checks an LB policy, and reports whether stock knows its type.
func stockPolicy(config *anypb.Any, p *path, level int) (known bool) {
	const policies = "envoy.extensions.load_balancing_policies."
	read := func(m proto.Message) bool { return Unmarshal(config.GetValue(), m) == nil }
	switch name := baseName(config.GetTypeUrl()); name {
	case policies + "round_robin.v3.RoundRobin", policies + "pick_first.v3.PickFirst", policies + "least_request.v3.LeastRequest",
		policies + "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin":
	case policies + "ring_hash.v3.RingHash":
		if m := new(ringhashv3.RingHash); read(m) && m.GetHashFunction() != ringhashv3.RingHash_XX_HASH {
			p.dot("hash_function").refusedByStock(m.GetHashFunction().String() + " is unsupported")
		}
	case policies + "wrr_locality.v3.WrrLocality":
		if m := new(wrrlocalityv3.WrrLocality); read(m) {
			stockPolicies(m.GetEndpointPickingPolicy(), p.dot("endpoint_picking_policy"), level+1)
		}
	case typeName((*xdsv3.TypedStruct)(nil)), typeName((*udpav1.TypedStruct)(nil)):
		m := new(xdsv3.TypedStruct) // both have the same encoding
		return read(m) && stockKnows(baseName(m.GetTypeUrl()))
	default:
		return false
	}
	return true
}

// stockKnows reports whether gRPC's registry has an LB policy in a program with stock.
func stockKnows(name string) bool {
	switch name {
	case "ring_hash_experimental", "least_request_experimental", "weighted_round_robin", "xds_wrr_locality_experimental", "round_robin", "pick_first":
		return true
	}
	return balancer.Get(name) != nil
}
