// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"slices"
	"strings"

	"github.com/xdslb/xdslb/integrate/internal/offline"
	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// A row is a feature that stock rejects, lacks or handles differently.
type row struct {
	loses   bool // stock fails RPCs
	feature string
	effect  string // with stock
	remedy  string // before a roll-back
	find    finder
}

const (
	removeFeature = "have the control plane stop sending it"
	setVariable   = "set the variable in the environment of the program"
)

// rows is the list of features. Each has a case in TestRows, and the facts about stock are those of
// grpc-go 1.85.
var rows = []row{
	{
		true, "a Listener that grpc-go rejects", "it rejects the Listener, and all RPCs of the channel fail",
		removeFeature, byRejection(resource.ListenerType),
	},
	{
		true, "a RouteConfiguration that grpc-go rejects", "it rejects the RouteConfiguration, and all RPCs of the channel fail",
		removeFeature, byRejection(resource.RouteConfigType),
	},
	{
		true, "a Cluster that grpc-go rejects", "it rejects the Cluster, and RPCs to it fail",
		"have the control plane send an LB policy and a cluster type that grpc-go supports", byRejection(resource.ClusterType),
	},
	{
		true, "system_root_certs without GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS=true", "it rejects the Cluster, and RPCs to it fail",
		setVariable, byLeaf(func(in *Input, l *picker.Leaf) bool {
			return l.TLS != nil && l.TLS.SystemRoots && !in.enabled("GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS")
		}),
	},
	{
		true, "an aggregate cluster without one of its children", "the aggregate cluster fails, also if other children have endpoints",
		"have the control plane send the child", missingChildren,
	},
	{
		true, "a disabled fault filter", "it ignores that the filter is disabled, and injects faults",
		removeFeature, disabledFaults,
	},
	{
		true, "an overlay that changes how clusters find their endpoints", "it does not apply the patches, so RPCs may have no endpoints",
		"have the control plane send the patched clusters", byPatch(discovers),
	},
	{
		true, "several targets behind an agent that accepts one stream", "it opens a stream for each target, which displace each other: RPCs of all targets but one fail",
		"connect without the agent, or leave one target to the process", channel(func(in *Input) bool { return in.Targets != nil && in.servers(in.Bootstrap.IsAgent) && in.Targets() > 1 }),
	},
	{
		true, "call_creds in the bootstrap without GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS=true", "it connects to the control plane without call credentials, which that may refuse",
		setVariable, channel(func(in *Input) bool {
			return in.servers((*bootstrap.Server).HasCallCreds) && !in.enabled("GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS")
		}),
	},
	{
		true, "a control plane that serves incremental ADS only", "it has only the state-of-the-world variant, and gets no resources",
		"add the other variant to the control plane", channel((*Input).deltaOnly),
	},
	{
		true, "a source in the process in place of a control plane, or as its fallback", "it cannot read the bootstrap, so channels stay with xdslb",
		"use a bootstrap with control planes only", channel(func(in *Input) bool {
			// Config.Resources.Remember adds a source to a bootstrap that stock can read.
			return in.servers(func(s *bootstrap.Server) bool { return s.Local() && !strings.HasPrefix(s.URI, offline.Remembered) })
		}),
	},

	{
		false, "incremental ADS, by Config.Delta or the bootstrap", "it uses the state-of-the-world variant of ADS, which the control plane has to serve",
		"check that with xdslb check", channel(func(in *Input) bool { return in.delta() && !in.deltaOnly() }),
	},
	{
		false, "Config.Bootstrap without a bootstrap in the environment", "it does not see Config.Bootstrap, so channels stay with xdslb",
		"set GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG", channel(func(in *Input) bool {
			return in.Options.Bootstrap && in.Getenv("GRPC_XDS_BOOTSTRAP") == "" && in.Getenv("GRPC_XDS_BOOTSTRAP_CONFIG") == ""
		}),
	},
	{
		false, "Config.ControlPlaneDialOptions", "it connects to the control plane without these options",
		"", channel(func(in *Input) bool { return in.Options.DialOptions }),
	},
	{
		false, "Config.HealthCheckService", "it does not check the health of endpoints",
		"", channel(func(in *Input) bool { return in.Options.HealthCheckService != "" }),
	},
	{
		false, "Config.RetryThrottling", "it does not throttle retries",
		"", channel(func(in *Input) bool { return in.Options.RetryThrottling }),
	},
	{
		false, "ResourceOptions.KeepDeleted", "it stops using a Listener or Cluster that the control plane deletes",
		"", channel(func(in *Input) bool { return in.Options.KeepDeleted }),
	},
	{
		false, "an overlay", "it does not apply the patches",
		"", byPatch(func(p *Patch) bool { return !discovers(p) }),
	},
	{
		false, "an optional HTTP filter", "it skips the filter",
		"", optionalFilters,
	},
	{
		false, "endpoint weights", "it ignores them: endpoints of a locality have equal shares",
		"", byLeaf(func(_ *Input, l *picker.Leaf) bool {
			return weights.Matter(&picker.Cluster{Leaves: []picker.Leaf{*l}})
		}),
	},
	{
		false, "zone-aware routing", "it ignores zones",
		"", byLeaf(func(in *Input, l *picker.Leaf) bool {
			return l.Policy.ZoneAware != nil && in.Options.LocalCluster != ""
		}),
	},
	{
		false, "slow start", "new endpoints get their whole share at once",
		"", byLeaf(func(_ *Input, l *picker.Leaf) bool { return l.Policy.SlowStart != nil }),
	},
	{
		false, "LEAST_REQUEST in lb_policy", "it chooses among the endpoints of all localities, and ignores the weights of localities",
		"", byLeaf(func(_ *Input, l *picker.Leaf) bool {
			return l.Policy.Kind == picker.PolicyLeastRequest && !l.Policy.Flat && slices.ContainsFunc(l.Priorities, func(p picker.Priority) bool { return len(p.Localities) > 1 })
		}),
	},
	{
		false, "hash_balance_factor", "it ignores it: a hot hash key can overload an endpoint",
		"", byLeaf(func(_ *Input, l *picker.Leaf) bool { return l.Policy.Ring != nil && l.Policy.Ring.BalanceFactor > 0 }),
	},
	{
		false, "an LB policy that grpc-go lacks", "it uses another entry of load_balancing_policy",
		"", byLeaf(func(in *Input, l *picker.Leaf) bool {
			return lacks(&l.Policy) && !in.rejected(resource.ClusterType, l.Name)
		}),
	},
	{
		false, "an LB policy of a child of an aggregate cluster", "it uses the policy of the aggregate cluster for all children",
		"", aggregatePolicies,
	},
	{
		false, "retry_budget or max_retries of circuit breakers", "it does not limit retries",
		"", byLeaf(func(_ *Input, l *picker.Leaf) bool { return l.Retries != nil }),
	},
	{
		false, "Config.DefaultMaxRequests", "it refuses RPCs above 1024 in flight to a cluster without max_requests",
		"", byLeaf(func(in *Input, l *picker.Leaf) bool {
			return l.DefaultLimit && in.Options.DefaultMaxRequests != 0 && in.Options.DefaultMaxRequests != 1024
		}),
	},
	{
		false, "health_checks of clusters", "it does not check the health of endpoints",
		"", byLeaf(func(_ *Input, l *picker.Leaf) bool { return l.HealthCheck != nil }),
	},
	{
		false, "outlier detection by consecutive failures", "it ejects no endpoints by these detectors",
		"", byLeaf(func(_ *Input, l *picker.Leaf) bool { return l.Outlier != nil && l.Outlier.DetectsConsecutive() }),
	},
	{
		false, "sni, auto_host_sni or auto_sni_san_validation without GRPC_EXPERIMENTAL_XDS_SNI=true", "it ignores them, and may accept certificates for other names",
		setVariable, byLeaf(func(in *Input, l *picker.Leaf) bool {
			t := l.TLS
			return t != nil && (t.ServerName != "" || t.AutoHostName || t.MatchServerName) && !in.enabled("GRPC_EXPERIMENTAL_XDS_SNI")
		}),
	},
	{
		false, "spiffe_trust_bundle_map_file without GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE=true", "it ignores the file, and with it trust domains",
		setVariable, channel(func(in *Input) bool { return in.spiffe() && !in.enabled("GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE") }),
	},
	{
		false, "per_try_timeout", "it does not limit attempts",
		"", byRoute(func(_ *Input, r *picker.Route) bool { return r.Retry != nil && r.Retry.PerTryTimeout > 0 }),
	},
	{
		false, "hedge_on_per_try_timeout", "it does not hedge RPCs",
		"", byRoute(func(_ *Input, r *picker.Route) bool { return r.Hedge }),
	},
	{
		false, "previous_hosts in retry policies", "retries may use the endpoint that failed",
		"", byRoute(func(_ *Input, r *picker.Route) bool { return r.Retry != nil && r.Retry.OtherHosts }),
	},
	{
		false, "request_headers_to_add or request_headers_to_remove", "it does not change headers",
		"", byRoute(func(_ *Input, r *picker.Route) bool {
			return len(r.RequestHeaders) > 0 || slices.ContainsFunc(r.Clusters, func(c picker.WeightedCluster) bool { return c.RequestHeaders != nil })
		}),
	},
	{
		false, "host_rewrite_literal", "it does not replace the authority",
		"", byRoute(func(_ *Input, r *picker.Route) bool { return r.Authority != "" }),
	},
	{
		false, "auto_host_rewrite without GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE=true", "it does not replace the authority",
		setVariable, byRoute(func(in *Input, r *picker.Route) bool {
			return r.AutoHostRewrite && !in.enabled("GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE")
		}),
	},
}

