// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
)

// routesTo returns an encoded RouteConfiguration with n routes to a cluster.
func routesTo(t testing.TB, cluster string, n int) []byte {
	t.Helper()
	host := &routev3.VirtualHost{Name: "v", Domains: []string{"*"}}
	same := &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/admin"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
	}
	for range n {
		host.Routes = append(host.Routes, same)
	}
	return encode(t, &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{host}})
}

// inlined returns a Listener with encoded fields in its HttpConnectionManager.
func inlined(t testing.TB, name string, more []byte) []byte {
	t.Helper()
	pack := func(m proto.Message) *anypb.Any {
		return &anypb.Any{TypeUrl: "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()), Value: encode(t, m)}
	}
	http := pack(&hcmv3.HttpConnectionManager{HttpFilters: []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})}}}})
	http.Value = append(http.Value, more...)
	return encode(t, &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: http}})
}

// TestManyRoutes checks that patches apply to route configurations of any size that the client accepts,
// in resources of their own and in Listeners: otherwise a control plane could add routes to be rid of
// patches. The exception are patches that replace all virtual hosts, which report it.
func TestManyRoutes(t *testing.T) {
	const patches = `{"resource": "route", "name": "r/*", "merge": {"route": {"cluster": "patched"}}}, {"resource": "route_configuration", "name": "r", "merge": {"ignore_port_in_host_matching": true}}`
	const replace = `{"resource": "route_configuration", "name": "r", "merge": {"virtual_hosts": []}}, {"resource": "listener", "name": "l", "merge": {"stat_prefix": "s"}}`
	const n = 53_000 // which have more than 2^18 fields
	for _, r := range []struct {
		typ   resource.Type
		name  string
		value []byte
	}{
		{resource.RouteConfigType, "r", routesTo(t, "c", n)},
		{resource.ListenerType, "l", inlined(t, "l", appendField(nil, inlineField, routesTo(t, "c", n)))},
	} {
		decode := func(b []byte) (any, error) { return resource.Decode(r.typ, b, resource.Options{}) }
		if _, err := decode(r.value); err != nil {
			t.Fatalf("the client does not accept the %v: %v", r.typ, err)
		}
		apply := func(patches string) Result {
			o, err := Parse("test", []byte(`{"patches": [`+patches+`]}`))
			kit.Must(t, err)
			return o.Select("xds:///t").Apply(r.typ, r.name, r.value, decode)
		}
		result := apply(patches)
		rc, _ := result.Value.(*resource.RouteConfig)
		if l, ok := result.Value.(*resource.Listener); ok {
			rc = l.RouteConfig
		}
		if rc == nil || len(rc.VirtualHosts) != 1 || len(rc.VirtualHosts[0].Routes) != n {
			t.Fatalf("%v: outcomes %+v", r.typ, result.Outcomes)
		}
		for i, route := range rc.VirtualHosts[0].Routes {
			if got := route.Clusters[0].Name; got != "patched" {
				t.Fatalf("%v: route %d leads to cluster %q", r.typ, i, got)
			}
		}
		for _, o := range result.Outcomes {
			if !o.Changed || o.Err != nil {
				t.Errorf("%v: outcome %+v", r.typ, o)
			}
		}
		result = apply(replace)
		if o := result.Outcomes[0]; o.Changed || fmt.Sprint(o.Err) != "must have at most 262144 fields in all" {
			t.Errorf("%v: outcome %+v of a patch of all virtual hosts", r.typ, o)
		}
		if r.typ == resource.ListenerType && (len(result.Outcomes) != 2 || !result.Outcomes[1].Changed) {
			t.Errorf("outcomes %+v, want one that the Listener is changed, too", result.Outcomes)
		}
	}
}

// TestRouteEncodings checks that patches find routes by their names whatever their encoding: the last one
// of several names is in force, and a message in parts is that of the parts together.
func TestRouteEncodings(t *testing.T) {
	field := appendField
	route := encode(t, &routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "c"}}}})
	route = field(field(route, routeNameField, []byte("x")), routeNameField, []byte("a"))
	host := field(field(field(encode(t, &routev3.VirtualHost{Domains: []string{"*"}}), nameField, []byte("x")), routesField, route), nameField, []byte("v"))
	first := field(field(nil, nameField, []byte("x")), hostsField, host)
	second := field(nil, nameField, []byte("rc"))
	http := slices.Concat(field(nil, inlineField, []byte{}), field(nil, rdsField, nil), field(nil, inlineField, first), field(nil, inlineField, second))
	o, err := Parse("test", []byte(`{"patches": [{"resource": "route", "name": "rc/v/a", "merge": {"route": {"cluster": "patched"}}}]}`))
	kit.Must(t, err)
	for typ, value := range map[resource.Type][]byte{
		resource.RouteConfigType: slices.Concat(first, second),
		resource.ListenerType:    inlined(t, "rc", http),
	} {
		decode := func(b []byte) (any, error) { return resource.Decode(typ, b, resource.Options{}) }
		if _, err := decode(value); err != nil {
			t.Fatal(err)
		}
		r := o.Select("").Apply(typ, "rc", value, decode)
		rc, _ := r.Value.(*resource.RouteConfig)
		if l, ok := r.Value.(*resource.Listener); ok {
			rc = l.RouteConfig
		}
		if rc == nil || rc.VirtualHosts[0].Routes[0].Clusters[0].Name != "patched" {
			t.Errorf("%v: %+v", typ, r)
		}
	}
}

// TestLargeAny checks that a message in an Any is decoded within the limit of fields: the resource counts it
// as bytes.
func TestLargeAny(t *testing.T) {
	o, err := Parse("test", []byte(`{"patches": [{"resource": "cluster", "name": "c", "merge": {"typed_extension_protocol_options": {"k": {"choice_count": 4}}}}]}`))
	kit.Must(t, err)
	many := bytes.Repeat([]byte{0x10, 1}, 1<<18+1) // fields of a number
	c := &clusterv3.Cluster{Name: "c", TypedExtensionProtocolOptions: map[string]*anypb.Any{"k": {TypeUrl: leastRequestURL, Value: many}}}
	r := o.Select("").Apply(resource.ClusterType, "c", encode(t, c), decoder(resource.ClusterType))
	if want := `merge.typed_extension_protocol_options["k"]: the current value must have at most 262144 fields in all`; len(r.Outcomes) != 1 || fmt.Sprint(r.Outcomes[0].Err) != want {
		t.Errorf("outcomes %+v, want error %s", r.Outcomes, want)
	}
}
