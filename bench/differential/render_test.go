// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	faultcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	clientwrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// service is the name that channels dial, and the name of its Listener and RouteConfiguration.
const service = "shop.example"

// faultFilter is the name of the fault filter in the listener.
const faultFilter = "fault"

// resources are the world as a control plane serves it.
func (w *world) resources(addrs map[string]netip.AddrPort) xdstest.Resources {
	var r xdstest.Resources
	rc := &routev3.RouteConfiguration{Name: service}
	for i, h := range w.hosts {
		rc.VirtualHosts = append(rc.VirtualHosts, h.proto(strconv.Itoa(i)))
	}
	var filters []*hcmv3.HttpFilter
	if w.fault != nil {
		filters = append(filters, &hcmv3.HttpFilter{
			Name:       faultFilter,
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: mustAny(w.fault.proto())},
		})
	}
	lis := xdstest.Listener(service, service, filters...)
	if w.inline {
		lis = testplane.InlineListener(service, rc, filters...)
	}
	if w.maxStream > 0 {
		hcm := new(hcmv3.HttpConnectionManager)
		if err := lis.GetApiListener().GetApiListener().UnmarshalTo(hcm); err != nil {
			panic(err)
		}
		hcm.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{MaxStreamDuration: durationpb.New(w.maxStream)}
		lis.ApiListener.ApiListener = mustAny(hcm)
	}
	if !w.isGone("LDS") {
		r.Listeners = append(r.Listeners, lis)
	}
	if !w.inline && !w.isGone("RDS") {
		r.Routes = append(r.Routes, rc)
	}
	for i := range w.clusters {
		c := &w.clusters[i]
		if !w.isGone("CDS " + c.name) {
			r.Clusters = append(r.Clusters, c.proto(addrs))
		}
		if c.kind == eds && !w.isGone("EDS "+c.name) {
			r.Endpoints = append(r.Endpoints, c.endpoints(addrs))
		}
	}
	for _, d := range w.defects {
		d.apply(&r)
	}
	return r
}

func mustAny(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// changed are the headers that changedHeaders affect, which routes and hash policies use.
var changed = []string{"x-tenant", "x-user", "x-missing", "x-n"}

// changedHeaders are header mutations. Stock ignores them, so the headers that backends receive are not
// compared, but the choice of route, cluster and endpoint is, which uses the headers before.
func changedHeaders(value string) (add []*corev3.HeaderValueOption, remove []string) {
	for _, name := range changed[:3] {
		add = append(add, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: name, Value: value},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return add, changed[3:]
}

func (h *host) proto(name string) *routev3.VirtualHost {
	vh := &routev3.VirtualHost{
		Name: name, Domains: h.domains, RetryPolicy: h.retry.proto(),
		TypedPerFilterConfig: h.fault.override(),
	}
	if h.changes {
		vh.RequestHeadersToAdd, vh.RequestHeadersToRemove = changedHeaders("host")
	}
	for i := range h.routes {
		vh.Routes = append(vh.Routes, h.routes[i].proto())
	}
	return vh
}

func (r *route) proto() *routev3.Route {
	m := &routev3.RouteMatch{}
	switch r.kind {
	case matchPrefix:
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: r.path}
	case matchExact:
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: r.path}
	case matchRegex:
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: r.path}}
	}
	if r.ignoreCase {
		m.CaseSensitive = wrapperspb.Bool(false)
	}
	for _, h := range r.headers {
		m.Headers = append(m.Headers, h.proto())
	}
	if r.fraction.of != 0 {
		m.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: r.fraction.proto()}
	}
	out := &routev3.Route{Match: m, TypedPerFilterConfig: r.fault.override()}
	switch r.action {
	case forward:
		out.Action = &routev3.Route_Route{Route: r.actionProto()}
		if r.changes {
			out.RequestHeadersToAdd, out.RequestHeadersToRemove = changedHeaders("route")
		}
	case nonForward:
		out.Action = &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}}
	case direct:
		out.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}}
	case redirect:
		out.Action = &routev3.Route_Redirect{Redirect: &routev3.RedirectAction{}}
	}
	return out
}

