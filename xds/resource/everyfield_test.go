// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
)

// fieldsOf classifies the fields of a message, by name.
type fieldsOf struct {
	done string // read, or refused
	// named are ignored and reported, in addition to those of ignoredFields.
	named string
	// documented are ignored, as described in supported.md, and not reported.
	documented string
	// none make no difference to the RPCs of a client: they are for servers, Envoy's
	// connections, its logs and statistics, or for HTTP that is not gRPC.
	none string
}

// everyField is all fields of the messages that are read.
var everyField = map[protoreflect.FullName]fieldsOf{
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": {
		done: "rds route_config scoped_routes http_filters common_http_protocol_options xff_num_trusted_hops original_ip_detection_extensions",
		none: "codec_type stat_prefix add_user_agent tracing http1_safe_max_connection_duration http_protocol_options http2_protocol_options " +
			"http3_protocol_options server_name server_header_transformation scheme_header_transformation max_request_headers_kb " +
			"stream_flush_timeout request_headers_timeout drain_timeout drain_timeout_jitter delayed_close_timeout access_log " +
			"access_log_flush_interval flush_access_log_on_new_request access_log_options use_remote_address internal_address_config " +
			"skip_xff_append via generate_request_id preserve_external_request_id always_set_request_id_in_response " +
			"forward_client_cert_details set_current_client_cert_details forward_client_cert_matcher proxy_100_continue " +
			"represent_ipv4_remote_address_as_ipv4_mapped_ipv6 upgrade_configs normalize_path merge_slashes " +
			"path_with_escaped_slashes_action request_id_extension strip_matching_host_port strip_any_host_port " +
			"stream_error_on_invalid_http_message path_normalization_options strip_trailing_host_dot proxy_status_config " +
			"typed_header_validation_config append_x_forwarded_port append_local_overload add_proxy_protocol_connection_state " +
			"forward_proto_config record_route_resolution_stats",
	},
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter": {
		done: "name typed_config config_discovery is_optional disabled",
	},
	"envoy.config.core.v3.HttpProtocolOptions": {
		done: "max_stream_duration",
		none: "idle_timeout max_connection_duration max_connection_duration_jitter max_headers_count max_response_headers_kb " +
			"headers_with_underscores_action max_requests_per_connection",
	},
	"envoy.config.route.v3.RouteConfiguration": {
		done: "name virtual_hosts cluster_specifier_plugins most_specific_header_mutations_wins request_headers_to_add request_headers_to_remove",
		none: "internal_only_headers validate_clusters max_direct_response_body_size_bytes " +
			"ignore_path_parameters_in_path_matching metadata",
	},
	"envoy.config.route.v3.VirtualHost": {
		done: "name domains routes typed_per_filter_config retry_policy hedge_policy request_headers_to_add request_headers_to_remove",
		none: "require_tls virtual_clusters cors include_request_attempt_count include_attempt_count_in_response " +
			"include_is_timeout_retry_header per_request_buffer_limit_bytes request_body_buffer_limit metadata",
	},
	"envoy.config.route.v3.Route": {
		done: "name match route redirect direct_response filter_action non_forwarding_action typed_per_filter_config" +
			" request_headers_to_add request_headers_to_remove",
		none: "metadata decorator tracing per_request_buffer_limit_bytes stat_prefix request_body_buffer_limit",
	},
	"envoy.config.route.v3.RouteMatch": {
		done:  "prefix path safe_regex connect_matcher path_separated_prefix path_match_policy case_sensitive runtime_fraction headers",
		named: "query_parameters",
		none:  "grpc",
	},
	"envoy.config.route.v3.RouteAction": {
		done:  "cluster weighted_clusters retry_policy hash_policy hedge_policy max_stream_duration auto_host_rewrite host_rewrite_literal",
		named: "cluster_header cluster_specifier_plugin inline_cluster_specifier_plugin timeout",
		none: "cluster_not_found_response_code append_x_forwarded_host flush_timeout early_data_policy include_vh_rate_limits cors " +
			"upgrade_configs internal_redirect_policy internal_redirect_action max_internal_redirects",
	},
	"envoy.config.route.v3.RouteAction.MaxStreamDuration": {done: "max_stream_duration grpc_timeout_header_max"},
	"envoy.config.route.v3.RouteAction.HashPolicy": {
		done: "header filter_state terminal", named: "cookie connection_properties query_parameter",
	},
	"envoy.config.route.v3.WeightedCluster": {done: "clusters", none: "total_weight runtime_key_prefix"},
	"envoy.config.route.v3.WeightedCluster.ClusterWeight": {
		done: "name weight typed_per_filter_config cluster_header request_headers_to_add request_headers_to_remove", // without name is refused
	},
	"envoy.config.route.v3.RetryPolicy": {
		done:  "retry_on num_retries retry_host_predicate host_selection_retry_max_attempts retry_back_off per_try_timeout",
		named: "retry_priority",
		none:  "retriable_status_codes", // of HTTP
	},
	"envoy.config.core.v3.HeaderValueOption": {done: "header append append_action keep_empty_value"},
	"envoy.config.core.v3.HeaderValue":       {done: "key value", named: "raw_value"},
	"envoy.config.route.v3.HedgePolicy":      {done: "hedge_on_per_try_timeout", named: "initial_requests"},
	"envoy.extensions.filters.http.fault.v3.HTTPFault": {
		done: "delay abort max_active_faults",
		none: "delay_percent_runtime abort_percent_runtime delay_duration_runtime abort_http_status_runtime max_active_faults_runtime " +
			"response_rate_limit_percent_runtime abort_grpc_status_runtime disable_downstream_cluster_stats filter_metadata",
	},
	"envoy.config.cluster.v3.Cluster": {
		done: "name type cluster_type eds_cluster_config lb_policy load_assignment circuit_breakers outlier_detection common_lb_config health_checks " +
			"transport_socket transport_socket_matches transport_socket_matcher load_balancing_policy lrs_server lrs_report_endpoint_metrics " +
			"ring_hash_lb_config maglev_lb_config least_request_lb_config round_robin_lb_config original_dst_lb_config dns_refresh_rate",
		named: "dns_lookup_family dns_resolvers dns_resolution_config typed_dns_resolver_config metadata", // of clusters by DNS; labels
		none: "alt_stat_name stats_matcher connect_timeout per_connection_buffer_limit_bytes per_connection_buffer_high_watermark_timeout " +
			"max_requests_per_connection upstream_http_protocol_options common_http_protocol_options http_protocol_options " +
			"http2_protocol_options typed_extension_protocol_options dns_jitter dns_failure_refresh_rate respect_dns_ttl " +
			"use_tcp_for_dns_lookups wait_for_warm_on_init cleanup_interval protocol_selection upstream_connection_options " +
			"close_connections_on_host_health_failure ignore_health_on_host_removal track_timeout_budgets track_cluster_stats " +
			"preconnect_policy connection_pool_per_downstream_connection",
	},
	"envoy.config.cluster.v3.Cluster.CommonLbConfig": {
		done:  "zone_aware_lb_config locality_weighted_lb_config override_host_status consistent_hashing_lb_config",
		named: "healthy_panic_threshold",
		none:  "update_merge_window ignore_new_hosts_until_first_hc close_connections_on_host_set_change",
	},
	"envoy.config.cluster.v3.Cluster.CommonLbConfig.ConsistentHashingLbConfig": {
		done: "hash_balance_factor", named: "use_hostname_for_hashing",
	},
	"envoy.config.cluster.v3.CircuitBreakers": {done: "thresholds"},
	"envoy.config.cluster.v3.CircuitBreakers.Thresholds": {
		done:       "priority max_requests max_retries retry_budget",
		documented: "max_connections max_pending_requests",
		none:       "track_remaining max_connection_pools",
	},
	"envoy.config.cluster.v3.CircuitBreakers.Thresholds.RetryBudget": {done: "budget_percent min_retry_concurrency"},
	"envoy.config.cluster.v3.OutlierDetection": {
		done: "interval base_ejection_time max_ejection_percent max_ejection_time enforcing_success_rate success_rate_minimum_hosts " +
			"success_rate_request_volume success_rate_stdev_factor failure_percentage_threshold enforcing_failure_percentage " +
			"failure_percentage_minimum_hosts failure_percentage_request_volume " +
			"consecutive_5xx enforcing_consecutive_5xx consecutive_gateway_failure enforcing_consecutive_gateway_failure " +
			"split_external_local_origin_errors consecutive_local_origin_failure enforcing_consecutive_local_origin_failure",
		named: "enforcing_local_origin_success_rate enforcing_failure_percentage_local_origin",
		none:  "max_ejection_time_jitter successful_active_health_check_uneject_host",
	},
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig":  {done: "eds_config service_name"},
	"envoy.config.cluster.v3.Cluster.CustomClusterType": {done: "name typed_config"},
	"envoy.config.core.v3.HealthStatusSet":              {done: "statuses"},
	"envoy.config.route.v3.HeaderMatcher": {
		done: "name exact_match safe_regex_match range_match present_match prefix_match suffix_match contains_match string_match invert_match",
	},
	"envoy.type.matcher.v3.StringMatcher":                             {done: "exact prefix suffix safe_regex contains custom ignore_case"},
	"envoy.type.matcher.v3.RegexMatcher":                              {done: "regex", none: "google_re2"},
	"envoy.config.route.v3.RouteAction.HashPolicy.Header":             {done: "header_name regex_rewrite"},
	"envoy.config.route.v3.RouteAction.HashPolicy.FilterState":        {done: "key"},
	"envoy.type.matcher.v3.RegexMatchAndSubstitute":                   {done: "pattern substitution"},
	"envoy.config.route.v3.RetryPolicy.RetryBackOff":                  {done: "base_interval max_interval"},
	"envoy.config.route.v3.RetryPolicy.RetryHostPredicate":            {done: "name", none: "typed_config"},
	"envoy.extensions.filters.common.fault.v3.FaultDelay":             {done: "fixed_delay header_delay percentage"},
	"envoy.extensions.filters.http.fault.v3.FaultAbort":               {done: "http_status grpc_status header_abort percentage"},
	"envoy.extensions.filters.network.http_connection_manager.v3.Rds": {done: "config_source route_config_name"},
	"envoy.config.core.v3.RuntimeFractionalPercent":                   {done: "default_value", none: "runtime_key"},
	"envoy.config.core.v3.Metadata":                                   {done: "filter_metadata typed_filter_metadata"},
	"envoy.config.core.v3.Locality":                                   {done: "region zone sub_zone"},
	"envoy.config.core.v3.Address":                                    {done: "socket_address pipe envoy_internal_address"},
	"envoy.config.core.v3.SocketAddress": {
		done: "address port_value named_port resolver_name", none: "protocol ipv4_compat network_namespace_filepath",
	},
	"envoy.config.endpoint.v3.ClusterLoadAssignment.Policy.DropOverload": {done: "category drop_percentage"},
	"envoy.config.endpoint.v3.Endpoint.AdditionalAddress":                {done: "address"},
	"envoy.config.endpoint.v3.LocalityLbEndpoints.LbEndpointList":        {done: "lb_endpoints"},
	"envoy.config.endpoint.v3.ClusterLoadAssignment":                     {done: "cluster_name endpoints policy", documented: "named_endpoints"},
	"envoy.config.endpoint.v3.ClusterLoadAssignment.Policy": {
		done: "drop_overloads", documented: "overprovisioning_factor endpoint_stale_after weighted_priority_health",
	},
	"envoy.config.endpoint.v3.LocalityLbEndpoints": {
		done: "locality metadata lb_endpoints load_balancer_endpoints leds_cluster_locality_config load_balancing_weight priority", none: "proximity",
	},
	"envoy.config.endpoint.v3.LbEndpoint": {done: "endpoint endpoint_name health_status metadata load_balancing_weight"},
	"envoy.config.endpoint.v3.Endpoint": {
		done: "address hostname additional_addresses", documented: "health_check_config", none: "observability_name",
	},
}

