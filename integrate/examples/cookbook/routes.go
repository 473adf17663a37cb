// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// routes returns RouteConfiguration "orders" with one virtual host.
func routes(list ...*routev3.Route) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name:         "orders",
		VirtualHosts: []*routev3.VirtualHost{{Name: "orders", Domains: []string{"*"}, Routes: list}},
	}
}

// to returns the action that sends RPCs to a cluster.
func to(cluster string) *routev3.Route_Route {
	return &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}}
}

// prefix matches methods: "/package.Service/" for those of a service, "" for all.
func prefix(path string) *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: path}}
}

// all returns the route of all methods to cluster "orders".
func all() *routev3.Route { return &routev3.Route{Match: prefix(""), Action: to("orders")} }

// Domains selects a virtual host by the authority of the channel.
func Domains() *routev3.RouteConfiguration {
	host := func(cluster string, domains ...string) *routev3.VirtualHost {
		return &routev3.VirtualHost{
			Name: cluster, Domains: domains, Routes: []*routev3.Route{{Match: prefix(""), Action: to(cluster)}},
		}
	}
	return &routev3.RouteConfiguration{Name: "orders", VirtualHosts: []*routev3.VirtualHost{
		host("orders", "orders", "orders.shop.example"),
		host("orders-canary", "*.canary.example", "canary.*"),
		host("orders-backup", "*"),
	}}
}

// Paths selects routes by the method of the RPC.
func Paths() *routev3.RouteConfiguration {
	return routes(
		&routev3.Route{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/shop.Orders/Cancel"}},
			Action: to("orders-canary"),
		},
		&routev3.Route{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{
				SafeRegex: &matcherv3.RegexMatcher{Regex: `/shop\.\w+/(List|Search).*`},
			}},
			Action: to("orders-backup"),
		},
		&routev3.Route{
			Match: &routev3.RouteMatch{
				PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/SHOP.legacy/"}, CaseSensitive: wrapperspb.Bool(false),
			},
			Action: to("orders-backup"),
		},
		all(),
	)
}

// Headers sends RPCs with a header to another cluster.
func Headers() *routev3.RouteConfiguration {
	match := prefix("")
	match.Headers = []*routev3.HeaderMatcher{{
		Name: "x-canary",
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "true"},
		}},
	}}
	return routes(&routev3.Route{Match: match, Action: to("orders-canary")}, all())
}

// Fraction sends a fraction of the RPCs to another cluster.
func Fraction() *routev3.RouteConfiguration {
	match := prefix("")
	match.RuntimeFraction = &corev3.RuntimeFractionalPercent{
		DefaultValue: &typev3.FractionalPercent{Numerator: 10, Denominator: typev3.FractionalPercent_HUNDRED},
	}
	return routes(&routev3.Route{Match: match, Action: to("orders-canary")}, all())
}

// WeightedClusters splits RPCs between clusters.
func WeightedClusters() *routev3.RouteConfiguration {
	r := all()
	r.GetRoute().ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{
		Clusters: []*routev3.WeightedCluster_ClusterWeight{
			{Name: "orders", Weight: number(75)},
			{Name: "orders-canary", Weight: number(25)},
		},
	}}
	return routes(r)
}

// HashPolicy hashes a header, or the channel if an RPC does not have the header.
func HashPolicy() *routev3.RouteConfiguration {
	r := all()
	r.GetRoute().HashPolicy = []*routev3.RouteAction_HashPolicy{
		{
			PolicySpecifier: &routev3.RouteAction_HashPolicy_Header_{
				Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: "x-user"},
			},
			Terminal: true,
		},
		{
			PolicySpecifier: &routev3.RouteAction_HashPolicy_FilterState_{
				FilterState: &routev3.RouteAction_HashPolicy_FilterState{Key: "io.grpc.channel_id"},
			},
		},
	}
	return routes(r)
}

