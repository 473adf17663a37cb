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

// This file is about what a resource asks for and no channel does. No gRFC names these fields,
// so the resource is accepted (A27); but RPCs do not get what Envoy would give them, and
// somebody should know. TestEveryField knows of each field of these messages whether it is
// done, named here, or of no effect on the RPCs of a client.

// ignoredFields has, for each message, the fields that change what Envoy does with RPCs, and
// are not done. Those that say no (saysNo) are not meant.
var ignoredFields = map[protoreflect.FullName][]protoreflect.Name{
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": {
		"early_header_mutation_extensions", "local_reply_config", "request_timeout", "stream_idle_timeout",
	},
	"envoy.config.route.v3.RouteConfiguration": {
		"vhds", "vhost_header", "ignore_port_in_host_matching", "typed_per_filter_config", "request_mirror_policies",
		"request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove",
	},
	"envoy.config.route.v3.VirtualHost": {
		"matcher", "rate_limits", "request_mirror_policies", "retry_policy_typed_config",
		"request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove",
	},
	"envoy.config.route.v3.Route": {
		"request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove",
	},
	"envoy.config.route.v3.RouteMatch": {"cookies", "dynamic_metadata", "filter_state", "tls_context"},
	"envoy.config.route.v3.RouteAction": {
		"metadata_match", "request_mirror_policies", "priority", "rate_limits", "retry_policy_typed_config",
		"prefix_rewrite", "regex_rewrite", "path_rewrite", "path_rewrite_policy",
		"host_rewrite_literal", "host_rewrite_header", "host_rewrite_path_regex", "host_rewrite",
		"idle_timeout", "max_grpc_timeout", "grpc_timeout_offset",
	},
	"envoy.config.route.v3.RouteAction.MaxStreamDuration": {"grpc_timeout_header_offset"},
	"envoy.config.route.v3.WeightedCluster":               {"header_name", "use_hash_policy"},
	"envoy.config.route.v3.WeightedCluster.ClusterWeight": {
		"metadata_match", "host_rewrite_literal",
		"request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove",
	},
	"envoy.config.route.v3.RetryPolicy": {
		"per_try_idle_timeout", "retry_options_predicates", "rate_limited_retry_back_off",
		"retriable_headers", "retriable_request_headers", "refresh_cluster_on_retry",
	},
	"envoy.config.route.v3.HedgePolicy": {"additional_request_chance"},
	"envoy.extensions.filters.http.fault.v3.HTTPFault": {
		"upstream_cluster", "headers", "downstream_nodes", "response_rate_limit",
	},
	"envoy.config.cluster.v3.Cluster": {
		"health_checks", "upstream_bind_config", "lb_subset_config", "filters", "upstream_config",
	},
	"envoy.config.cluster.v3.CircuitBreakers": {"per_host_thresholds"},
	"envoy.config.cluster.v3.OutlierDetection": {
		"always_eject_one_host", "detect_degraded_hosts", "monitors",
	},
}

// fieldsToName is ignoredFields by descriptors, of what is linked in.
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

// maxIgnored bounds how much a resource can have named, some of which is in its own words.
const maxIgnored = 32

// ignore names something that is asked for and not done.
func (l *problems) ignore(what string) {
	if len(l.ignored) < maxIgnored && !slices.Contains(l.ignored, what) {
		l.ignored = append(l.ignored, what)
	}
}

// ignoreIn names the ignored fields that a message has. Nil has none.
func (l *problems) ignoreIn(m proto.Message) {
	r := m.ProtoReflect()
	if !r.IsValid() {
		return
	}
	d := r.Descriptor()
	for _, f := range fieldsToName()[d.FullName()] {
		if r.Has(f) && !saysNo(r, f) {
			l.ignore(string(d.Name()) + "." + string(f.Name()))
		}
	}
}

// saysNo reports whether a field that is set is a duration of 0, or a wrapped false.
func saysNo(m protoreflect.Message, f protoreflect.FieldDescriptor) bool {
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

// apart runs f, and returns what it names in order, which does not count for the whole.
func (l *problems) apart(f func()) (named []string) {
	whole := l.ignored
	l.ignored = nil
	f()
	named, l.ignored = l.ignored, whole
	slices.Sort(named)
	return named
}

// ignoreOf names what a cluster asks for and is not done.
func (l *problems) ignoreOf(m *clusterv3.Cluster) {
	l.ignoreIn(m)
	l.ignoreIn(m.GetCircuitBreakers())
	l.ignoreIn(m.GetOutlierDetection())
	if m.GetCommonLbConfig().GetHealthyPanicThreshold().GetValue() > 0 {
		l.ignore("CommonLbConfig.healthy_panic_threshold")
	}
	if m.GetCommonLbConfig().GetConsistentHashingLbConfig().GetUseHostnameForHashing() {
		l.ignore("ConsistentHashingLbConfig.use_hostname_for_hashing")
	}
	o := m.GetOutlierDetection()
	for name, asked := range map[string]bool{
		// Envoy ejects by the first by default, and by the second not.
		"consecutive_5xx": o.GetConsecutive_5Xx().GetValue() > 0 &&
			(o.GetEnforcingConsecutive_5Xx() == nil || o.GetEnforcingConsecutive_5Xx().GetValue() > 0),
		"consecutive_gateway_failure":        o.GetEnforcingConsecutiveGatewayFailure().GetValue() > 0,
		"split_external_local_origin_errors": o.GetSplitExternalLocalOriginErrors(),
	} {
		if asked {
			l.ignore("OutlierDetection." + name)
		}
	}
	if m.GetType() == clusterv3.Cluster_LOGICAL_DNS {
		if m.GetDnsLookupFamily() != clusterv3.Cluster_AUTO {
			l.ignore("Cluster.dns_lookup_family")
		}
		if len(m.GetDnsResolvers()) > 0 || m.GetDnsResolutionConfig() != nil || m.GetTypedDnsResolverConfig() != nil {
			l.ignore("Cluster.typed_dns_resolver_config")
		}
	}
}
