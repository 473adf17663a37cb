// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
)

const leastRequestURL = "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest"

const (
	aggregateURL = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig"
	aggregateOfA = `{"name": "envoy.clusters.aggregate", "typed_config": {"@type": "` + aggregateURL + `", "clusters": ["a"]}}`
)

// cases are patches of one resource, with the resource's expected JSON form.
var cases = []struct {
	name     string
	typ      resource.Type
	resource string
	patches  string // the elements of "patches"
	want     string
	err      string // of the last outcome
}{
	{
		name: "new message", typ: resource.ClusterType, resource: `{"name": "c"}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"outlier_detection": {"consecutive_5xx": 5, "interval": "1.5s"}}}`,
		want:    `{"name": "c", "outlier_detection": {"consecutive_5xx": 5, "interval": "1.5s"}}`,
	}, {
		name: "merged message, JSON names", typ: resource.ClusterType, resource: `{"name": "c", "outlier_detection": {"interval": "3s", "consecutive_5xx": 7}}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"outlierDetection": {"consecutive5xx": null, "enforcingSuccessRate": 50}}}`,
		want:    `{"name": "c", "outlier_detection": {"interval": "3s", "enforcing_success_rate": 50}}`,
	}, {
		name: "removed", typ: resource.ClusterType, resource: `{"name": "c", "lb_policy": "RING_HASH", "outlier_detection": {}}`,
		patches: `{"resource": "cluster", "name": "*", "merge": {"lb_policy": null, "outlier_detection": null}}`,
		want:    `{"name": "c"}`,
	}, {
		name: "list replaced", typ: resource.ClusterType, resource: `{"name": "c", "health_checks": [{"timeout": "1s"}, {"timeout": "2s"}]}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"health_checks": [{"timeout": "3s"}]}}`,
		want:    `{"name": "c", "health_checks": [{"timeout": "3s"}]}`,
	}, {
		name: "oneof replaced", typ: resource.ClusterType, resource: `{"name": "c", "ring_hash_lb_config": {"minimum_ring_size": "7"}}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"maglev_lb_config": {"table_size": "11"}}}`,
		want:    `{"name": "c", "maglev_lb_config": {"table_size": "11"}}`,
	}, {
		name: "oneof, the previous field removed", typ: resource.ClusterType, resource: `{"name": "c", "ring_hash_lb_config": {}}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"maglev_lb_config": {"table_size": "11"}, "ring_hash_lb_config": null}}`,
		want:    `{"name": "c", "maglev_lb_config": {"table_size": "11"}}`,
	}, {
		name: "map by key", typ: resource.ClusterType, resource: `{"name": "c", "metadata": {"filter_metadata": {"a": {"x": 1, "y": {"z": true}}, "b": {}, "d": {"k": 1}}}}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"metadata": {"filter_metadata": {"a": {"x": null, "y": {"w": [1]}}, "b": null, "c": {"n": "s"}}}}}`,
		want:    `{"name": "c", "metadata": {"filter_metadata": {"a": {"y": {"z": true, "w": [1]}}, "c": {"n": "s"}, "d": {"k": 1}}}}`,
	}, {
		name: "Any in a new policy", typ: resource.ClusterType, resource: `{"name": "c"}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "p", "typed_config": {"@type": "` + leastRequestURL + `", "choice_count": 3}}}]}}}`,
		want:    `{"name": "c", "load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "p", "typed_config": {"@type": "` + leastRequestURL + `", "choice_count": 3}}}]}}`,
	}, {
		name: "Any merged", typ: resource.ClusterType, resource: `{"name": "c", "typed_extension_protocol_options": {"k": {"@type": "` + leastRequestURL + `", "choice_count": 3, "enable_full_scan": true}}}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"typed_extension_protocol_options": {"k": {"enable_full_scan": null, "choice_count": 4}}}}`,
		want:    `{"name": "c", "typed_extension_protocol_options": {"k": {"@type": "` + leastRequestURL + `", "choice_count": 4}}}`,
	}, {
		name: "Any of a wrapper", typ: resource.ClusterType, resource: `{"name": "c"}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"typed_extension_protocol_options": {"k": {"@type": "type.googleapis.com/google.protobuf.UInt32Value", "value": 4}}}}`,
		want:    `{"name": "c", "typed_extension_protocol_options": {"k": {"@type": "type.googleapis.com/google.protobuf.UInt32Value", "value": 4}}}`,
	}, {
		name: "Any without a type", typ: resource.ClusterType, resource: `{"name": "c"}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"typed_extension_protocol_options": {"k": {"choice_count": 4}}}}`,
		want:    `{"name": "c"}`,
		err:     `merge.typed_extension_protocol_options["k"]: must have an "@type", since the resource has no value here`,
	}, {
		name: "in order", typ: resource.ClusterType, resource: `{"name": "c", "lb_policy": "RANDOM"}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"lb_policy": "MAGLEV"}}, {"resource": "cluster", "name": "x", "merge": {"lb_policy": "RING_HASH"}}, {"resource": "cluster", "name": "*", "merge": {"lb_policy": "LEAST_REQUEST"}}`,
		want:    `{"name": "c", "lb_policy": "LEAST_REQUEST"}`,
	}, {
		name: "when unset", typ: resource.ClusterType, resource: `{"name": "c", "outlier_detection": {}, "maglev_lb_config": {}}`,
		patches: `{"resource": "cluster", "name": "c", "when_unset": true, "merge": {"outlier_detection": {"interval": "1s"}, "lb_policy": "MAGLEV", "ring_hash_lb_config": {}}}`,
		want:    `{"name": "c", "outlier_detection": {}, "maglev_lb_config": {}, "lb_policy": "MAGLEV"}`,
	}, {
		name: "transport socket changed", typ: resource.ClusterType, resource: `{"name": "c", "transport_socket": {"name": "tls"}}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"transport_socket": {"name": "raw"}, "lb_policy": "MAGLEV"}}`,
		want:    `{"name": "c", "transport_socket": {"name": "tls"}}`,
		err:     `changing the transport socket, the type or the load_assignment of a cluster with a transport socket requires "allow_security_changes": true`,
	}, {
		name: "type changed with transport socket", typ: resource.ClusterType, resource: `{"name": "c", "type": "EDS", "transport_socket": {"name": "tls"}}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"cluster_type": {"name": "envoy.clusters.aggregate"}}}`,
		want:    `{"name": "c", "type": "EDS", "transport_socket": {"name": "tls"}}`,
		err:     `changing the transport socket, the type or the load_assignment of a cluster with a transport socket requires "allow_security_changes": true`,
	}, {
		name: "name verified by auto_host_sni changed", typ: resource.ClusterType,
		resource: `{"name": "c", "type": "LOGICAL_DNS", "transport_socket": {"name": "tls"}, "load_assignment": {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "a.example", "port_value": 1}}}}]}]}}`,
		patches:  `{"resource": "cluster", "name": "c", "merge": {"load_assignment": {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "b.example", "port_value": 1}}}}]}]}}}`,
		want:     `{"name": "c", "type": "LOGICAL_DNS", "transport_socket": {"name": "tls"}, "load_assignment": {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "a.example", "port_value": 1}}}}]}]}}`,
		err:      `changing the transport socket, the type or the load_assignment of a cluster with a transport socket requires "allow_security_changes": true`,
	}, {
		name: "aggregate to EDS", typ: resource.ClusterType, resource: `{"name": "c", "cluster_type": ` + aggregateOfA + `}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"type": "EDS", "lb_policy": "MAGLEV"}}`,
		want:    `{"name": "c", "cluster_type": ` + aggregateOfA + `}`,
		err:     `changing the type of an aggregate cluster, which has the security of its children, requires "allow_security_changes": true`,
	}, {
		name: "aggregate removed", typ: resource.ClusterType, resource: `{"name": "c", "cluster_type": ` + aggregateOfA + `}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"cluster_type": null}}`,
		want:    `{"name": "c", "cluster_type": ` + aggregateOfA + `}`,
		err:     `changing the type of an aggregate cluster, which has the security of its children, requires "allow_security_changes": true`,
	}, {
		name: "aggregate change permitted", typ: resource.ClusterType, resource: `{"name": "c", "cluster_type": ` + aggregateOfA + `}`,
		patches: `{"resource": "cluster", "name": "c", "allow_security_changes": true, "merge": {"type": "EDS"}}`,
		want:    `{"name": "c", "type": "EDS"}`,
	}, {
		name: "children of an aggregate", typ: resource.ClusterType, resource: `{"name": "c", "cluster_type": ` + aggregateOfA + `}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"cluster_type": {"typed_config": {"clusters": ["a", "b"]}}}}`,
		want:    `{"name": "c", "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": {"@type": "` + aggregateURL + `", "clusters": ["a", "b"]}}}`,
	}, {
		name: "transport socket change permitted", typ: resource.ClusterType, resource: `{"name": "c", "transport_socket": {"name": "tls"}}`,
		patches: `{"resource": "cluster", "name": "c", "allow_security_changes": true, "merge": {"transport_socket": null}}`,
		want:    `{"name": "c"}`,
	}, {
		name: "transport socket added", typ: resource.ClusterType, resource: `{"name": "c"}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"transport_socket": {"name": "tls"}}}`,
		want:    `{"name": "c", "transport_socket": {"name": "tls"}}`,
	}, {
		name: "one invalid", typ: resource.ClusterType, resource: `{"name": "c"}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"alt_stat_name": "a"}}, {"resource": "cluster", "name": "c", "merge": {"lb_policy": "CLUSTER_PROVIDED"}}`,
		want:    `{"name": "c", "alt_stat_name": "a"}`,
		err:     `the patched resource is invalid: unsupported`,
	}, {
		name: "same field after an invalid patch", typ: resource.ClusterType, resource: `{"name": "c"}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"alt_stat_name": "a", "lb_policy": "CLUSTER_PROVIDED"}}, {"resource": "cluster", "name": "c", "when_unset": true, "merge": {"alt_stat_name": "a"}}`,
		want:    `{"name": "c", "alt_stat_name": "a"}`,
	}, {
		name: "only possible after an invalid patch", typ: resource.ClusterType, resource: `{"name": "c", "lb_policy": "RANDOM", "typed_extension_protocol_options": {"k": {"@type": "` + leastRequestURL + `", "choice_count": 3}}}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"typed_extension_protocol_options": null, "lb_policy": "CLUSTER_PROVIDED"}}, {"resource": "cluster", "name": "c", "merge": {"typed_extension_protocol_options": {"k": {"choice_count": 4}}}}`,
		want:    `{"name": "c", "lb_policy": "RANDOM", "typed_extension_protocol_options": {"k": {"@type": "` + leastRequestURL + `", "choice_count": 4}}}`,
	}, {
		name: "invalid in the middle", typ: resource.ClusterType, resource: `{"name": "c", "lb_policy": "CLUSTER_PROVIDED"}`,
		patches: `{"resource": "cluster", "name": "c", "merge": {"alt_stat_name": "a"}}, {"resource": "cluster", "name": "c", "merge": {"lb_policy": "MAGLEV"}}`,
		want:    `{"name": "c", "alt_stat_name": "a", "lb_policy": "MAGLEV"}`,
	}, {
		name: "route", typ: resource.RouteConfigType,
		resource: `{"name": "rc", "virtual_hosts": [{"name": "v", "routes": [{"name": "a", "route": {"cluster": "c"}}, {"name": "b", "route": {"cluster": "c"}}]}, {"name": "w", "routes": [{"name": "a"}]}]}`,
		patches:  `{"resource": "route", "name": "rc/v/*", "merge": {"route": {"timeout": "2s"}}}, {"resource": "route_configuration", "name": "rc", "merge": {"ignore_port_in_host_matching": true}}`,
		want:     `{"name": "rc", "ignore_port_in_host_matching": true, "virtual_hosts": [{"name": "v", "routes": [{"name": "a", "route": {"cluster": "c", "timeout": "2s"}}, {"name": "b", "route": {"cluster": "c", "timeout": "2s"}}]}, {"name": "w", "routes": [{"name": "a"}]}]}`,
	}, {
		name: "inline routes", typ: resource.ListenerType,
		resource: `{"name": "l", "api_listener": {"api_listener": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "route_config": {"name": "rc", "virtual_hosts": [{"name": "v", "routes": [{"name": "a"}]}]}}}}`,
		patches:  `{"resource": "route", "name": "rc/v/a", "merge": {"match": {"prefix": "/"}}}`,
		want:     `{"name": "l", "api_listener": {"api_listener": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "route_config": {"name": "rc", "virtual_hosts": [{"name": "v", "routes": [{"name": "a", "match": {"prefix": "/"}}]}]}}}}`,
	}, {
		name: "virtual hosts replaced", typ: resource.RouteConfigType,
		resource: `{"name": "rc", "virtual_hosts": [{"name": "v", "routes": [{"name": "a"}]}]}`,
		patches:  `{"resource": "route_configuration", "name": "rc", "merge": {"virtual_hosts": [{"name": "w", "routes": [{"name": "b"}]}]}}, {"resource": "route", "name": "rc/*/b", "merge": {"match": {"prefix": "/"}}}`,
		want:     `{"name": "rc", "virtual_hosts": [{"name": "w", "routes": [{"name": "b", "match": {"prefix": "/"}}]}]}`,
	}, {
		name: "virtual hosts when unset", typ: resource.RouteConfigType,
		resource: `{"name": "rc", "virtual_hosts": [{"name": "v"}]}`,
		patches:  `{"resource": "route_configuration", "name": "rc", "when_unset": true, "merge": {"virtualHosts": [], "ignore_port_in_host_matching": true}}`,
		want:     `{"name": "rc", "ignore_port_in_host_matching": true, "virtual_hosts": [{"name": "v"}]}`,
	}, {
		name: "policy of endpoints", typ: resource.EndpointsType,
		resource: `{"cluster_name": "c", "endpoints": [{"priority": 1}], "policy": {"overprovisioning_factor": 200, "weighted_priority_health": true}}`,
		patches:  `{"resource": "endpoints", "name": "c", "merge": {"policy": {"overprovisioning_factor": 100}}}`,
		want:     `{"cluster_name": "c", "endpoints": [{"priority": 1}], "policy": {"overprovisioning_factor": 100, "weighted_priority_health": true}}`,
	}, {
		name: "other name", typ: resource.ClusterType, resource: `{"name": "c"}`,
		patches: `{"resource": "cluster", "name": "d*", "merge": {"lb_policy": "MAGLEV"}}`,
		want:    `{"name": "c"}`,
	},
}