// checkedElsewhere are messages inside of those of everyField, with the reason why their own fields
// are not listed.
var checkedElsewhere = map[protoreflect.FullName]string{
	"envoy.config.cluster.v3.LoadBalancingPolicy":                              "xds/lbpolicy lists its fields",
	"envoy.config.cluster.v3.Cluster.RingHashLbConfig":                         "xds/lbpolicy lists its fields",
	"envoy.config.cluster.v3.Cluster.MaglevLbConfig":                           "xds/lbpolicy lists its fields",
	"envoy.config.cluster.v3.Cluster.LeastRequestLbConfig":                     "xds/lbpolicy lists its fields",
	"envoy.config.cluster.v3.Cluster.RoundRobinLbConfig":                       "xds/lbpolicy lists its fields",
	"envoy.config.cluster.v3.Cluster.CommonLbConfig.ZoneAwareLbConfig":         "xds/lbpolicy lists its fields",
	"envoy.config.cluster.v3.Cluster.OriginalDstLbConfig":                      "the type of cluster is rejected",
	"envoy.config.cluster.v3.Cluster.TransportSocketMatch":                     "rejected",
	"envoy.config.core.v3.TransportSocket":                                     "TestTLSRefused",
	"envoy.config.core.v3.HealthCheck":                                         "supported.md: only grpc_health_check applies",
	"envoy.config.core.v3.ConfigSource":                                        "only ads and self are accepted",
	"envoy.config.core.v3.ExtensionConfigSource":                               "rejected",
	"envoy.config.core.v3.TypedExtensionConfig":                                "the extension is rejected",
	"envoy.config.route.v3.ClusterSpecifierPlugin":                             "such routes are omitted",
	"envoy.config.route.v3.RouteMatch.ConnectMatcher":                          "rejected",
	"envoy.config.route.v3.RedirectAction":                                     "RPCs of the route fail",
	"envoy.config.route.v3.DirectResponseAction":                               "RPCs of the route fail",
	"envoy.config.route.v3.FilterAction":                                       "RPCs of the route fail",
	"envoy.config.route.v3.NonForwardingAction":                                "it has no fields",
	"envoy.config.endpoint.v3.LedsClusterLocalityConfig":                       "rejected",
	"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes": "rejected",
	"envoy.extensions.filters.http.fault.v3.FaultAbort.HeaderAbort":            "it has no fields",
	"envoy.extensions.filters.common.fault.v3.FaultDelay.HeaderDelay":          "it has no fields",
	"envoy.config.core.v3.Pipe":                                                "rejected",
	"envoy.config.core.v3.EnvoyInternalAddress":                                "rejected",
	"envoy.config.cluster.v3.Cluster.CommonLbConfig.LocalityWeightedLbConfig":  "it has no fields",
}

