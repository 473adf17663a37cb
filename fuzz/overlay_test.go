// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/overlay"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// overlaySeeds are patches, and why each is of interest.
var overlaySeeds = []string{
	`{"resource": "cluster", "name": "*", "merge": {"lb_policy": "RING_HASH", "ring_hash_lb_config": {"minimum_ring_size": 7}}}`,
	`{"resource": "cluster", "name": "c*", "when_unset": true, "merge": {"outlier_detection": {"interval": "1s"}, "circuit_breakers": null}}`,
	`{"resource": "cluster", "name": "*", "merge": {"transport_socket": {"name": "x", "typed_config": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1s"}}}}`,
	`{"resource": "cluster", "name": "*", "allow_security_changes": true, "merge": {"transport_socket": null, "transportSocketMatches": []}}`,
	`{"resource": "cluster", "name": "*", "merge": {"lb_policy": "CLUSTER_PROVIDED"}}, {"resource": "cluster", "name": "*", "merge": {"load_balancing_policy": {"policies":
		[{"typed_extension_config": {"name": "p", "typed_config": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "x/pick_first", "value": {"a": [null, {}]}}}}]}}}`,
	`{"resource": "cluster", "name": "*", "merge": {"metadata": {"filter_metadata": {"a": {"b": {"c": null}}}}, "cluster_type": {"name": "envoy.clusters.aggregate"}}}`,
	`{"resource": "route", "name": "*/*/*", "merge": {"match": {"prefix": null, "safe_regex": {"regex": "("}}}}, {"resource": "route", "name": "*", "merge": {"route": {"timeout": "9s"}}}`,
	`{"resource": "route_configuration", "name": "*", "merge": {"virtual_hosts": []}}, {"resource": "listener", "name": "*", "merge": {"api_listener": {"api_listener": {"http_filters": null}}}}`,
	`{"resource": "endpoints", "name": "*", "merge": {"policy": {"drop_overloads": [{"category": "x", "drop_percentage": {"numerator": 50}}]}}}`,
	`{"resource": "endpoints", "name": "*", "target": "xds:///x*", "merge": {"policy": null}}`,
	`{"resource": "cluster", "name": "", "merge": {}}`,
}

// FuzzOverlay applies patches to resources. The result is unchanged, or a resource that decoding
// accepts, with the name, the endpoints and, without permission, the security of the original.
func FuzzOverlay(f *testing.F) {
	for _, patches := range overlaySeeds {
		document := `{"patches": [` + patches + `]}`
		for i, c := range clusterSeeds() {
			if i%5 == 0 {
				f.Add(document, uint8(resource.ClusterType), encode(f, c))
			}
		}
		f.Add(document, uint8(resource.ListenerType), encode(f, xdstest.Listener("l", "r")))
		f.Add(document, uint8(resource.ListenerType), encode(f, testplane.InlineListener("l", xdstest.RouteConfig("r", xdstest.Route("/a", "c")))))
		f.Add(document, uint8(resource.RouteConfigType), encode(f, xdstest.RouteConfig("r", xdstest.Route("/a", "c"), xdstest.Route("", "d"))))
		f.Add(document, uint8(resource.EndpointsType), encode(f, xdstest.Endpoints("e", xdstest.Locality{})))
	}
	f.Fuzz(func(t *testing.T, document string, kind uint8, value []byte) {
		typ := resource.Type(kind % uint8(resource.NumTypes))
		decode := func(b []byte) (any, error) {
			return resource.Decode(typ, b, resource.Options{CertProvider: func(string, resource.CertUse) error { return nil }})
		}
		o, err := overlay.Parse("test", []byte(document))
		if err != nil {
			if o != nil {
				t.Fatalf("Parse returned an overlay and %v", err)
			}
			return
		}
		if _, err := decode(value); err != nil {
			return // patches apply to valid resources only
		}
		name, err := resource.Name(typ, value)
		kit.Must(t, err)
		before := slices.Clone(value)
		s := o.Select("xds:///x")
		r := s.Apply(typ, name, value, decode)
		if !bytes.Equal(value, before) {
			t.Fatal("Apply has modified the resource")
		}
		if s.Key(typ, name) == (overlay.Key{}) && (r.Value != nil || len(r.Outcomes) > 0) {
			t.Fatalf("Key reports no patches, and the outcomes are %+v", r.Outcomes)
		}
		changed := slices.ContainsFunc(r.Outcomes, func(o overlay.Outcome) bool { return o.Changed })
		if slices.ContainsFunc(r.Outcomes, func(o overlay.Outcome) bool { return o.Changed && errors.Is(o.Err, resource.ErrStopped) }) {
			t.Errorf("outcomes %+v", r.Outcomes)
		}
		if (r.Value != nil) != (r.Bytes != nil) || r.Value != nil && !changed {
			t.Fatalf("value %+v and %d bytes after %+v", r.Value, len(r.Bytes), r.Outcomes)
		}
		if r.Value == nil {
			return
		}
		again, err := decode(r.Bytes)
		if err != nil || !reflect.DeepEqual(again, r.Value) {
			t.Fatalf("the patched resource is %+v, and is decoded to %+v, %v", r.Value, again, err)
		}
		if own, err := resource.Name(typ, r.Bytes); err != nil || own != name {
			t.Fatalf("the name of %q was changed to %q, %v", name, own, err)
		}
		checkPatched(t, typ, document, value, r.Bytes)
	})
}