// Retries repeats RPCs that failed with UNAVAILABLE, up to two times and at other endpoints.
func Retries() *routev3.RouteConfiguration {
	r := all()
	r.GetRoute().RetryPolicy = &routev3.RetryPolicy{
		RetryOn:            "unavailable",
		NumRetries:         number(2),
		RetryBackOff:       &routev3.RetryPolicy_RetryBackOff{BaseInterval: seconds(.025), MaxInterval: seconds(.25)},
		RetryHostPredicate: otherHosts(),
	}
	return routes(r)
}

// otherHosts makes further attempts avoid the endpoints of earlier ones.
func otherHosts() []*routev3.RetryPolicy_RetryHostPredicate {
	return []*routev3.RetryPolicy_RetryHostPredicate{{
		Name: "envoy.retry_host_predicates.previous_hosts",
		ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{
			TypedConfig: anyOf(&previoushostsv3.PreviousHostsPredicate{}),
		},
	}}
}

// PerTryTimeout cancels an attempt that takes half a second, and makes another one at another
// endpoint.
func PerTryTimeout() *routev3.RouteConfiguration {
	r := all()
	r.GetRoute().RetryPolicy = &routev3.RetryPolicy{
		RetryOn: "unavailable,deadline-exceeded", NumRetries: number(2), PerTryTimeout: seconds(.5), RetryHostPredicate: otherHosts(),
	}
	return routes(r)
}

// Hedging sends an RPC to a second endpoint if the first one has not responded after 100 ms.
func Hedging() *routev3.RouteConfiguration {
	r := all()
	r.GetRoute().RetryPolicy = &routev3.RetryPolicy{
		RetryOn: "unavailable", NumRetries: number(1), PerTryTimeout: seconds(.1),
	}
	r.GetRoute().HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true}
	return routes(r)
}

// RouteTimeout limits the RPCs of a route to five seconds.
func RouteTimeout() *routev3.RouteConfiguration {
	r := all()
	r.GetRoute().MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: seconds(5)}
	return routes(r)
}

// FilterOverride replaces the configuration of the HTTP filter "fault" on one route. It has no effect
// if the Listener does not have that filter.
func FilterOverride() *routev3.RouteConfiguration {
	r := &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/shop.Orders/Cancel"}},
		Action: to("orders"),
		TypedPerFilterConfig: map[string]*anypb.Any{"fault": anyOf(&faultv3.HTTPFault{Abort: &faultv3.FaultAbort{
			ErrorType:  &faultv3.FaultAbort_GrpcStatus{GrpcStatus: 8}, // RESOURCE_EXHAUSTED
			Percentage: &typev3.FractionalPercent{Numerator: 100, Denominator: typev3.FractionalPercent_HUNDRED},
		}})},
	}
	return routes(r, all())
}

// RequestHeaders adds a header to the RPCs of a route and removes another one. The virtual host sets
// a header.
func RequestHeaders() *routev3.RouteConfiguration {
	r := all()
	r.RequestHeadersToAdd = []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-route", Value: "orders"}}}
	r.RequestHeadersToRemove = []string{"x-debug"}
	c := routes(r)
	c.VirtualHosts[0].RequestHeadersToAdd = []*corev3.HeaderValueOption{{
		Header:       &corev3.HeaderValue{Key: "x-environment", Value: "production"},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}
	return c
}

// AutoHostRewrite replaces the authority of RPCs by the hostname of the endpoint.
func AutoHostRewrite() *routev3.RouteConfiguration {
	r := all()
	r.GetRoute().HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
	return routes(r)
}

// HostRewriteLiteral replaces the authority of RPCs by a fixed one.
func HostRewriteLiteral() *routev3.RouteConfiguration {
	r := all()
	r.GetRoute().HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: "orders.shop.example"}
	return routes(r)
}

// delayed returns a fault that delays a part of the RPCs by two seconds.
func delayed(percent uint32) *faultv3.HTTPFault {
	return &faultv3.HTTPFault{Delay: &faultcommonv3.FaultDelay{
		FaultDelaySecifier: &faultcommonv3.FaultDelay_FixedDelay{FixedDelay: seconds(2)},
		Percentage:         &typev3.FractionalPercent{Numerator: percent, Denominator: typev3.FractionalPercent_HUNDRED},
	}}
}