func (r *route) actionProto() *routev3.RouteAction {
	a := &routev3.RouteAction{RetryPolicy: r.retry.proto()}
	if r.authority {
		a.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: "rewritten.example"}
	}
	if r.retry != nil && r.retry.hedge > 0 {
		a.RetryPolicy.PerTryTimeout = durationpb.New(r.retry.hedge)
		a.HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true}
	}
	if len(r.clusters) == 1 && r.clusters[0].fault == nil {
		a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: r.clusters[0].cluster}
	} else {
		wc := &routev3.WeightedCluster{}
		for _, c := range r.clusters {
			wc.Clusters = append(wc.Clusters, &routev3.WeightedCluster_ClusterWeight{
				Name: c.cluster, Weight: wrapperspb.UInt32(c.weight), TypedPerFilterConfig: c.fault.override(),
			})
		}
		a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: wc}
	}
	if r.timeout != nil || r.headerMax != nil {
		a.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{}
	}
	if r.timeout != nil {
		a.MaxStreamDuration.MaxStreamDuration = durationpb.New(*r.timeout)
	}
	if r.headerMax != nil {
		a.MaxStreamDuration.GrpcTimeoutHeaderMax = durationpb.New(*r.headerMax)
	}
	for _, h := range r.hash {
		p := &routev3.RouteAction_HashPolicy{Terminal: h.terminal}
		if h.header == "" {
			p.PolicySpecifier = &routev3.RouteAction_HashPolicy_FilterState_{FilterState: &routev3.RouteAction_HashPolicy_FilterState{Key: "io.grpc.channel_id"}}
		} else {
			hh := &routev3.RouteAction_HashPolicy_Header{HeaderName: h.header}
			if h.regex != "" {
				hh.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: h.regex}, Substitution: h.rewritten}
			}
			p.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{Header: hh}
		}
		a.HashPolicy = append(a.HashPolicy, p)
	}
	return a
}

func (h *header) proto() *routev3.HeaderMatcher {
	m := &routev3.HeaderMatcher{Name: h.name, InvertMatch: h.invert}
	s := &matcherv3.StringMatcher{IgnoreCase: h.ignoreCase}
	switch h.kind {
	case matchPresent:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: h.value == "true"}
		return m
	case matchRange:
		lo, hi, _ := strings.Cut(h.value, "-")
		start, _ := strconv.ParseInt(lo, 10, 64)
		end, _ := strconv.ParseInt(hi, 10, 64)
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_RangeMatch{RangeMatch: &typev3.Int64Range{Start: start, End: end}}
		return m
	case matchRegex:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: &matcherv3.RegexMatcher{Regex: h.value}}
		return m
	case matchExact:
		s.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: h.value}
	case matchPrefix:
		s.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: h.value}
	case matchSuffix:
		s.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: h.value}
	case matchContain:
		s.MatchPattern = &matcherv3.StringMatcher_Contains{Contains: h.value}
	default:
		panic(fmt.Sprintf("header match %q", h.kind))
	}
	m.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: s}
	return m
}

func (f fraction) proto() *typev3.FractionalPercent {
	p := &typev3.FractionalPercent{Numerator: f.n}
	switch f.of {
	case 0, 100:
	case 10_000:
		p.Denominator = typev3.FractionalPercent_TEN_THOUSAND
	case 1_000_000:
		p.Denominator = typev3.FractionalPercent_MILLION
	default:
		panic(fmt.Sprintf("fraction of %d", f.of))
	}
	return p
}

func (r *retry) proto() *routev3.RetryPolicy {
	if r == nil {
		return nil
	}
	p := &routev3.RetryPolicy{RetryOn: strings.Join(r.on, ",")}
	if r.perTry > 0 {
		p.PerTryTimeout = durationpb.New(r.perTry)
	}
	if r.n != 0 {
		p.NumRetries = wrapperspb.UInt32(r.n)
	}
	if r.base > 0 {
		p.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(r.base)}
		if r.max > 0 {
			p.RetryBackOff.MaxInterval = durationpb.New(r.max)
		}
	}
	return p
}

func (f *fault) proto() *faultv3.HTTPFault {
	m := &faultv3.HTTPFault{}
	if f.delay.of != 0 {
		m.Delay = &faultcommonv3.FaultDelay{Percentage: f.delay.proto()}
		m.Delay.FaultDelaySecifier = &faultcommonv3.FaultDelay_FixedDelay{FixedDelay: durationpb.New(f.delayBy)}
		if f.byHeader {
			m.Delay.FaultDelaySecifier = &faultcommonv3.FaultDelay_HeaderDelay_{HeaderDelay: &faultcommonv3.FaultDelay_HeaderDelay{}}
		}
	}
	if f.abort.of != 0 {
		m.Abort = &faultv3.FaultAbort{Percentage: f.abort.proto()}
		switch {
		case f.byHeader:
			m.Abort.ErrorType = &faultv3.FaultAbort_HeaderAbort_{HeaderAbort: &faultv3.FaultAbort_HeaderAbort{}}
		case f.http != 0:
			m.Abort.ErrorType = &faultv3.FaultAbort_HttpStatus{HttpStatus: f.http}
		default:
			m.Abort.ErrorType = &faultv3.FaultAbort_GrpcStatus{GrpcStatus: f.code}
		}
	}
	return m
}

