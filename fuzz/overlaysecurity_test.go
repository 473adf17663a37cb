// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/overlay"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

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
	aggregate, err := anypb.New(&aggregatev3.ClusterConfig{Clusters: []string{"secure"}})
	kit.Must(f, err)
	config, err := anypb.New(&tlsv3.UpstreamTlsContext{Sni: "good.example", CommonTlsContext: &tlsv3.CommonTlsContext{
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			CaCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: "default"},
			MatchSubjectAltNames:          []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "good.example"}}},
		}}}})
	kit.Must(f, err)
	decode := func(b []byte) (any, error) {
		return resource.Decode(resource.ClusterType, b, resource.Options{CertProvider: func(string, resource.CertUse) error { return nil }})
	}
	f.Fuzz(func(t *testing.T, a, b uint64, which uint8, merge string) {
		g := &patcher{r: rand.New(rand.NewPCG(a, b))}
		c := xdstest.Cluster("c", "e")
		if which&0x80 != 0 {
			c = &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "envoy.clusters.aggregate", TypedConfig: aggregate}}}
		} else {
			c.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config}}
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