// checkPatched checks the parts of a resource that patches must not change.
func checkPatched(t *testing.T, typ resource.Type, document string, value, patched []byte) {
	t.Helper()
	switch typ {
	case resource.ClusterType:
		was, is := new(clusterv3.Cluster), new(clusterv3.Cluster)
		if proto.Unmarshal(value, was) != nil || proto.Unmarshal(patched, is) != nil {
			t.Fatal("malformed")
		}
		if was.TransportSocket != nil && !proto.Equal(was.TransportSocket, is.TransportSocket) && !bytes.Contains([]byte(document), []byte(`allow_`)) {
			t.Fatalf("the transport socket %v was changed to %v", was.TransportSocket, is.TransportSocket)
		}
	case resource.EndpointsType:
		was, is := new(endpointv3.ClusterLoadAssignment), new(endpointv3.ClusterLoadAssignment)
		if proto.Unmarshal(value, was) != nil || proto.Unmarshal(patched, is) != nil {
			t.Fatal("malformed")
		}
		if was.Policy, is.Policy = nil, nil; !proto.Equal(was, is) {
			t.Fatalf("the endpoints %v were changed to %v", was, is)
		}
	}
}

// A patcher makes random merge patches from the descriptors of messages, also of messages in an Any, since
// few mutations of a text are valid documents.
type patcher struct {
	r     *rand.Rand
	depth int
}

// pick returns one of the values.
func pick[T any](g *patcher, values ...T) T { return values[g.r.IntN(len(values))] }

func (g *patcher) value(fd protoreflect.FieldDescriptor) any {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return pick(g, true, false)
	case protoreflect.StringKind:
		return pick(g, "", "a", "default", "envoy.transport_sockets.tls", "other.example", "*")
	case protoreflect.BytesKind:
		return "AAAA"
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		return string(values.Get(g.r.IntN(values.Len())).Name())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return g.message(fd.Message())
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return g.r.Float64() * 100
	}
	return g.r.IntN(100)
}

func (g *patcher) message(md protoreflect.MessageDescriptor) any {
	switch md.FullName() {
	case "google.protobuf.Duration":
		return fmt.Sprintf("%ds", g.r.IntN(100))
	case "google.protobuf.UInt32Value", "google.protobuf.UInt64Value":
		return g.r.IntN(1000)
	case "google.protobuf.BoolValue":
		return pick(g, true, false)
	case "google.protobuf.StringValue":
		return "x"
	case "google.protobuf.Struct", "google.protobuf.Value":
		return map[string]any{"a": []any{nil, 1, map[string]any{}}, "b": nil}
	case "google.protobuf.Any":
		if g.r.IntN(4) == 0 {
			return map[string]any{"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1s"}
		}
		inner := pick[proto.Message](g, (*tlsv3.UpstreamTlsContext)(nil), (*aggregatev3.ClusterConfig)(nil), (*clusterv3.Cluster)(nil)).ProtoReflect().Descriptor()
		patch := g.fields(inner)
		if pick(g, true, false) { // otherwise it is merged into the present value
			patch["@type"] = "type.googleapis.com/" + string(inner.FullName())
		}
		return patch
	}
	return g.fields(md)
}

func (g *patcher) fields(md protoreflect.MessageDescriptor) map[string]any {
	patch := map[string]any{}
	n := md.Fields().Len()
	if n == 0 || g.depth == 7 {
		return patch
	}
	g.depth++
	defer func() { g.depth-- }()
	for range g.r.IntN(3) {
		fd := md.Fields().Get(g.r.IntN(n))
		patch[pick(g, string(fd.Name()), fd.JSONName())] = g.patch(fd)
	}
	return patch
}

