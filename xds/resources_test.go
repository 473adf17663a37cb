// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"net/netip"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// listenerTo returns a Listener that takes its routes from RDS.
func listenerTo(name, routes string) *listenerv3.Listener { return xdstest.Listener(name, routes) }

// routesTo returns a RouteConfiguration with one route to each cluster, the
// first of them for every path.
func routesTo(name string, clusters ...string) *routev3.RouteConfiguration {
	var routes []*routev3.Route
	for i, c := range clusters {
		routes = append(routes, xdstest.Route(strings.Repeat("/x", len(clusters)-1-i), c))
	}
	return xdstest.RouteConfig(name, routes...)
}

// clusterTo returns an EDS cluster.
func clusterTo(name, service string) *clusterv3.Cluster { return xdstest.Cluster(name, service) }

// badCluster returns a Cluster that is not valid.
func badCluster(name string) *clusterv3.Cluster {
	c := clusterTo(name, name)
	c.LrsServer = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{}}
	return c
}

// aggregateOf returns an aggregate cluster.
func aggregateOf(name string, children ...string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name:        "envoy.clusters.aggregate",
			TypedConfig: wrap(&aggregatev3.ClusterConfig{Clusters: children}),
		}},
	}
}

// dnsCluster returns a LOGICAL_DNS cluster.
func dnsCluster(name, host string, port uint32) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
				}}},
			}}}},
		}}},
	}
}

// endpointsAt returns a ClusterLoadAssignment with one endpoint on each port.
func endpointsAt(service string, ports ...uint16) *endpointv3.ClusterLoadAssignment {
	l := xdstest.Locality{}
	for _, p := range ports {
		l.Endpoints = append(l.Endpoints, xdstest.Endpoint{Addr: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.1:%d", p))})
	}
	return xdstest.Endpoints(service, l)
}

// badEndpoints returns a ClusterLoadAssignment that is not valid: its only
// priority is not the first.
func badEndpoints(service string) *endpointv3.ClusterLoadAssignment {
	e := endpointsAt(service, 1)
	e.Endpoints[0].Priority = 3
	return e
}

// inlineListener returns a Listener that has its routes in itself.
func inlineListener(name string, routes *routev3.RouteConfiguration) *listenerv3.Listener {
	return testplane.InlineListener(name, routes)
}
