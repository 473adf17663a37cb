// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"slices"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/xdslb/xdslb/picker"
)

// hostDefaults are the defaults that a virtual host sets for its routes. The routes share them:
// a copy for each would take memory proportional to the product.
type hostDefaults struct {
	retry     *picker.RetryPolicy
	hedge     bool
	overrides map[string]any
	headers   headerLevels
}

// route converts a route. It returns false if the route must be skipped, as A28 requires for
// routes that a client cannot use, or that match no RPC.
func (d *decoder) route(m *routev3.Route, host hostDefaults, p *path) (r picker.Route, keep bool) {
	if len(m.GetMatch().GetQueryParameters()) > 0 { // RPCs have no query parameters
		d.ignore("routes with RouteMatch.query_parameters")
		return r, false
	}
	d.ignoreIn(m)
	r.Name = m.GetName()
	keep = d.match(m.GetMatch(), &r, p.dot("match"))
	r.Overrides = d.overrides(m.GetTypedPerFilterConfig(), p.dot("typed_per_filter_config"))
	r.Retry, r.Hedge, r.HostOverrides = host.retry, host.hedge, host.overrides
	r.RequestHeaders = host.headers.of(d.headerMutations(m, p))

	// Any other action leaves the route without clusters: RPCs that match it fail (A36).
	if action, ok := m.GetAction().(*routev3.Route_Route); ok {
		keep = d.action(action.Route, &r, p.dot("route")) && keep
	}
	return r, keep
}

// action converts a route action. It returns false if there is no supported cluster specifier
// (A28, T-RC-6).
func (d *decoder) action(m *routev3.RouteAction, r *picker.Route, p *path) (keep bool) {
	switch m.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		name := p.dot("cluster").nonEmpty(m.GetCluster())
		r.Clusters = []picker.WeightedCluster{{Name: name, Weight: 1}}
	case *routev3.RouteAction_WeightedClusters:
		r.Clusters = d.weightedClusters(m.GetWeightedClusters(), p.dot("weighted_clusters"))
	default:
		d.ignore("routes with the cluster specifier " + specifierOf(m))
		return false
	}
	d.ignoreIn(m)
	d.ignoreIn(m.GetMaxStreamDuration())
	r.Hash = d.hashPolicies(m.GetHashPolicy(), p.dot("hash_policy"))
	r.AutoHostRewrite = d.opt.TrustedServer && m.GetAutoHostRewrite().GetValue()
	r.Authority = d.authority(m.GetHostRewriteLiteral(), p.dot("host_rewrite_literal"))
	r.Timeout = timeout(m.GetMaxStreamDuration(), p.dot("max_stream_duration"))
	if m.GetRetryPolicy() != nil {
		r.Retry = retryPolicy(m.GetRetryPolicy(), p.dot("retry_policy"))
	}
	if m.GetHedgePolicy() != nil {
		r.Hedge = hedges(m.GetHedgePolicy(), p)
	}
	if r.Timeout == nil && m.GetTimeout().AsDuration() > 0 {
		d.ignore("RouteAction.timeout without max_stream_duration, which limits RPCs (A31)")
	}
	if r.Hedge && (r.Retry == nil || r.Retry.PerTryTimeout == 0) {
		r.Hedge = false
		d.ignore("HedgePolicy.hedge_on_per_try_timeout without RetryPolicy.per_try_timeout")
	}
	return true
}

// authority returns the authority that replaces that of RPCs (A111). Like auto_host_rewrite (A81), it
// requires a trusted server.
func (d *decoder) authority(literal string, p *path) string {
	switch {
	case literal == "":
	case !d.opt.TrustedServer:
		d.ignore("RouteAction.host_rewrite_literal of a server without trusted_xds_server")
		return ""
	case len(literal) > maxHeaderText:
		p.refuse(len(literal), "must have at most 16384 bytes")
	case strings.ContainsFunc(literal, func(r rune) bool { return !isAuthority(r) }):
		p.refuse(literal, "must be the authority of a URI, without user information")
	}
	return literal
}

// isAuthority reports whether an authority may contain a character (RFC 3986, section 3.2).
func isAuthority(r rune) bool {
	return 'A' <= r && r <= 'Z' || isMetadataKey(r) || strings.ContainsRune("~!$&'()*+,;=:[]%", r)
}

// specifierOf returns the name of a cluster specifier.
func specifierOf(m *routev3.RouteAction) string {
	r := m.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().ByName("cluster_specifier")); f != nil {
		return string(f.Name())
	}
	return "(unknown)"
}

// weightedClusters skips clusters without weight.
func (d *decoder) weightedClusters(m *routev3.WeightedCluster, p *path) []picker.WeightedCluster {
	d.ignoreIn(m)
	clusters := make([]picker.WeightedCluster, 0, len(m.GetClusters()))
	var sum uint64
	for i, c := range m.GetClusters() {
		p := p.dot("clusters").at(i)
		weight := c.GetWeight().GetValue()
		if weight == 0 {
			continue
		}
		d.ignoreIn(c)
		sum += uint64(weight)
		clusters = append(clusters, picker.WeightedCluster{
			Name:           p.dot("name").nonEmpty(c.GetName()),
			Weight:         weight,
			Overrides:      d.overrides(c.GetTypedPerFilterConfig(), p.dot("typed_per_filter_config")),
			RequestHeaders: d.headerMutations(c, p),
		})
	}
	switch {
	case sum == 0:
		p.dot("clusters").fail("must have a weight above 0")
	case sum > math.MaxUint32:
		p.dot("clusters").refuse(sum, "must have weights whose sum is at most 4294967295")
	}
	return slices.Clip(clusters)
}

// timeout returns the limit that a route sets for the duration of RPCs: 0 means no limit, nil
// inherits the listener's (A31). RouteAction.timeout does not apply to gRPC.
func timeout(m *routev3.RouteAction_MaxStreamDuration, p *path) *time.Duration {
	stream := p.dot("max_stream_duration").duration(m.GetMaxStreamDuration())
	header := p.dot("grpc_timeout_header_max").duration(m.GetGrpcTimeoutHeaderMax())
	switch {
	case m.GetGrpcTimeoutHeaderMax() != nil:
		return &header
	case m.GetMaxStreamDuration() != nil:
		return &stream
	}
	return nil
}
