// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// dense returns a scenario of resources that grow as a server likes. Its two versions, 0 and 1,
// differ in a byte, so that each response is decoded, compared with the one before, and applied.
func dense(name, typ string, versions func(v int) []proto.Message, set ...func(s *scenario)) *scenario {
	s := &scenario{name: name, typ: typ, pause: 100 * time.Millisecond}
	for _, f := range set {
		f(s)
	}
	var encoded [2]func() ([]string, []*anypb.Any)
	for v := range encoded {
		encoded[v] = sync.OnceValues(func() (names []string, list []*anypb.Any) {
			for _, m := range versions(v) {
				names, list = append(names, nameOf(m)), append(list, pack(m))
			}
			return names, list
		})
	}
	s.response = func(i int) proto.Message {
		names, list := encoded[i%2]()
		return s.packed(typ, i, names, list)
	}
	return s
}

// allocates and retains set bounds of a scenario.
func allocates(n float64) func(s *scenario) { return func(s *scenario) { s.allocated = n } }

func retains(n float64) func(s *scenario) { return func(s *scenario) { s.retained = n } }

func locks(d cpuSeconds) func(s *scenario) { return func(s *scenario) { s.lock = d } }

func besides(n int64) func(s *scenario) { return func(s *scenario) { s.besides = n } }

func fails(s *scenario) { s.fails = true }

func large(s *scenario) { s.large = true }

// with has the server send other resources of a type.
func with(typ string, list func() []proto.Message) func(s *scenario) {
	return func(s *scenario) {
		if s.with == nil {
			s.with = map[string]func(int) []proto.Message{}
		}
		once := sync.OnceValue(list)
		s.with[typ] = func(int) []proto.Message { return once() }
	}
}

// routesOf returns a RouteConfiguration of the target with routes, of which one is different in
// each version, and one to cluster c is the last.
func routesOf(v int, routes ...*routev3.Route) *routev3.RouteConfiguration {
	return xdstest.RouteConfig("r", slices.Concat(routes, []*routev3.Route{xdstest.Route(fmt.Sprint("/version", v), "c"), xdstest.Route("", "c")})...)
}

// hosts returns routesOf(v) with n more virtual hosts, which are empty.
func hosts(v, n int) *routev3.RouteConfiguration {
	c := routesOf(v)
	c.VirtualHosts = append(c.VirtualHosts, slices.Repeat([]*routev3.VirtualHost{{}}, atMost(n))...)
	return c
}

// same returns n equal routes.
func same(n int, r *routev3.Route) []*routev3.Route {
	return slices.Repeat([]*routev3.Route{r}, atMost(n))
}

// different returns n routes.
func different(n int, route func(k int) *routev3.Route) (list []*routev3.Route) {
	for k := range atMost(n) {
		list = append(list, route(k))
	}
	return list
}

func one(m proto.Message) []proto.Message { return []proto.Message{m} }

// lazy is a cluster that connects to an endpoint when an RPC is hashed to it.
func lazy() []proto.Message { return one(xdstest.Cluster("c", "e", testplane.RingHash(1, 16))) }

// unreachable returns n endpoints.
func unreachable(n int) (list []xdstest.Endpoint) {
	for k := range atMost(n) {
		list = append(list, xdstest.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, byte(k>>16) + 1, byte(k >> 8), byte(k)}), 1)})
	}
	return list
}