// TestEveryField: each field of the messages that are read is done, or ignored for a reason
// that somebody has thought of. A field that a new version of the messages has is not. The same
// holds for the messages inside of them.
func TestEveryField(t *testing.T) {
	docs := supportedDocs(t)
	for name, of := range everyField {
		message := messageOf(t, name)
		named := append(strings.Fields(of.named), namesOf(ignoredFields[name])...)
		known := slices.Concat(named, strings.Fields(of.done), strings.Fields(of.documented), strings.Fields(of.none))
		for i := range message.Fields().Len() {
			f := string(message.Fields().Get(i).Name())
			k := slices.Index(known, f)
			if k < 0 {
				t.Errorf("%s.%s is neither done, nor named, nor known to make no difference", message.Name(), f)
				continue
			}
			known = slices.Delete(known, k, k+1)
		}
		if len(known) > 0 {
			t.Errorf("%s has no fields %q, or they are listed twice", message.Name(), known)
		}
		for _, f := range append(named, strings.Fields(of.documented)...) {
			if !strings.Contains(docs, "`"+f+"`") {
				t.Errorf("supported.md lacks %s.%s, which is ignored", message.Name(), f)
			}
		}
	}
	for name := range everyField {
		for _, f := range strings.Fields(everyField[name].done) {
			nested := messageOf(t, name).Fields().ByName(protoreflect.Name(f)).Message()
			if nested == nil || nested.IsMapEntry() || !strings.HasPrefix(string(nested.FullName()), "envoy.") ||
				strings.HasPrefix(string(nested.FullName()), "envoy.type.v3.") { // percentages and ranges
				continue
			}
			if _, ok := everyField[nested.FullName()]; !ok && checkedElsewhere[nested.FullName()] == "" {
				t.Errorf("everyField lacks %s, the message of %s.%s", nested.FullName(), name, f)
			}
		}
	}
	for name := range ignoredFields {
		if _, ok := everyField[name]; !ok {
			t.Errorf("everyField lacks %s", name)
		}
	}
}