// message returns a message of a type.
func message(t resource.Type) proto.Message {
	switch t {
	case resource.ListenerType:
		return new(listenerv3.Listener)
	case resource.RouteConfigType:
		return new(routev3.RouteConfiguration)
	case resource.ClusterType:
		return new(clusterv3.Cluster)
	}
	return new(endpointv3.ClusterLoadAssignment)
}

func fromJSON(t testing.TB, typ resource.Type, text string) proto.Message {
	t.Helper()
	m := message(typ)
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return m
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := marshal(m)
	kit.Must(t, err)
	return b
}

// decoder decodes resources of a type by a rule for tests: the policy CLUSTER_PROVIDED is invalid.
func decoder(t resource.Type) func([]byte) (any, error) {
	return func(value []byte) (any, error) {
		m := message(t)
		if err := proto.Unmarshal(value, m); err != nil {
			return nil, err
		}
		if c, ok := m.(*clusterv3.Cluster); ok && c.LbPolicy == clusterv3.Cluster_CLUSTER_PROVIDED {
			return nil, errors.New("unsupported")
		}
		return m, nil
	}
}

func TestApply(t *testing.T) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			o, err := Parse("test", []byte(`{"patches": [`+tc.patches+`]}`))
			kit.Must(t, err)
			value := encode(t, fromJSON(t, tc.typ, tc.resource))
			name, _ := resource.Name(tc.typ, value)
			result := o.Select("xds:///t").Apply(tc.typ, name, value, decoder(tc.typ))
			want := fromJSON(t, tc.typ, tc.want)
			if unchanged := proto.Equal(want, fromJSON(t, tc.typ, tc.resource)); unchanged != (result.Value == nil) || unchanged != (result.Bytes == nil) {
				t.Errorf("Apply returned %v and %x", result.Value, result.Bytes)
			} else if got, _ := decoder(tc.typ)(result.Bytes); !unchanged && (!proto.Equal(got.(proto.Message), want) || !proto.Equal(result.Value.(proto.Message), want)) {
				t.Errorf("Apply returned %v, want %v", got, want)
			}
			var last error
			for _, out := range result.Outcomes {
				if out.Changed && out.Err != nil {
					t.Errorf("patch %v has changed the resource and failed: %v", out.Patch, out.Err)
				}
				last = out.Err
			}
			if fmt.Sprint(last) != fmt.Sprint(errors.New(tc.err)) && !(last == nil && tc.err == "") {
				t.Errorf("the last outcome has error %v, want %q", last, tc.err)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	one := func(merge string) string {
		return `{"patches": [{"resource": "cluster", "name": "c", "merge": ` + merge + `}]}`
	}
	for _, tc := range []struct{ document, want string }{
		{``, `xdslb: overlay: test: no JSON value`},
		{`{"patches": [}`, `xdslb: overlay: test: invalid JSON at byte 14: invalid character '}' looking for beginning of value`},
		{`{"patches": [{}, {"merge": {"a": [1, {"b": 1, "c": {}, "b": 2}]}}]}`, `xdslb: overlay: test: patches[1].merge.a[1].b: set twice`},
		{`{"patches": ` + strings.Repeat(`[{"":`, 32) + `[]` + strings.Repeat(`}]`, 32) + `}`, `xdslb: overlay: test: patches` + strings.Repeat(`[0].`, 31) + `[0]: must be nested at most 64 levels deep`},
		{`{"patches": []} x`, `xdslb: overlay: test: invalid JSON at byte 16: data after the document`},
		{`{"patch": []}`, `xdslb: overlay: test: json: unknown field "patch"`},
		{`{"patches": [{"resource": "cluster", "name": "c", "merge": {"lb_policy": 1}}, {"Resource": 1}]}`, `xdslb: overlay: test: patches[1]: json: cannot unmarshal number into Go struct field .resource of type string`},
		{`{"patches": [{"resource": "clusters"}]}`, `xdslb: overlay: test: patches[0].resource: "clusters": must be "listener", "route_configuration", "route", "cluster" or "endpoints"`},
		{`{"patches": [{"resource": "cluster"}]}`, `xdslb: overlay: test: patches[0].name: must be set; "*" matches all names`},
		{`{"patches": [{"resource": "cluster", "name": "c"}]}`, `xdslb: overlay: test: patches[0].merge: must be a JSON object`},
		{`{"patches": [{"resource": "endpoints", "name": "c", "merge": {"endpoints": []}}]}`, `xdslb: overlay: test: patches[0].merge.endpoints: only the policy of endpoints can be patched`},
		{one(`{}`), `xdslb: overlay: test: patches[0].merge: must have at least one field`},
		{one(`[]`), `xdslb: overlay: test: patches[0].merge: must be a JSON object`},
		{one(`{"name": "d"}`), `xdslb: overlay: test: patches[0].merge.name: must not be set: names cannot be patched`},
		{one(`{"transport_socket": null}`), `xdslb: overlay: test: patches[0].merge.transport_socket: removing it requires "allow_security_changes": true`},
		{one(`{"outlier_detecton": {}}`), `xdslb: overlay: test: patches[0].merge.outlier_detecton: envoy.config.cluster.v3.Cluster has no such field`},
		{one(`{"outlier_detection": {"intervall": "1s"}}`), `xdslb: overlay: test: patches[0].merge.outlier_detection.intervall: envoy.config.cluster.v3.OutlierDetection has no such field`},
		{one(`{"outlier_detection": {"interval": 1}}`), `xdslb: overlay: test: patches[0].merge.outlier_detection.interval: unexpected token 1`},
		{one(`{"outlier_detection": 1}`), `xdslb: overlay: test: patches[0].merge.outlier_detection: unexpected token 1`},
		{one(`{"outlier_detection": {"consecutive_5xx": -1}}`), `xdslb: overlay: test: patches[0].merge.outlier_detection.consecutive_5xx: invalid value for uint32 field value: -1`},
		{one(`{"lb_policy": "BEST"}`), `xdslb: overlay: test: patches[0].merge.lb_policy: invalid value for enum field lbPolicy: "BEST"`},
		{one(`{"lb_policy": 1, "lbPolicy": 2}`), `xdslb: overlay: test: patches[0].merge.lb_policy: set twice`},
		{one(`{"ring_hash_lb_config": {}, "maglev_lb_config": {}}`), `xdslb: overlay: test: patches[0].merge.maglev_lb_config: at most one field of oneof lb_config can be set, and ring_hash_lb_config is set, too`},
		{one(`{"metadata": {"filter_metadata": {"k": 7}}}`), `xdslb: overlay: test: patches[0].merge.metadata.filter_metadata["k"]: unexpected token 7`},
		{one(`{"typed_extension_protocol_options": {"k": {"@type": "example.com/no.such.Type"}}}`), `xdslb: overlay: test: patches[0].merge.typed_extension_protocol_options["k"].@type: unknown type "example.com/no.such.Type"`},
		{one(`{"typed_extension_protocol_options": {"k": {"@type": 1}}}`), `xdslb: overlay: test: patches[0].merge.typed_extension_protocol_options["k"].@type: must be a type URL`},
	} {
		o, err := Parse("test", []byte(tc.document))
		if o != nil || err == nil || err.Error() != tc.want {
			t.Errorf("Parse(%s) returned error\n%v, want\n%s", tc.document, err, tc.want)
		}
	}
}