// denseScenarios have one large resource each.
func denseScenarios() []*scenario {
	return []*scenario{
		dense("Listener of 500,000 empty virtual hosts", lds, func(v int) []proto.Message {
			return one(testplane.InlineListener("l", hosts(v, 500_000)))
		}, allocates(90), fails),
		dense("RouteConfiguration of 500,000 empty virtual hosts", rds, func(v int) []proto.Message {
			return one(hosts(v, 500_000))
		}, allocates(90)),
		dense("RouteConfiguration of 500,000 empty routes", rds, func(v int) []proto.Message {
			return one(routesOf(v, same(500_000, &routev3.Route{})...))
		}, allocates(130)),
		dense("Listener of 260,000 empty HTTP filters", lds, func(v int) []proto.Message {
			return one(&listenerv3.Listener{Name: "l", StatPrefix: fmt.Sprint(v), ApiListener: &listenerv3.ApiListener{ApiListener: pack(&hcmv3.HttpConnectionManager{
				HttpFilters: slices.Repeat([]*hcmv3.HttpFilter{{}}, atMost(260_000)),
			})}})
		}, allocates(300)),
		dense("RouteConfiguration of 100,000 routes", rds, func(v int) []proto.Message {
			return one(routesOf(v, same(100_000, xdstest.Route("/", "c"))...))
		}, allocates(300)),
		dense("RouteConfiguration of 15 MiB of routes", rds, func(v int) []proto.Message {
			return one(routesOf(v, same(15<<20/12, xdstest.Route("/", "c"))...))
		}, allocates(300), large),
		dense("Cluster of 500,000 empty metric names", cds, func(v int) []proto.Message {
			c := xdstest.Cluster("c", "e", testplane.MaxRequests(uint32(1000+v)))
			c.LrsReportEndpointMetrics = make([]string, atMost(500_000))
			return one(c)
		}),
		dense("ClusterLoadAssignment of 500,000 empty endpoints", eds, func(v int) []proto.Message {
			c := xdstest.Endpoints("e", xdstest.Locality{Weight: uint32(v + 1)})
			c.Endpoints[0].LbEndpoints = slices.Repeat([]*endpointv3.LbEndpoint{{}}, atMost(500_000))
			return one(c)
		}),
		dense("ClusterLoadAssignment of 100,000 endpoints", eds, func(v int) []proto.Message {
			return one(xdstest.Endpoints("e", xdstest.Locality{Weight: uint32(v + 1), Endpoints: append(unreachable(100_000), backend)}))
		}, with(cds, lazy)),
	}
}

