// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"os"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
)

func supportedDocs(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../integrate/docs/supported.md")
	kit.Must(t, err)
	return string(b)
}

// place is a resource with a message in it.
func place(t *testing.T, name protoreflect.FullName) (m proto.Message, ignored func() []string) {
	t.Helper()
	hcm, fault := new(hcmv3.HttpConnectionManager), new(faultv3.HTTPFault)
	rc, cluster := new(routev3.RouteConfiguration), new(clusterv3.Cluster)
	fromText(t, rc, `{"name": "r", "virtual_hosts": [{"domains": ["*"], "retry_policy": {"retry_on": "internal"}, "routes": [{"match": {"prefix": "", "headers": [{"name": "x", "present_match": true}]},
		"route": {"weighted_clusters": {"clusters": [{"name": "c", "weight": 1}]}, "max_stream_duration": {}, "hedge_policy": {}, "retry_policy": {"retry_on": "internal"}}}]}]}`)
	fromText(t, cluster, `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "circuit_breakers": {"thresholds": [{"retry_budget": {}}]}, "outlier_detection": {}}`)
	fromText(t, hcm, `{"rds": {"route_config_name": "r", "config_source": {"ads": {}}}}`)
	fromText(t, fault, `{"abort": {"grpc_status": 14}}`)
	host := rc.VirtualHosts[0]
	action := host.Routes[0].GetRoute()
	for _, m := range []proto.Message{
		hcm, fault, fault.Abort, rc, host, host.Routes[0], host.Routes[0].Match, host.Routes[0].Match.Headers[0], action, action.MaxStreamDuration, action.HedgePolicy, action.RetryPolicy,
		action.GetWeightedClusters(), action.GetWeightedClusters().Clusters[0], cluster, cluster.CircuitBreakers, cluster.CircuitBreakers.Thresholds[0].RetryBudget, cluster.OutlierDetection,
	} {
		if m.ProtoReflect().Descriptor().FullName() != name {
			continue
		}
		return m, func() []string {
			switch m.(type) {
			case *hcmv3.HttpConnectionManager, *faultv3.HTTPFault, *faultv3.FaultAbort:
				router := &anypb.Any{TypeUrl: "type.googleapis.com/" + routerType}
				hcm.HttpFilters = []*hcmv3.HttpFilter{
					{Name: "fault", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(t, fault)}},
					{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}},
				}
				l := &listenerv3.Listener{Name: "l", ApiListener: &listenerv3.ApiListener{ApiListener: pack(t, hcm)}}
				return decodeMessage(t, ListenerType, l).(*Listener).Ignored
			case *clusterv3.Cluster, *clusterv3.CircuitBreakers, *clusterv3.CircuitBreakers_Thresholds_RetryBudget, *clusterv3.OutlierDetection:
				return decodeMessage(t, ClusterType, cluster).(*Cluster).Ignored
			}
			return decodeMessage(t, RouteConfigType, rc).(*RouteConfig).VirtualHosts[0].Ignored
		}
	}
	t.Fatalf("%s is nowhere", name)
	return nil, nil
}

func fromText(t *testing.T, m proto.Message, text string) {
	t.Helper()
	kit.Must(t, protojson.Unmarshal([]byte(text), m))
}

func pack(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	kit.Must(t, err)
	return a
}

func decodeMessage(t *testing.T, typ Type, m proto.Message) any {
	t.Helper()
	b, err := proto.Marshal(m)
	kit.Must(t, err)
	v, err := Decode(typ, b, Options{})
	kit.Must(t, err)
	return v
}

// set sets a field to a non-default value.
func set(m proto.Message, f protoreflect.FieldDescriptor) {
	r := m.ProtoReflect()
	switch {
	case f.IsList() && f.Message() != nil:
		r.Mutable(f).List().AppendMutable()
	case f.IsList():
		r.Mutable(f).List().Append(protoreflect.ValueOfString("x"))
	case f.IsMap():
		r.Mutable(f).Map().Mutable(protoreflect.ValueOfString("x").MapKey())
	case f.Message() != nil:
		switch v := r.Mutable(f).Message().Interface().(type) {
		case *durationpb.Duration:
			v.Seconds = 1
		case *wrapperspb.BoolValue:
			v.Value = true
		}
	case f.Kind() == protoreflect.BoolKind:
		r.Set(f, protoreflect.ValueOfBool(true))
	case f.Kind() == protoreflect.EnumKind:
		r.Set(f, protoreflect.ValueOfEnum(1))
	default:
		r.Set(f, protoreflect.ValueOfString("x"))
	}
}

