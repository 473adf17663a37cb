// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
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