// productScenarios have resources whose cost a careless client multiplies.
func productScenarios() []*scenario {
	filters := func() []proto.Message {
		var list []*hcmv3.HttpFilter
		for k := range 999 { // and the router
			list = append(list, &hcmv3.HttpFilter{Name: fmt.Sprint(k), ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: fault()}})
		}
		return one(xdstest.Listener("l", "r", list...))
	}
	path := func(k int) *routev3.Route { return xdstest.Route(fmt.Sprint("/", k), "c") }
	conditional := func(k int) *routev3.Route {
		r := xdstest.Route(fmt.Sprintf("/a%d/", k), "c")
		r.Match.Headers = []*routev3.HeaderMatcher{{Name: "x", HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}}
		return r
	}
	method := func(k int) *routev3.Route {
		r := xdstest.Route("", "c")
		r.Match.PathSpecifier = &routev3.RouteMatch_Path{Path: fmt.Sprintf("/s%d/m", k)}
		return r
	}
	group := func(n int) func() []proto.Message {
		return func() []proto.Message {
			return one(routesOf(0, different(n, func(k int) *routev3.Route { return xdstest.Route(fmt.Sprint("/", k), fmt.Sprint("g", k)) })...))
		}
	}
	fromScratch := func(s *scenario) { s.absent, s.more = true, true }
	return []*scenario{
		dense("1000 HTTP filters and 40,000 routes", rds, func(v int) []proto.Message {
			return one(routesOf(v, different(40_000, path)...))
		}, with(lds, filters), allocates(300)),
		dense("1000 HTTP filters and 8,000 routes that override one each", rds, func(v int) []proto.Message {
			return one(routesOf(v, different(8_000, func(k int) *routev3.Route {
				r := path(k)
				r.TypedPerFilterConfig = map[string]*anypb.Any{fmt.Sprint(k % 999): fault()}
				return r
			})...))
		}, with(lds, filters), allocates(300)),
		dense("1000 header changes for all of 40,000 routes", rds, func(v int) []proto.Message {
			c := routesOf(v, different(40_000, path)...)
			for k := range 1000 {
				c.RequestHeadersToAdd = append(c.RequestHeadersToAdd, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: fmt.Sprint("h", k), Value: "v"}})
			}
			return one(c)
		}, allocates(300)),
		dense("12,000 routes with a condition and 12,000 without", rds, func(v int) []proto.Message {
			return one(routesOf(v, slices.Concat(different(12_000, conditional), different(12_000, method))...))
		}, allocates(300)),
		dense("a route to 20,000 clusters of one assignment", cds, func(v int) []proto.Message {
			list := one(xdstest.Cluster("c", "e", testplane.MaxRequests(uint32(1000+v))))
			for k := range atMost(20_000) {
				list = append(list, xdstest.Cluster(fmt.Sprint("g", k), "e", testplane.RingHash(1, 16)))
			}
			return list
		}, fromScratch, with(rds, func() []proto.Message {
			var list []testplane.Weighted
			for k := range atMost(20_000) {
				list = append(list, testplane.Weighted{Cluster: fmt.Sprint("g", k), Weight: 1})
			}
			return one(routesOf(0, testplane.WeightedRoute("/weighted", list...)))
		}), allocates(300), retains(110)),
		dense("2,000 aggregates of an aggregate of 2,000 clusters", cds, func(v int) []proto.Message {
			list := one(xdstest.Cluster("c", "e", testplane.MaxRequests(uint32(1000+v))))
			var leaves []string
			for k := range atMost(2_000) {
				leaves = append(leaves, fmt.Sprint("f", k))
				list = append(list, aggregate(fmt.Sprint("g", k), "all"), xdstest.Cluster(leaves[k], "e", testplane.RingHash(1, 16)))
			}
			return append(list, aggregate("all", leaves...))
		}, fromScratch, with(rds, group(2_000)), allocates(400), besides(240<<20)),
		dense("4,000 aggregates of one Maglev cluster", cds, func(v int) []proto.Message {
			list := []proto.Message{xdstest.Cluster("c", "e", testplane.MaxRequests(uint32(1000+v))), xdstest.Cluster("m", "e", func(c *clusterv3.Cluster) {
				c.LbPolicy = clusterv3.Cluster_MAGLEV
				c.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(65537)}}
			})}
			for k := range atMost(4_000) {
				list = append(list, aggregate(fmt.Sprint("g", k), "m"))
			}
			return list
		}, fromScratch, with(rds, group(4_000)), allocates(120), besides(64<<20), retains(60)),
		dense("Cluster of 500,000 empty LB policies", cds, func(v int) []proto.Message {
			list := &clusterv3.LoadBalancingPolicy{Policies: slices.Repeat([]*clusterv3.LoadBalancingPolicy_Policy{{}}, atMost(500_000))}
			return one(xdstest.Cluster("c", "e", testplane.Policies(&wrrlocalityv3.WrrLocality{EndpointPickingPolicy: list}), testplane.MaxRequests(uint32(1000+v))))
		}, allocates(250)),
		dense("ClusterLoadAssignment of 20,000 localities", eds, func(v int) []proto.Message {
			list := []xdstest.Locality{{Weight: uint32(v + 1), Endpoints: []xdstest.Endpoint{backend}}}
			for k, e := range unreachable(20_000) {
				list = append(list, xdstest.Locality{Place: xdstest.Place{Zone: fmt.Sprint(k)}, Endpoints: []xdstest.Endpoint{e}})
			}
			return one(xdstest.Endpoints("e", list...))
		}, with(cds, lazy), allocates(100), locks(150*time.Millisecond)),
		dense("5,000 endpoints that refuse connections", eds, func(v int) []proto.Message {
			return one(xdstest.Endpoints("e", xdstest.Locality{Weight: uint32(v + 1), Endpoints: append(unreachable(5_000), backend)}))
		}, allocates(600), retains(220), locks(700*time.Millisecond)),
	}
}

// fault is the configuration of a filter that does nothing.
func fault() *anypb.Any {
	return pack(&faultv3.HTTPFault{Abort: &faultv3.FaultAbort{ErrorType: &faultv3.FaultAbort_GrpcStatus{GrpcStatus: 14}, Percentage: &typev3.FractionalPercent{}}})
}

func aggregate(name string, children ...string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.clusters.aggregate", TypedConfig: pack(&aggregatev3.ClusterConfig{Clusters: children}),
	}}}
}