// TestIgnoredFields checks that each ignored field is reported if it is set, that the resource
// is accepted, and that a resource without such fields reports none.
func TestIgnoredFields(t *testing.T) {
	for name, fields := range ignoredFields {
		message := messageOf(t, name)
		if _, ignored := place(t, name); len(ignored()) > 0 {
			t.Errorf("a resource without features has %q ignored", ignored())
		}
		for _, f := range fields {
			m, ignored := place(t, name)
			set(m, message.Fields().ByName(f))
			if list := ignored(); !slices.Equal(list, []string{string(message.Name()) + "." + string(f)}) {
				t.Errorf("%s.%s: %q is named as ignored", message.Name(), f, list)
			}
		}
	}
}

// TestIgnoredRules checks features whose report depends on more than one field, and that
// disabled ones are not reported.
func TestIgnoredRules(t *testing.T) {
	route := func(action string) string {
		return `{"name": "r", "virtual_hosts": [{"domains": ["*"], "routes": [{"match": {"prefix": ""}, "route": {` + action + `}}]}]}`
	}
	cluster := func(more string) string {
		return `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, ` + more + `}`
	}
	for _, tt := range []struct {
		resource proto.Message
		text     string
		want     string // joined by "; "
	}{
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "timeout": "0s", "idle_timeout": "0s", "priority": "DEFAULT"`), ""},
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "timeout": "1s"`), "RouteAction.timeout without max_stream_duration, which limits RPCs (A31)"},
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "timeout": "1s", "max_stream_duration": {"max_stream_duration": "1s"}`), ""},
		{new(routev3.RouteConfiguration), route(`"cluster_header": "x"`), "routes with the cluster specifier cluster_header"},
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "hash_policy": [{"cookie": {"name": "x"}}, {"header": {"header_name": "x-bin"}}, {"header": {"header_name": "x"}}]`), "hash_policy by a binary header; hash_policy by cookie"},
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "retry_policy": {"retry_on": "5xx"}`), `retry_on "5xx", which contains no gRPC status to retry`},
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "retry_policy": {"retry_on": "5xx,unavailable", "per_try_timeout": "1s"}`), ""},
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "retry_policy": {"retry_on": "retriable-4xx", "per_try_timeout": "1s"}`), `RetryPolicy.per_try_timeout without a supported condition in retry_on; retry_on "retriable-4xx", which contains no gRPC status to retry`},
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "retry_policy": {"retry_on": "unavailable", "per_try_timeout": "1s"}, "hedge_policy": {"hedge_on_per_try_timeout": true, "initial_requests": 1}`), ""},
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "retry_policy": {"retry_on": "unavailable"}, "hedge_policy": {"hedge_on_per_try_timeout": true}`), "HedgePolicy.hedge_on_per_try_timeout without RetryPolicy.per_try_timeout"},
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "hedge_policy": {"initial_requests": 2}`), "HedgePolicy.initial_requests"},
		{new(routev3.RouteConfiguration), route(`"cluster": "c", "retry_policy": {"retry_on": "internal", "retry_priority": {"name": "p"}, "retry_host_predicate": [{"name": "x"}]}`), `retry_host_predicate "x"; retry_priority "p"`},
		{new(routev3.RouteConfiguration), `{"name": "r", "virtual_hosts": [{"domains": ["*"], "routes": [{"match": {"prefix": "", "query_parameters": [{"name": "x"}]}, "route": {"cluster": "c"}}]}]}`, "routes with RouteMatch.query_parameters"},
		{new(clusterv3.Cluster), cluster(`"common_lb_config": {"healthy_panic_threshold": {}}, "dns_lookup_family": "V4_ONLY"`), ""},
		{new(clusterv3.Cluster), cluster(`"common_lb_config": {"healthy_panic_threshold": {"value": 50}, "consistent_hashing_lb_config": {"use_hostname_for_hashing": true}}`), "CommonLbConfig.healthy_panic_threshold; ConsistentHashingLbConfig.use_hostname_for_hashing"},
		{new(clusterv3.Cluster), cluster(`"outlier_detection": {"consecutive_5xx": 5, "enforcing_local_origin_success_rate": 100, "always_eject_one_host": false}`), ""},
		{new(clusterv3.Cluster), cluster(`"outlier_detection": {"enforcing_local_origin_success_rate": 100, "enforcing_failure_percentage_local_origin": 1, "split_external_local_origin_errors": true}`), "OutlierDetection.enforcing_failure_percentage_local_origin; OutlierDetection.enforcing_local_origin_success_rate"},
		{new(clusterv3.Cluster), `{"name": "c", "type": "LOGICAL_DNS", "dns_lookup_family": "V4_ONLY", "dns_resolution_config": {}, "load_assignment": {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "x", "port_value": 1}}}}]}]}}`, "Cluster.dns_lookup_family; Cluster.typed_dns_resolver_config"},
		{new(clusterv3.Cluster), cluster(`"metadata": {"filter_metadata": {"com.google.csm.telemetry_labels": {"service_name": "orders"}}}`), "Cluster.metadata com.google.csm.telemetry_labels, which are labels of metrics"},
		{new(clusterv3.Cluster), cluster(`"metadata": {"filter_metadata": {"com.google.csm.telemetry_labels": {}, "istio": {"services": []}}}`), ""},
	} {
		fromText(t, tt.resource, tt.text)
		var got []string
		switch tt.resource.(type) {
		case *clusterv3.Cluster:
			got = decodeMessage(t, ClusterType, tt.resource).(*Cluster).Ignored
		default:
			got = decodeMessage(t, RouteConfigType, tt.resource).(*RouteConfig).VirtualHosts[0].Ignored
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%s: %q is named as ignored, want %q", tt.text, got, tt.want)
		}
	}
}

