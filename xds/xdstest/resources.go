// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"net/netip"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Service returns the resources of one service, all with its name: a client that dials
// "xds:///name" reaches the endpoints of the localities.
func Service(name string, localities ...Locality) Resources {
	return Resources{
		Listeners: []*listenerv3.Listener{Listener(name, name)},
		Routes:    []*routev3.RouteConfiguration{RouteConfig(name, Route("", name))},
		Clusters:  []*clusterv3.Cluster{Cluster(name, name)},
		Endpoints: []*endpointv3.ClusterLoadAssignment{Endpoints(name, localities...)},
	}
}

// Add appends the resources of others to r.
func (r *Resources) Add(others ...Resources) {
	for _, o := range others {
		r.Listeners = append(r.Listeners, o.Listeners...)
		r.Routes = append(r.Routes, o.Routes...)
		r.Clusters = append(r.Clusters, o.Clusters...)
		r.Endpoints = append(r.Endpoints, o.Endpoints...)
	}
}

// Listener returns an API listener that gets its routes from RDS. The HTTP filters precede the
// router, which is always present.
func Listener(name, routeConfig string, filters ...*hcmv3.HttpFilter) *listenerv3.Listener {
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: anyOf(&hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			ConfigSource: adsSource(), RouteConfigName: routeConfig,
		}},
		HttpFilters: append(slices.Clip(filters), &hcmv3.HttpFilter{
			Name:       "router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: anyOf(new(routerv3.Router))},
		}),
	})}}
}

// RouteConfig returns a route configuration with one virtual host, for all domains.
func RouteConfig(name string, routes ...*routev3.Route) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: name, Domains: []string{"*"}, Routes: routes,
	}}}
}

// Route returns a route to a cluster for paths with a prefix; an empty prefix matches all
// paths.
func Route(prefix, cluster string) *routev3.Route {
	return &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: prefix}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		}},
	}
}

// Cluster returns an EDS cluster with policy ROUND_ROBIN. An empty EDS service name means the
// cluster's name. The options change the cluster, in order.
func Cluster(name, service string, opts ...func(*clusterv3.Cluster)) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: adsSource(), ServiceName: service},
	}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

// Locality describes a locality to Endpoints.
type Locality struct {
	Place
	Priority uint32
	// Weight is the locality's share of its priority. 0 means 1, since clients ignore a
	// locality without a weight.
	Weight    uint32
	Endpoints []Endpoint
}

// Endpoint describes an endpoint to Endpoints.
type Endpoint struct {
	Addr   netip.AddrPort
	Weight uint32              // 0 omits it, which means 1
	Health corev3.HealthStatus // UNKNOWN, the zero value, is healthy
}

// Endpoints returns a load assignment.
func Endpoints(service string, localities ...Locality) *endpointv3.ClusterLoadAssignment {
	cla := &endpointv3.ClusterLoadAssignment{ClusterName: service}
	for _, l := range localities {
		le := &endpointv3.LocalityLbEndpoints{
			Locality:            &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone},
			Priority:            l.Priority,
			LoadBalancingWeight: wrapperspb.UInt32(max(1, l.Weight)),
			LbEndpoints:         make([]*endpointv3.LbEndpoint, 0, len(l.Endpoints)),
		}
		for _, e := range l.Endpoints {
			le.LbEndpoints = append(le.LbEndpoints, lbEndpoint(e))
		}
		cla.Endpoints = append(cla.Endpoints, le)
	}
	return cla
}

func lbEndpoint(e Endpoint) *endpointv3.LbEndpoint {
	lb := &endpointv3.LbEndpoint{
		HealthStatus:   e.Health,
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address(e.Addr)}},
	}
	if e.Weight != 0 {
		lb.LoadBalancingWeight = wrapperspb.UInt32(e.Weight)
	}
	return lb
}

func address(a netip.AddrPort) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       a.Addr().String(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())},
	}}}
}

func adsSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: new(corev3.AggregatedConfigSource)},
	}
}

// anyOf wraps m. It returns nil if m cannot be encoded, for example with a string that is not
// UTF-8, and a client then rejects the resource.
func anyOf(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		return nil
	}
	return a
}
