// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// This file reports unsupported features of a resource. No gRFC mentions these fields, so the
// resource is accepted (A27); but RPCs are not handled as in Envoy, which should be visible to
// operators. TestEveryField checks that each field of these messages is supported, listed here,
// or has no effect on the RPCs of a client.

// ignoredFields has, for each message, the unsupported fields that affect RPCs in Envoy. Fields
// that are disabled (isDisabled) do not count.
var ignoredFields = map[protoreflect.FullName][]protoreflect.Name{
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": {
		"early_header_mutation_extensions", "local_reply_config", "request_timeout", "stream_idle_timeout",
	},
	"envoy.config.route.v3.RouteConfiguration": {
		"vhds", "vhost_header", "ignore_port_in_host_matching", "typed_per_filter_config", "request_mirror_policies",
		"response_headers_to_add", "response_headers_to_remove", "route_specifiers",
	},
	"envoy.config.route.v3.VirtualHost": {
		"matcher", "rate_limits", "request_mirror_policies", "retry_policy_typed_config",
		"response_headers_to_add", "response_headers_to_remove", "route_specifiers",
	},
	"envoy.config.route.v3.Route":      {"response_headers_to_add", "response_headers_to_remove", "route_specifiers"},
	"envoy.config.route.v3.RouteMatch": {"cookies", "dynamic_metadata", "filter_state", "tls_context"},
	"envoy.config.route.v3.RouteAction": {
		"metadata_match", "request_mirror_policies", "priority", "rate_limits", "retry_policy_typed_config",
		"prefix_rewrite", "regex_rewrite", "path_rewrite", "path_rewrite_policy",
		"host_rewrite_header", "host_rewrite_path_regex", "host_rewrite",
		"idle_timeout", "max_grpc_timeout", "grpc_timeout_offset",
	},
	"envoy.config.route.v3.RouteAction.MaxStreamDuration": {"grpc_timeout_header_offset"},
	"envoy.config.route.v3.WeightedCluster":               {"header_name", "use_hash_policy"},
	"envoy.config.route.v3.WeightedCluster.ClusterWeight": {
		"metadata_match", "host_rewrite_literal",
		"response_headers_to_add", "response_headers_to_remove",
	},
	"envoy.config.route.v3.RetryPolicy": {
		"per_try_idle_timeout", "retry_options_predicates", "rate_limited_retry_back_off",
		"retriable_headers", "retriable_request_headers", "refresh_cluster_on_retry",
	},
	"envoy.config.route.v3.HedgePolicy": {"additional_request_chance"},
	"envoy.extensions.filters.http.fault.v3.HTTPFault": {
		"upstream_cluster", "headers", "downstream_nodes", "response_rate_limit",
	},
	"envoy.extensions.filters.http.fault.v3.FaultAbort": {"response_body"},
	"envoy.config.cluster.v3.Cluster": {
		"upstream_bind_config", "lb_subset_config", "filters", "upstream_config", "queuing_policies",
	},
	"envoy.config.route.v3.HeaderMatcher":                            {"treat_missing_header_as_empty"},
	"envoy.config.cluster.v3.CircuitBreakers":                        {"per_host_thresholds"},
	"envoy.config.cluster.v3.CircuitBreakers.Thresholds.RetryBudget": {"budget_interval"},
	"envoy.config.cluster.v3.OutlierDetection": {
		"always_eject_one_host", "detect_degraded_hosts", "monitors",
	},
}

// fieldsToName is ignoredFields by descriptors, for the linked-in messages.
var fieldsToName = sync.OnceValue(func() map[protoreflect.FullName][]protoreflect.FieldDescriptor {
	all := map[protoreflect.FullName][]protoreflect.FieldDescriptor{}
	for message, fields := range ignoredFields {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(message)
		if err != nil {
			continue
		}
		for _, name := range fields {
			if f := d.(protoreflect.MessageDescriptor).Fields().ByName(name); f != nil {
				all[message] = append(all[message], f)
			}
		}
	}
	return all
})

// maxIgnored limits the number of reported features of a resource, some of which contain its
// own texts.
const maxIgnored = 32

// ignore reports an unsupported feature.
func (l *problems) ignore(what string) {
	if len(l.ignored) < maxIgnored && !slices.Contains(l.ignored, what) {
		l.ignored = append(l.ignored, what)
	}
}

// ignoreIn reports the unsupported fields of a message, which may be nil.
func (l *problems) ignoreIn(m proto.Message) {
	r := m.ProtoReflect()
	if !r.IsValid() {
		return
	}
	d := r.Descriptor()
	for _, f := range fieldsToName()[d.FullName()] {
		if r.Has(f) && !isDisabled(r, f) {
			l.ignore(string(d.Name()) + "." + string(f.Name()))
		}
	}
}

// isDisabled reports whether a field that is set is a duration of 0, or a wrapped false.
func isDisabled(m protoreflect.Message, f protoreflect.FieldDescriptor) bool {
	if f.Message() == nil || f.IsList() || f.IsMap() {
		return false
	}
	switch v := m.Get(f).Message().Interface().(type) {
	case *durationpb.Duration:
		return v.AsDuration() == 0
	case *wrapperspb.BoolValue:
		return !v.GetValue()
	}
	return false
}

// apart runs f, and returns its reported features in order, without adding them to those of the
// resource.
func (l *problems) apart(f func()) (named []string) {
	whole := l.ignored
	l.ignored = nil
	f()
	named, l.ignored = l.ignored, whole
	slices.Sort(named)
	return named
}

// ignoreOf reports the unsupported features of a cluster.
func (l *problems) ignoreOf(m *clusterv3.Cluster) {
	l.ignoreIn(m)
	l.ignoreIn(m.GetCircuitBreakers())
	t, _ := thresholds(m.GetCircuitBreakers())
	l.ignoreIn(t.GetRetryBudget())
	l.ignoreIn(m.GetOutlierDetection())
	if m.GetCommonLbConfig().GetHealthyPanicThreshold().GetValue() > 0 {
		l.ignore("CommonLbConfig.healthy_panic_threshold")
	}
	if m.GetCommonLbConfig().GetConsistentHashingLbConfig().GetUseHostnameForHashing() {
		l.ignore("ConsistentHashingLbConfig.use_hostname_for_hashing")
	}
	if labels := m.GetMetadata().GetFilterMetadata()["com.google.csm.telemetry_labels"]; len(labels.GetFields()) > 0 {
		l.ignore("Cluster.metadata com.google.csm.telemetry_labels, which are labels of metrics")
	}
	o := m.GetOutlierDetection()
	for name, asked := range map[string]bool{
		"enforcing_local_origin_success_rate":       o.GetSplitExternalLocalOriginErrors() && o.GetEnforcingLocalOriginSuccessRate().GetValue() > 0,
		"enforcing_failure_percentage_local_origin": o.GetSplitExternalLocalOriginErrors() && o.GetEnforcingFailurePercentageLocalOrigin().GetValue() > 0,
	} {
		if asked {
			l.ignore("OutlierDetection." + name)
		}
	}
	if t := m.GetType(); t == clusterv3.Cluster_LOGICAL_DNS || t == clusterv3.Cluster_STRICT_DNS {
		if m.GetDnsLookupFamily() != clusterv3.Cluster_AUTO {
			l.ignore("Cluster.dns_lookup_family")
		}
		if len(m.GetDnsResolvers()) > 0 || m.GetDnsResolutionConfig() != nil || m.GetTypedDnsResolverConfig() != nil {
			l.ignore("Cluster.typed_dns_resolver_config")
		}
	}
}