func TestSelect(t *testing.T) {
	o, err := Parse("test", []byte(`{"patches": [
		{"resource": "cluster", "name": "a", "target": "xds:///shop*", "merge": {"lb_policy": "MAGLEV"}},
		{"resource": "cluster", "name": "b", "target": "*cart", "merge": {"lb_policy": "MAGLEV"}}]}`))
	kit.Must(t, err)
	both, shop := o.Select("xdslb:///shop.cart"), o.Select("xds:///shop.a")
	if o.Select("xds:///other") != nil || (*Overlay)(nil).Select("x") != nil {
		t.Error("Select returns a Selection without patches")
	}
	none, name := Key{}, "b"
	if both.Key(resource.ClusterType, name) == none || shop.Key(resource.ClusterType, name) != none || shop.Key(resource.EndpointsType, "a") != none {
		t.Error("Key does not respect the target or the type")
	}
	if n := testing.AllocsPerRun(100, func() { both.Key(resource.ClusterType, name) }); n != 0 {
		t.Errorf("Key allocates %v times", n)
	}
	// The keys of a resource depend on its own patches only.
	other, err := Parse("other", []byte(`{"patches": [
		{"resource": "cluster", "name": "new", "merge": {"lb_policy": "RANDOM"}},
		{"resource": "cluster", "name": "a", "merge": {"lb_policy": "MAGLEV"}},
		{"resource": "cluster", "name": "b", "when_unset": true, "merge": {"lb_policy": "MAGLEV"}}]}`))
	kit.Must(t, err)
	all := other.Select("")
	if all.Key(resource.ClusterType, "a") != both.Key(resource.ClusterType, "a") || all.Key(resource.ClusterType, "b") == both.Key(resource.ClusterType, "b") {
		t.Error("Key does not identify the patches of a resource")
	}
	if got := all.Locate([]Outcome{{Patch: both.byKind[cluster][0].ref}})[0].Patch.String(); got != "other: patches[1]" {
		t.Errorf("Locate returned %s", got)
	}
	if len(o.Patches()) != 2 || o.Patches()[1].Target != "*cart" {
		t.Errorf("Patches returned %+v", o.Patches())
	}
}