func messageOf(t *testing.T, name protoreflect.FullName) protoreflect.MessageDescriptor {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	kit.Must(t, err)
	return d.(protoreflect.MessageDescriptor)
}

func namesOf(fields []protoreflect.Name) (names []string) {
	for _, f := range fields {
		names = append(names, string(f))
	}
	return names
}

// randomAssignment returns a message that is valid about half of the time.
func randomAssignment(rnd *rand.Rand) *endpointv3.ClusterLoadAssignment {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: "cluster"[:7*(1-rare(rnd))]}
	for range rnd.IntN(3) {
		m.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: append(m.Policy.GetDropOverloads(), &endpointv3.ClusterLoadAssignment_Policy_DropOverload{
			Category: pick(rnd, "lb", "throttle", "ä"),
			DropPercentage: &typev3.FractionalPercent{
				Numerator:   rnd.Uint32() >> rnd.IntN(32),
				Denominator: typev3.FractionalPercent_DenominatorType(rnd.IntN(3) + 7*rare(rnd)),
			},
		})}
	}
	host := 0
	for l := range rnd.IntN(4) {
		loc := &endpointv3.LocalityLbEndpoints{
			Locality:            &corev3.Locality{Region: pick(rnd, "", "r"), Zone: fmt.Sprint(l * (1 - rare(rnd)))},
			LoadBalancingWeight: wrapperspb.UInt32(rnd.Uint32() >> (1 + rnd.IntN(31)) << rare(rnd)),
			Priority:            uint32(rnd.IntN(2) * l),
		}
		if rare(rnd) == 1 {
			loc.Locality = nil
		}
		if rare(rnd) == 1 {
			loc.LbConfig = &endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig{}
		}
		if rnd.IntN(4) == 0 {
			loc.Metadata = randomMetadata(rnd)
		}
		listed := rnd.IntN(4) == 0 && loc.LbConfig == nil
		for range rnd.IntN(5) {
			e := lbEndpoint(host, 1+rnd.Uint32()>>(rnd.IntN(30)+2))
			host += 1 - rare(rnd)
			e.HealthStatus = corev3.HealthStatus(max(0, rnd.IntN(12)-6))
			at := e.GetEndpoint()
			if rnd.IntN(4) == 0 {
				at.Hostname = pick(rnd, "h1", "h2")
			}
			for range max(0, rnd.IntN(5)-2) {
				at.AdditionalAddresses = append(at.AdditionalAddresses, &endpointv3.Endpoint_AdditionalAddress{
					Address: socketAddress(fmt.Sprintf(pick(rnd, "fe80::%x", "::ffff:1.2.3.%d", "10.0.1.%d"), host), 80),
				})
				host++
			}
			if rnd.IntN(4) == 0 {
				e.Metadata = randomMetadata(rnd)
			}
			if rnd.IntN(3) == 0 {
				e.LoadBalancingWeight = nil
			}
			if rare(rnd) == 1 {
				at.Address = []*corev3.Address{nil, {}, socketAddress("localhost", 1), socketAddress("::1%eth0", 1), socketAddress("1.2.3.04", 1),
					socketAddress("1.2.3.4", 1<<16), {Address: &corev3.Address_Pipe{}}}[rnd.IntN(7)]
			}
			loc.LbEndpoints = append(loc.LbEndpoints, e)
		}
		if listed {
			loc.LbConfig = &endpointv3.LocalityLbEndpoints_LoadBalancerEndpoints{
				LoadBalancerEndpoints: &endpointv3.LocalityLbEndpoints_LbEndpointList{LbEndpoints: loc.LbEndpoints},
			}
			loc.LbEndpoints = loc.LbEndpoints[:min(len(loc.LbEndpoints), rare(rnd))]
		}
		m.Endpoints = append(m.Endpoints, loc)
	}
	return m
}

