// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"fmt"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/resource"
)

// A response of the control plane is a list of Any messages. Each is decoded separately, and
// its errors go into the NACK.
func Example() {
	routes, _ := anypb.New(&routev3.RouteConfiguration{
		Name: "routes",
		VirtualHosts: []*routev3.VirtualHost{{
			Domains: []string{"*.example.com"},
			Routes: []*routev3.Route{
				{Match: &routev3.RouteMatch{}},
				{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
					Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{}}}},
			},
		}},
	})

	url, value, err := resource.Unwrap(routes)
	typ, ok := resource.TypeOf(url)
	fmt.Println(typ, ok, err)

	_, err = resource.Decode(typ, value, resource.Options{})
	fmt.Println("NACK:", err)
	// Output:
	// RouteConfiguration true <nil>
	// NACK: RouteConfiguration "routes": virtual_hosts[0].routes[0].match: must have prefix, path or safe_regex; virtual_hosts[0].routes[1].route.cluster: must not be empty
}

// An unchanged version of a resource is the previous version.
func ExampleDecode_previous() {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: "cluster"}
	value, _ := proto.Marshal(m)
	first, _ := resource.Decode(resource.EndpointsType, value, resource.Options{})

	m.Policy = &endpointv3.ClusterLoadAssignment_Policy{WeightedPriorityHealth: true} // not for gRPC
	value, _ = proto.Marshal(m)
	second, _ := resource.Decode(resource.EndpointsType, value, resource.Options{Previous: first.(*resource.Endpoints)})
	fmt.Println(second == first)
	// Output: true
}

// The virtual host is the one with the most specific domain for the target.
func ExampleRouteConfig_Match() {
	rc := &resource.RouteConfig{VirtualHosts: []resource.VirtualHost{
		{Name: "everything", Domains: []string{"*"}},
		{Name: "shop", Domains: []string{"*.shop.example.com"}},
		{Name: "cart", Domains: []string{"cart.shop.example.com", "cart.shop.example.com:443"}},
	}}
	for _, authority := range []string{"Cart.shop.example.com:443", "list.shop.example.com", "shop.example.com"} {
		fmt.Println(authority, "→", rc.Match(authority).Name)
	}
	// Output:
	// Cart.shop.example.com:443 → cart
	// list.shop.example.com → shop
	// shop.example.com → everything
}