// Globs match like the regular expression that has ".*" in place of each "*".
func TestGlob(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(alphabet string, n int) string {
		b := make([]byte, r.IntN(n))
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	// Matching is linear: a quadratic algorithm would take hours for these.
	const long = 1 << 20
	if text := strings.Repeat("a", 2*long); glob("*"+strings.Repeat("a", long)+"b*").match(text) || glob(strings.Repeat("*a", long)+"b").match(text) || !glob(strings.Repeat("*a", long)).match(text) {
		t.Error("a long pattern has another result")
	}
	matches := 0
	for range 20000 {
		g, s := draw("ab/*", 8), draw("ab/", 8)
		want := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(g), `\*`, ".*") + "$").MatchString(s)
		if got := glob(g).match(s); got != want {
			t.Fatalf("glob(%q).match(%q) = %t", g, s, got)
		}
		if want {
			matches++
		}
		for i := range len(s) + 1 {
			if want && !glob(g).mayMatchPrefix(s[:i]) {
				t.Fatalf("glob(%q) matches %q and mayMatchPrefix(%q) is false", g, s, s[:i])
			}
		}
	}
	if matches < 1000 {
		t.Errorf("only %d matches", matches)
	}
}

// The merge of messages is the merge of their JSON forms, wherever the latter is a message.
func TestMergeAgainstJSON(t *testing.T) {
	values := []string{
		`{"outlier_detection": {"interval": "3s", "consecutive_5xx": 7}}`, `{"outlier_detection": {}}`,
		`{"metadata": {"filter_metadata": {"a": {"x": 1, "y": {"z": [true]}}, "b": {}}}}`,
		`{"lb_policy": "MAGLEV", "connect_timeout": "2s"}`, `{"eds_cluster_config": {"service_name": "s", "eds_config": {"ads": {}}}}`,
		`{"health_checks": [{"timeout": "1s"}], "ring_hash_lb_config": {"minimum_ring_size": "7"}}`,
		`{"circuit_breakers": {"thresholds": [{"max_requests": 5}]}, "track_cluster_stats": {"request_response_sizes": true}}`,
		`{"metadata": {"filter_metadata": {"a": {"x": {"deep": {"er": 1}}}}}, "outlier_detection": {"consecutive_5xx": 9}}`,
		`{"upstream_connection_options": {"tcp_keepalive": {"keepalive_time": 4}}, "lb_policy": "RANDOM"}`,
	}
	patches := append([]string{
		`{"outlier_detection": null, "lb_policy": null}`, `{"metadata": {"filter_metadata": {"a": null}}}`,
		`{"metadata": {"filter_metadata": {"a": {"y": {"z": null}, "x": {"deep": null}}}}}`,
		`{"eds_cluster_config": {"service_name": null}, "connect_timeout": null, "health_checks": null}`,
		`{"outlier_detection": {"interval": null}, "circuit_breakers": {"thresholds": []}}`,
	}, values...)
	compared := 0
	for _, v := range values {
		for _, v2 := range values {
			for _, p := range patches {
				var a, b, c any
				for text, to := range map[string]*any{v: &a, p: &c} {
					kit.Must(t, json.Unmarshal([]byte(text), to))
				}
				_ = json.Unmarshal([]byte(v2), &b)
				target, _ := json.Marshal(mergeJSON(a, b))
				m := new(clusterv3.Cluster)
				if protojson.Unmarshal(target, m) != nil {
					continue // both fields of a oneof
				}
				var merged any
				_ = json.Unmarshal(target, &merged)
				text, _ := json.Marshal(mergeJSON(merged, c))
				want := new(clusterv3.Cluster)
				if protojson.Unmarshal(text, want) != nil {
					continue
				}
				if err := (&merger{}).message(m.ProtoReflect(), json.RawMessage(p), ""); err != nil {
					t.Fatalf("%v: %s into %s", err, p, target)
				}
				if !proto.Equal(m, want) {
					t.Fatalf("merge of %s into %s\n is %v,\nwant %v", p, target, m, want)
				}
				compared++
			}
		}
	}
	if compared < 500 {
		t.Errorf("only %d merges compared", compared)
	}
}