// patch returns a patch of a field.
func (g *patcher) patch(fd protoreflect.FieldDescriptor) any {
	switch {
	case g.r.IntN(5) == 0:
		return nil
	case fd.IsMap():
		return map[string]any{"k": nil}
	case fd.IsList():
		return pick(g, []any{}, []any{g.value(fd)})
	}
	return g.value(fd)
}

// cluster returns a patch of a Cluster that has a field which affects its security.
func (g *patcher) cluster() string {
	md := (*clusterv3.Cluster)(nil).ProtoReflect().Descriptor()
	patch := g.fields(md)
	fd := md.Fields().ByName(pick[protoreflect.Name](g, "transport_socket", "transport_socket_matches", "type", "cluster_type", "eds_cluster_config", "load_assignment",
		"lb_policy", "load_balancing_policy", "typed_extension_protocol_options", "transport_socket_matcher", "filters", "metadata"))
	patch[pick(g, string(fd.Name()), fd.JSONName())] = g.patch(fd)
	delete(patch, "name")
	text, _ := json.Marshal(patch)
	return string(text)
}

// FuzzOverlaySecurity checks that patches without permission keep the TLS settings and the type of a
// cluster that has TLS settings, and the type of an aggregate cluster, whatever else they change, in any
// number and order, and beside patches of other clusters that have permission.
func FuzzOverlaySecurity(f *testing.F) {
	for i := range uint64(64) {
		f.Add(i, i*7919, uint8(i), "")
	}
	for i, merge := range []string{
		`{"transport_socket": {"typed_config": {"common_tls_context": null}}}`,
		`{"type": null, "cluster_type": {"name": "x"}}`,
		`{"transportSocket": {"name": "", "typedConfig": {"@type": "type.googleapis.com/google.protobuf.Empty", "value": {}}}}`,
		`{"type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}, "service_name": "e"}}`,
	} {
		f.Add(uint64(1), uint64(2), uint8(i), merge)
		f.Add(uint64(1), uint64(2), uint8(i)|0x80, merge)
	}
	const socket = `{"name": "envoy.transport_sockets.tls", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "sni": "good.example",
		"commonTlsContext": {"validationContext": {"caCertificateProviderInstance": {"instanceName": "default"}, "matchSubjectAltNames": [{"exact": "good.example"}]}}}}`
	const aggregate = `{"name": "c", "clusterType": {"name": "envoy.clusters.aggregate", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": ["secure"]}}}`
	decode := func(b []byte) (any, error) {
		return resource.Decode(resource.ClusterType, b, resource.Options{CertProvider: func(string, resource.CertUse) error { return nil }})
	}
	f.Fuzz(func(t *testing.T, a, b uint64, which uint8, merge string) {
		g := &patcher{r: rand.New(rand.NewPCG(a, b))}
		c := xdstest.Cluster("c", "e")
		if which&0x80 != 0 {
			c = ofJSON(new(clusterv3.Cluster), aggregate)
		} else {
			c.TransportSocket = ofJSON(new(corev3.TransportSocket), socket)
		}
		value := encode(t, c)
		before, err := decode(value)
		kit.Must(t, err)
		var patches []string
		for i := range 1 + which%4 {
			if i > 0 || merge == "" {
				merge = g.cluster()
			}
			patches = append(patches, fmt.Sprintf(`{"resource": "cluster", "name": "*", "when_unset": %t, "merge": %s}`, g.r.IntN(3) == 0, merge))
			if pick(g, true, false) {
				patches = append(patches, `{"resource": "cluster", "name": "other", "allow_security_changes": true, "merge": {"transport_socket": null}}`)
			}
		}
		document := `{"patches": [` + strings.Join(patches, ",") + `]}`
		o, err := overlay.Parse("test", []byte(document))
		if err != nil || strings.Contains(merge, "allow") {
			return
		}
		r := o.Select("xds:///x").Apply(resource.ClusterType, "c", value, decode)
		if r.Value == nil {
			return
		}
		was, is := before.(*resource.Cluster), r.Value.(*resource.Cluster)
		if was.Kind != is.Kind || was.Name != is.Name || was.TLS != nil && !reflect.DeepEqual(was.TLS, is.TLS) {
			t.Fatalf("by %s\nthe cluster %+v became %+v: TLS %+v, then %+v", document, was, is, was.TLS, is.TLS)
		}
		m := new(clusterv3.Cluster)
		if proto.Unmarshal(r.Bytes, m) != nil || c.TransportSocket != nil && (!proto.Equal(m.TransportSocket, c.TransportSocket) || len(m.TransportSocketMatches) > 0) {
			t.Fatalf("by %s\nthe transport socket became %v, with matches %v", document, m.TransportSocket, m.TransportSocketMatches)
		}
	})
}