func randomMetadata(rnd *rand.Rand) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{pick(rnd, "istio", "envoy.lb"): {
		Fields: map[string]*structpb.Value{pick(rnd, "hash_key", "x"): pick(rnd, structpb.NewStringValue("k"), structpb.NewBoolValue(true))},
	}}}
}

func pick[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

// rare returns 1 once in a while.
func rare(rnd *rand.Rand) int {
	if rnd.IntN(40) == 0 {
		return 1
	}
	return 0
}

// scramble encodes a message in another, equivalent way: fields in another order where that
// does not matter, messages in several parts, longer varints than necessary, and unknown
// fields.
func scramble(rnd *rand.Rand, m protoreflect.MessageDescriptor, b []byte) []byte {
	fields := map[protowire.Number][][]byte{}
	var order []protowire.Number
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		value := b[n : n+size]
		b = b[n+size:]
		fd := m.Fields().ByNumber(num)
		field := longTag(rnd, num, typ)
		switch {
		case fd == nil || fd.Kind() != protoreflect.MessageKind || fd.IsMap():
			field = append(field, value...)
		default:
			inner, _ := protowire.ConsumeBytes(value)
			inner = scramble(rnd, fd.Message(), inner)
			if cut := fieldBoundary(rnd, inner); !fd.IsList() {
				field = protowire.AppendBytes(field, inner[:cut])
				field = append(field, longTag(rnd, num, typ)...)
				inner = inner[cut:]
			}
			field = protowire.AppendBytes(field, inner)
		}
		if len(fields[num]) == 0 {
			order = append(order, num)
		}
		fields[num] = append(fields[num], field)
	}
	rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var out []byte
	for _, num := range order {
		for _, f := range fields[num] {
			out = append(out, f...)
			if rnd.IntN(4) == 0 {
				out = protowire.AppendTag(out, protowire.Number(1000+rnd.IntN(100000)), protowire.BytesType)
				out = protowire.AppendString(out, "unknown")
			}
			if rnd.IntN(8) == 0 { // known, but with another wire type
				out = protowire.AppendTag(out, num, protowire.Fixed32Type)
				out = protowire.AppendFixed32(out, rnd.Uint32())
			}
		}
	}
	return out
}