// Messages of types that the program does not have survive a patch elsewhere in the resource.
func TestUnknownTypesSurvive(t *testing.T) {
	o, err := Parse("test", []byte(`{"patches": [{"resource": "cluster", "name": "c", "merge": {"lb_policy": "MAGLEV"}}]}`))
	kit.Must(t, err)
	strange := &anypb.Any{TypeUrl: "type.googleapis.com/no.such.Type", Value: []byte("\x01")}
	c := &clusterv3.Cluster{Name: "c", TypedExtensionProtocolOptions: map[string]*anypb.Any{"k": strange}}
	result := o.Select("").Apply(resource.ClusterType, "c", encode(t, c), decoder(resource.ClusterType))
	got := new(clusterv3.Cluster)
	if err := proto.Unmarshal(result.Bytes, got); err != nil || !proto.Equal(got.TypedExtensionProtocolOptions["k"], strange) || got.LbPolicy != clusterv3.Cluster_MAGLEV {
		t.Errorf("patched to %v, %v", got, err)
	}
}

// A resource that no patch changes is not decoded again.
func TestUnchanged(t *testing.T) {
	o, err := Parse("test", []byte(`{"patches": [{"resource": "cluster", "name": "*", "merge": {"lb_policy": "MAGLEV"}},
		{"resource": "endpoints", "name": "*", "merge": {"policy": {"overprovisioning_factor": 1}}}]}`))
	kit.Must(t, err)
	for typ, m := range map[resource.Type]proto.Message{
		resource.ClusterType:   &clusterv3.Cluster{LbPolicy: clusterv3.Cluster_MAGLEV},
		resource.EndpointsType: &endpointv3.ClusterLoadAssignment{Policy: &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(1)}},
	} {
		result := o.Select("").Apply(typ, "c", encode(t, m), func([]byte) (any, error) { panic("must not be called") })
		if result.Value != nil || result.Bytes != nil {
			t.Errorf("%v was replaced by %x", typ, result.Bytes)
		}
		for _, out := range result.Outcomes {
			if out.Changed || out.Err != nil {
				t.Errorf("outcome %+v", out)
			}
		}
	}
}
