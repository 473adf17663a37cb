// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	typedstructv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// InlineListener returns an API listener with inline routes.
func InlineListener(name string, routes *routev3.RouteConfiguration, filters ...*hcmv3.HttpFilter) *listenerv3.Listener {
	l := xdstest.Listener(name, "", filters...)
	hcm := new(hcmv3.HttpConnectionManager)
	if err := l.GetApiListener().GetApiListener().UnmarshalTo(hcm); err != nil {
		return l // a filter cannot be encoded
	}
	hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes}
	l.ApiListener.ApiListener = anyOf(hcm)
	return l
}

// Weighted is one cluster of a WeightedRoute.
type Weighted struct {
	Cluster string
	Weight  uint32
}

// WeightedRoute is xdstest.Route to several clusters.
func WeightedRoute(prefix string, clusters ...Weighted) *routev3.Route {
	weighted := new(routev3.WeightedCluster)
	for _, c := range clusters {
		weighted.Clusters = append(weighted.Clusters, &routev3.WeightedCluster_ClusterWeight{
			Name: c.Cluster, Weight: wrapperspb.UInt32(c.Weight),
		})
	}
	r := xdstest.Route(prefix, "")
	r.GetRoute().ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted}
	return r
}

// HashHeader sets a request header as the hash policy of a route (A42), and returns the route.
func HashHeader(r *routev3.Route, header string) *routev3.Route {
	r.GetRoute().HashPolicy = append(r.GetRoute().HashPolicy, &routev3.RouteAction_HashPolicy{
		PolicySpecifier: &routev3.RouteAction_HashPolicy_Header_{
			Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: header},
		},
	})
	return r
}

// A ClusterOption changes a cluster.
type ClusterOption = func(*clusterv3.Cluster)

// LoadReports enables LRS, with the server that serves the cluster.
func LoadReports() ClusterOption {
	return func(c *clusterv3.Cluster) {
		c.LrsServer = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: new(corev3.SelfConfigSource)}}
	}
}

// MaxRequests sets the circuit breaker (A32).
func MaxRequests(n uint32) ClusterOption {
	return func(c *clusterv3.Cluster) {
		c.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			Priority: corev3.RoutingPriority_DEFAULT, MaxRequests: wrapperspb.UInt32(n),
		}}}
	}
}

// RingHash sets policy RING_HASH (A42).
func RingHash(minSize, maxSize uint64) ClusterOption {
	return func(c *clusterv3.Cluster) {
		c.LbPolicy = clusterv3.Cluster_RING_HASH
		c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{
			MinimumRingSize: wrapperspb.UInt64(minSize), MaximumRingSize: wrapperspb.UInt64(maxSize),
		}}
	}
}

// LeastRequest sets policy LEAST_REQUEST (A48).
func LeastRequest(choices uint32) ClusterOption {
	return func(c *clusterv3.Cluster) {
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		c.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{
			ChoiceCount: wrapperspb.UInt32(choices),
		}}
	}
}

// Policies sets load_balancing_policy to a list of policies, in order of preference (A52).
func Policies(policies ...proto.Message) ClusterOption {
	return func(c *clusterv3.Cluster) { c.LoadBalancingPolicy = policyList(policies) }
}

// TypedStruct returns a custom policy with a name in gRPC's registry (A52). Its configuration
// has the format of structpb.NewStruct.
func TypedStruct(name string, config map[string]any) proto.Message {
	value, err := structpb.NewStruct(config)
	if err != nil {
		panic(err)
	}
	return &typedstructv3.TypedStruct{TypeUrl: "type.googleapis.com/" + name, Value: value}
}

func policyList(policies []proto.Message) *clusterv3.LoadBalancingPolicy {
	list := new(clusterv3.LoadBalancingPolicy)
	for _, p := range policies {
		list.Policies = append(list.Policies, &clusterv3.LoadBalancingPolicy_Policy{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "policy", TypedConfig: anyOf(p)},
		})
	}
	return list
}

// WrrLocality returns A52's policy that draws a locality first, and leaves its endpoints to the
// first of the policies that a client supports.
func WrrLocality(policies ...proto.Message) proto.Message {
	return &wrrlocalityv3.WrrLocality{EndpointPickingPolicy: policyList(policies)}
}

// Drop adds a drop category to a load assignment, and returns it.
func Drop(cla *endpointv3.ClusterLoadAssignment, category string, perMillion uint32) *endpointv3.ClusterLoadAssignment {
	if cla.Policy == nil {
		cla.Policy = new(endpointv3.ClusterLoadAssignment_Policy)
	}
	cla.Policy.DropOverloads = append(cla.Policy.DropOverloads, &endpointv3.ClusterLoadAssignment_Policy_DropOverload{
		Category:       category,
		DropPercentage: &typev3.FractionalPercent{Numerator: perMillion, Denominator: typev3.FractionalPercent_MILLION},
	})
	return cla
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

// nameOf returns the name of a resource.
func nameOf(m proto.Message) string {
	switch m := m.(type) {
	case interface{ GetClusterName() string }: // ClusterLoadAssignment
		return m.GetClusterName()
	case interface{ GetName() string }:
		return m.GetName()
	}
	return ""
}