// discovers reports whether a patch changes how clusters find their endpoints.
func discovers(p *Patch) bool {
	return p.Kind == "cluster" && slices.ContainsFunc(p.Fields, func(f string) bool {
		return f == "type" || f == "cluster_type" || f == "eds_cluster_config" || f == "load_assignment"
	})
}

// lacks reports whether stock lacks a policy.
func lacks(p *picker.Policy) bool { return !p.Kind.Traits().Stock || p.Subset > 0 }

// missingChildren finds Clusters that the control plane does not send, or that are invalid, and that are
// children of an aggregate cluster: routes do not name them.
func missingChildren(in *Input, at *places) {
	named, aggregates := map[string]bool{in.Options.LocalCluster: true}, false
	for _, c := range in.Config.Clusters {
		named[c.Name] = true
		aggregates = aggregates || len(c.Leaves) > 0 && c.Leaves[0].Name != c.Name
	}
	for i := range in.Resources {
		r := &in.Resources[i]
		gone := r.Updated.IsZero() && r.State != xds.Requested
		if aggregates && gone && r.Type == resource.ClusterType && !named[r.Name] {
			at.add("Cluster " + r.Name)
		}
	}
}

const faultFilter = "envoy.extensions.filters.http.fault.v3.HTTPFault"

// disabledFaults finds fault filters that are disabled, in the Listener, or in routes and clusters.
func disabledFaults(in *Input, at *places) {
	if in.enabled("GRPC_EXPERIMENTAL_XDS_EXT_PROC_ON_CLIENT") || in.enabled("GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ_ON_CLIENT") {
		return
	}
	for i := range in.Config.Filters {
		f := &in.Config.Filters[i]
		if f.Type != faultFilter {
			continue
		}
		if f.Disabled {
			at.add("filter " + f.Name)
		}
		for k := range in.Config.Routes {
			r := &in.Config.Routes[k]
			off := disables(r.Overrides, f.Name) || disables(r.HostOverrides, f.Name)
			if off || slices.ContainsFunc(r.Clusters, func(c picker.WeightedCluster) bool { return disables(c.Overrides, f.Name) }) {
				at.add(routeName(k, r))
			}
		}
	}
}