// override is the fault as an override of the listener's.
func (f *fault) override() map[string]*anypb.Any {
	if f == nil {
		return nil
	}
	return map[string]*anypb.Any{faultFilter: mustAny(f.proto())}
}

// edsResource is the name of a cluster's EDS resource.
func (c *cluster) edsResource() string { return cmp.Or(c.edsName, c.name) }

// proto is the cluster as CDS has it.
func (c *cluster) proto(addrs map[string]netip.AddrPort) *clusterv3.Cluster {
	var opts []testplane.ClusterOption
	if c.maxRequests != 0 {
		opts = append(opts, testplane.MaxRequests(c.maxRequests))
	}
	if c.loadReports {
		opts = append(opts, testplane.LoadReports())
	}
	if opt := policyOption(c.policy); opt != nil {
		opts = append(opts, opt)
	}
	m := xdstest.Cluster(c.name, c.edsName, opts...)
	if c.maxRetries != 0 {
		m.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRetries: wrapperspb.UInt32(c.maxRetries)}}}
	}
	if c.checked {
		m.HealthChecks = []*corev3.HealthCheck{{HealthChecker: &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{}}}}
	}
	if c.outlier {
		m.OutlierDetection = &clusterv3.OutlierDetection{}
	}
	switch c.kind {
	case dns:
		m.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS}
		m.EdsClusterConfig = nil
		first := xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: addrs[c.name+".0"]}}}
		m.LoadAssignment = xdstest.Endpoints(c.name, first)
	case aggregate:
		m.EdsClusterConfig = nil
		m.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: mustAny(&aggregatev3.ClusterConfig{Clusters: c.children}),
		}}
	}
	return m
}

// policyOption sets an LB policy; nil is ROUND_ROBIN.
func policyOption(policy string) testplane.ClusterOption {
	switch policy {
	case leastRequest:
		return testplane.LeastRequest(2)
	case ringHash:
		return testplane.RingHash(64, 1024)
	case wrrRoundRobin:
		return testplane.Policies(testplane.WrrLocality(&roundrobinv3.RoundRobin{}))
	case wrrRandom:
		return testplane.Policies(testplane.WrrLocality(&randomv3.Random{}, &roundrobinv3.RoundRobin{}))
	case wrrLeastRequest:
		return testplane.Policies(testplane.WrrLocality(&leastrequestv3.LeastRequest{ChoiceCount: wrapperspb.UInt32(3)}))
	case wrrPickFirst:
		return testplane.Policies(testplane.WrrLocality(&pickfirstv3.PickFirst{}))
	case clientWeightedRR:
		return testplane.Policies(testplane.WrrLocality(&clientwrrv3.ClientSideWeightedRoundRobin{}))
	case plainRoundRobin:
		return testplane.Policies(&roundrobinv3.RoundRobin{})
	case pickFirst:
		return testplane.Policies(&pickfirstv3.PickFirst{})
	case typedRingHash:
		return testplane.Policies(&ringhashv3.RingHash{
			HashFunction:    ringhashv3.RingHash_XX_HASH,
			MinimumRingSize: wrapperspb.UInt64(32), MaximumRingSize: wrapperspb.UInt64(512),
		})
	}
	return nil
}

// endpoints are the cluster's as EDS has them.
func (c *cluster) endpoints(addrs map[string]netip.AddrPort) *endpointv3.ClusterLoadAssignment {
	var list []xdstest.Locality
	for _, l := range c.localities {
		out := xdstest.Locality{Place: xdstest.Place{Region: "r", Zone: l.name}, Priority: l.priority, Weight: l.weight}
		for _, e := range l.endpoints {
			out.Endpoints = append(out.Endpoints, xdstest.Endpoint{Addr: addrs[e.backend], Weight: e.weight, Health: e.health})
		}
		list = append(list, out)
	}
	cla := xdstest.Endpoints(c.edsResource(), list...)
	for i, l := range c.localities {
		if l.weight == 0 {
			cla.Endpoints[i].LoadBalancingWeight = nil
		}
	}
	for _, d := range c.drops {
		if cla.Policy == nil {
			cla.Policy = &endpointv3.ClusterLoadAssignment_Policy{}
		}
		cla.Policy.DropOverloads = append(cla.Policy.DropOverloads, &endpointv3.ClusterLoadAssignment_Policy_DropOverload{
			Category: d.category, DropPercentage: d.fraction.proto(),
		})
	}
	return cla
}
