// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
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

const typePrefix = "type.googleapis.com/"

const (
	listenerType = typePrefix + "envoy.config.listener.v3.Listener"
	routeType    = typePrefix + "envoy.config.route.v3.RouteConfiguration"
	clusterType  = typePrefix + "envoy.config.cluster.v3.Cluster"
	endpointType = typePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// types are all types of resources.
var types = []string{listenerType, routeType, clusterType, endpointType}

// resource returns the resource of a type for an existing port. All resources of the port
// have its name, so that overlays can patch each of them.
func resource(typeURL, name string, localities []locality) proto.Message {
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}, ResourceApiVersion: corev3.ApiVersion_V3}
	switch typeURL {
	case listenerType:
		return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: toAny(&hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads, RouteConfigName: sibling(name, routeType)}},
			HttpFilters:    []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: toAny(&routerv3.Router{})}}},
		})}}
	case routeType:
		return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
			Name: "default", Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Name:   "default",
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: sibling(name, clusterType)}}},
			}},
		}}}
	case clusterType:
		return &clusterv3.Cluster{
			Name:                 name,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads, ServiceName: sibling(name, endpointType)},
			LbPolicy:             clusterv3.Cluster_ROUND_ROBIN,
		}
	case endpointType:
		return loadAssignment(name, localities)
	}
	return nil
}

// loadAssignment returns the resource with the endpoints.
func loadAssignment(name string, localities []locality) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	for _, l := range localities {
		group := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: l.region, Zone: l.zone}}
		healthy := uint32(0)
		for _, e := range l.endpoints {
			status := corev3.HealthStatus_DRAINING
			if e.state == healthyState {
				status = corev3.HealthStatus_HEALTHY
				healthy++
			}
			ep := &endpointv3.Endpoint{Address: address(e.addrs[0])}
			for _, a := range e.addrs[1:] {
				ep.AdditionalAddresses = append(ep.AdditionalAddresses, &endpointv3.Endpoint_AdditionalAddress{Address: address(a)})
			}
			group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: ep}, HealthStatus: status,
			})
		}
		// Each healthy endpoint of the service gets the same share. A locality without weight would
		// be ignored, with the draining endpoints that sessions still use.
		group.LoadBalancingWeight = wrapperspb.UInt32(max(1, healthy))
		out.Endpoints = append(out.Endpoints, group)
	}
	return out
}

// toAny panics if the message cannot be encoded, which valid UTF-8 excludes.
func toAny(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}