// disables reports whether overrides disable a filter.
func disables(overrides map[string]any, filter string) bool {
	o, ok := overrides[filter].(resource.FilterOverride)
	return ok && o.Disabled
}

// optionalFilters finds filters that stock lacks, of a Listener that it accepts.
func optionalFilters(in *Input, at *places) {
	if in.rejected(resource.ListenerType, "") {
		return
	}
	for i := range in.Config.Filters {
		if f := &in.Config.Filters[i]; f.Type != faultFilter {
			at.add("filter " + f.Name + ", " + f.Type[strings.LastIndexByte(f.Type, '.')+1:])
		}
	}
}

// aggregatePolicies finds children of aggregate clusters with a policy other than the default.
func aggregatePolicies(in *Input, at *places) {
	for _, c := range in.Config.Clusters {
		for i := range c.Leaves {
			l := &c.Leaves[i]
			if plain := l.Policy.Kind == picker.PolicyEDF || l.Policy.Kind == picker.PolicyRoundRobin; l.Name != c.Name && (!plain || l.Policy.Flat) {
				at.add("Cluster " + l.Name)
			}
		}
	}
}

// servers calls f for each server of the bootstrap until it returns true, and reports whether it did.
func (in *Input) servers(f func(s *bootstrap.Server) bool) bool {
	if in.Bootstrap == nil {
		return false
	}
	if slices.ContainsFunc(in.Bootstrap.Servers, f) {
		return true
	}
	for _, a := range in.Bootstrap.Authorities {
		if slices.ContainsFunc(a.Servers, f) {
			return true
		}
	}
	return false
}

// delta reports whether the client was configured to use incremental ADS.
func (in *Input) delta() bool {
	return in.Options.Delta || in.servers(func(s *bootstrap.Server) bool { return s.Delta })
}

// deltaOnly reports whether the client uses incremental ADS although it was not configured: a server
// does not implement the other variant.
func (in *Input) deltaOnly() bool {
	return !in.Options.Delta && in.servers(func(s *bootstrap.Server) bool {
		return !s.Delta && !s.Local() && in.Variants[s.URI] == "DeltaAggregatedResources"
	})
}

// spiffe reports whether a certificate provider has a SPIFFE bundle map.
func (in *Input) spiffe() bool {
	if in.Bootstrap != nil {
		for _, p := range in.Bootstrap.CertProviders {
			if p.Files != nil && p.Files.Files().SPIFFEBundleMapFile != "" {
				return true
			}
		}
	}
	return false
}