// longTag returns a tag, now and then with an empty byte at its end.
func longTag(rnd *rand.Rand, num protowire.Number, typ protowire.Type) []byte {
	b := protowire.AppendTag(nil, num, typ)
	if rnd.IntN(8) == 0 {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

// fieldBoundary returns a place between two fields of b.
func fieldBoundary(rnd *rand.Rand, b []byte) int {
	at := 0
	for at < len(b) && rnd.IntN(3) > 0 {
		_, _, n := protowire.ConsumeField(b[at:])
		at += n
	}
	return at
}

// mutate damages an encoding somewhere.
func mutate(rnd *rand.Rand, b []byte) []byte {
	if len(b) == 0 {
		return []byte{byte(rnd.Uint32())}
	}
	b = append([]byte(nil), b...)
	i, j := rnd.IntN(len(b)), rnd.IntN(len(b)+1)
	switch rnd.IntN(4) {
	case 0:
		b[i] ^= 1 << rnd.IntN(8)
	case 1:
		b[i] = byte(rnd.Uint32())
	case 2:
		b = b[:j]
	default:
		b = append(b[:i], append(b[min(i, j):max(i, j):max(i, j)], b[i:]...)...)
	}
	return b
}

// nameEndpoints replaces addresses of m by DNS names, which differ as the addresses do.
func nameEndpoints(rnd *rand.Rand, m *endpointv3.ClusterLoadAssignment) {
	for _, loc := range m.Endpoints {
		for _, e := range slices.Concat(loc.LbEndpoints, loc.GetLoadBalancerEndpoints().GetLbEndpoints()) {
			for _, a := range append([]*endpointv3.Endpoint_AdditionalAddress{{Address: e.GetEndpoint().GetAddress()}}, e.GetEndpoint().GetAdditionalAddresses()...) {
				if s := a.GetAddress().GetSocketAddress(); s != nil && rnd.IntN(2) == 0 {
					s.Address = strings.NewReplacer(".", "-", ":", "x").Replace(s.Address) + pick(rnd, "", ".example", ".EXAMPLE.")
					if rare(rnd) == 1 {
						s.Address += pick(rnd, "..", ".9", "-", "%eth0", "ä", ":80")
					}
				}
			}
		}
	}
}
