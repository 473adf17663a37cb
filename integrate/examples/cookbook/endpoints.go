// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// address returns an IP address, or a hostname for LOGICAL_DNS, with a port.
func address(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}},
	}}
}

func endpoint(host string, port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: address(host, port)},
	}}
}

// zone returns a locality. Clients ignore localities without a weight.
func zone(name string, priority, weight uint32, list ...*endpointv3.LbEndpoint) *endpointv3.LocalityLbEndpoints {
	return &endpointv3.LocalityLbEndpoints{
		Locality: &corev3.Locality{Region: "eu", Zone: name}, Priority: priority, LoadBalancingWeight: number(weight), LbEndpoints: list,
	}
}

// assignment returns ClusterLoadAssignment "orders".
func assignment(zones ...*endpointv3.LocalityLbEndpoints) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: "orders", Endpoints: zones}
}

// Localities has two zones, of which the second gets three times as many RPCs. They count if the
// policy of the cluster is wrr_locality.
func Localities() *endpointv3.ClusterLoadAssignment {
	return assignment(
		zone("eu-1", 0, 1, endpoint("10.0.0.1", 80)),
		zone("eu-2", 0, 3, endpoint("10.0.0.2", 80)),
	)
}

// Priorities uses the second zone when no endpoint of the first one is reachable.
func Priorities() *endpointv3.ClusterLoadAssignment {
	return assignment(
		zone("eu-1", 0, 1, endpoint("10.0.0.1", 80)),
		zone("eu-2", 1, 1, endpoint("10.0.0.2", 80)),
	)
}

// EndpointWeights gives the second endpoint three times as many RPCs.
func EndpointWeights() *endpointv3.ClusterLoadAssignment {
	a, b := endpoint("10.0.0.1", 80), endpoint("10.0.0.2", 80)
	a.LoadBalancingWeight, b.LoadBalancingWeight = number(1), number(3)
	return assignment(zone("eu-1", 0, 1, a, b))
}

// Draining sends no new RPCs to the first endpoint. Its connection and its RPCs continue.
func Draining() *endpointv3.ClusterLoadAssignment {
	draining := endpoint("10.0.0.1", 80)
	draining.HealthStatus = corev3.HealthStatus_DRAINING
	return assignment(zone("eu-1", 0, 1, draining, endpoint("10.0.0.2", 80)))
}

// Drops fails 20 % of the RPCs in the client.
func Drops() *endpointv3.ClusterLoadAssignment {
	a := assignment(zone("eu-1", 0, 1, endpoint("10.0.0.1", 80), endpoint("10.0.0.2", 80)))
	a.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
		Category:       "overload",
		DropPercentage: &typev3.FractionalPercent{Numerator: 20, Denominator: typev3.FractionalPercent_HUNDRED},
	}}}
	return a
}

// SeveralAddresses has an endpoint with an IPv6 and an IPv4 address.
func SeveralAddresses() *endpointv3.ClusterLoadAssignment {
	e := endpoint("2001:db8::1", 80)
	e.GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: address("10.0.0.1", 80)}}
	return assignment(zone("eu-1", 0, 1, e))
}

// HashKeys places endpoints on the ring by a name of their own instead of their address, so that a
// replacement with another address takes over the same RPCs.
func HashKeys() *endpointv3.ClusterLoadAssignment {
	keyed := func(host, key string) *endpointv3.LbEndpoint {
		e := endpoint(host, 80)
		e.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"envoy.lb": {Fields: map[string]*structpb.Value{"hash_key": structpb.NewStringValue(key)}},
		}}
		return e
	}
	return assignment(zone("eu-1", 0, 1, keyed("10.0.0.1", "shard-a"), keyed("10.0.0.2", "shard-b")))
}

// Hostnames gives an endpoint a hostname, for auto_host_rewrite and TLS.
func Hostnames() *endpointv3.ClusterLoadAssignment {
	e := endpoint("10.0.0.1", 80)
	e.GetEndpoint().Hostname = "orders-1.shop.example"
	return assignment(zone("eu-1", 0, 1, e))
}