// TestIgnoredApart checks that a virtual host reports its own features, those of its routes and
// of the RouteConfiguration, but not those of other hosts.
func TestIgnoredApart(t *testing.T) {
	rc := new(routev3.RouteConfiguration)
	fromText(t, rc, `{"name": "r", "response_headers_to_remove": ["x"], "virtual_hosts": [
		{"domains": ["a"], "rate_limits": [{}]},
		{"domains": ["b"], "routes": [{"match": {"prefix": ""}, "route": {"cluster": "c", "prefix_rewrite": "/"}}]}]}`)
	for i, want := range []string{"VirtualHost.rate_limits", "RouteAction.prefix_rewrite"} {
		host := decodeMessage(t, RouteConfigType, rc).(*RouteConfig).VirtualHosts[i]
		if want := []string{want, "RouteConfiguration.response_headers_to_remove"}; !slices.Equal(host.Ignored, want) {
			t.Errorf("host %d: %q, want %q", i, host.Ignored, want)
		}
	}
}

// TestIgnoredFilters: filters that are passed over are named, and so is a session without a
// cookie.
func TestIgnoredFilters(t *testing.T) {
	const session = "type.googleapis.com/envoy.extensions.filters.http.stateful_session.v3.StatefulSession"
	l := new(listenerv3.Listener)
	fromText(t, l, `{"name": "l", "api_listener": {"api_listener": {
		"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"rds": {"route_config_name": "r", "config_source": {"ads": {}}}, "http_filters": [
			{"name": "authz", "is_optional": true, "typed_config": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "t/some.Authz"}},
			{"name": "session", "typed_config": {"@type": "`+session+`", "session_state": {"name": "x", "typed_config": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct"}}}},
			{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}}`)
	want := []string{`StatefulSession.session_state "xds.type.v3.TypedStruct"`, `the optional filter "some.Authz"`}
	if got := decodeMessage(t, ListenerType, l).(*Listener).Ignored; !slices.Equal(got, want) {
		t.Errorf("%q is named as ignored, want %q", got, want)
	}
}
