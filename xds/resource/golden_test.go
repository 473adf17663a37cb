// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/adaptive_concurrency/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/admission_control/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// newMessage returns an empty message of a type.
func newMessage(t Type) proto.Message {
	return [NumTypes]proto.Message{
		new(listenerv3.Listener), new(routev3.RouteConfiguration), new(clusterv3.Cluster), new(endpointv3.ClusterLoadAssignment),
	}[t].ProtoReflect().New().Interface()
}

// fromJSON returns the encoding of a resource.
func fromJSON(tb testing.TB, t Type, text string) []byte {
	tb.Helper()
	m := newMessage(t)
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		tb.Fatalf("%s\nis not a %v: %v", text, t, err)
	}
	return encode(tb, m)
}

// decodeAs decodes the JSON form of a resource, which has to be valid.
func decodeAs[T any](tb testing.TB, t Type, text string) T {
	tb.Helper()
	v, err := Decode(t, fromJSON(tb, t, text), Options{TrustedServer: true, CertProvider: onlyDefault})
	if err != nil {
		tb.Fatalf("%s\nwas refused: %v", text, err)
	}
	return v.(T)
}

// TestRefused compares NACK texts with testdata/refused: each case has a title with its
// subject, the resource as JSON, and the error. Operators read these.
func TestRefused(t *testing.T) {
	for typ, file := range []string{"listener.txt", "routes.txt", "cluster.txt", "endpoints.txt"} {
		typ, file := Type(typ), filepath.Join("testdata", "refused", file)
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		var out strings.Builder
		head, cases, _ := strings.Cut("\n"+string(text), "\n# ")
		out.WriteString(strings.TrimPrefix(head, "\n"))
		for c := range strings.SplitSeq(cases, "\n# ") {
			title, rest, _ := strings.Cut(c, "\n")
			resource, want, ok := strings.Cut(rest, "\n--\n")
			if !ok {
				t.Fatalf("%s: case %q has no --", file, title)
			}
			want = strings.TrimSpace(want)
			_, err := Decode(typ, fromJSON(t, typ, resource), Options{})
			if err == nil {
				t.Errorf("%s: %s: was not refused", file, title)
				continue
			}
			got := strings.ReplaceAll(err.Error(), "; ", ";\n\t")
			if got != want && !*update {
				t.Errorf("%s: %s:\n got %s\nwant %s", file, title, got, want)
			}
			out.WriteString("\n# " + title + "\n" + resource + "\n--\n" + got + "\n")
		}
		if *update {
			kit.Must(t, os.WriteFile(file, []byte(out.String()), 0o644))
		}
	}
}

// TestIstio decodes resources as Istio sends them to proxyless clients, and
// compares the values with the golden files beside them.
func TestIstio(t *testing.T) {
	files, err := filepath.Glob("testdata/istio/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no resources: %v", err)
	}
	types := map[string]Type{"lds": ListenerType, "rds": RouteConfigType, "cds": ClusterType, "eds": EndpointsType}
	for _, file := range files {
		base := strings.TrimSuffix(filepath.Base(file), ".json")
		typ := types[base[strings.LastIndexByte(base, '-')+1:]]
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		var list []json.RawMessage
		kit.Must(t, json.Unmarshal(text, &list))
		values := make([]any, len(list))
		for i, m := range list {
			values[i] = decodeAs[any](t, typ, string(m))
		}
		got := dump(t, values)
		golden := strings.TrimSuffix(file, ".json") + ".golden"
		if *update {
			kit.Must(t, os.WriteFile(golden, got, 0o644))
			continue
		}
		want, err := os.ReadFile(golden)
		kit.Must(t, err)
		if string(got) != string(want) {
			t.Errorf("%s is decoded to\n%s\nwant\n%s", file, got, want)
		}
	}
}

// dump returns v as JSON without zero values, so that a new field changes only the related
// cases.
func dump(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	var tree any
	if err == nil {
		err = json.Unmarshal(b, &tree)
	}
	if err == nil {
		b, err = json.MarshalIndent(sparse(tree), "", "  ")
	}
	kit.Must(t, err)
	return append(b, '\n')
}

// sparse returns v without zero values in objects; nil if nothing is left.
func sparse(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = sparse(v[i])
		}
		if len(v) == 0 {
			return nil
		}
	case map[string]any:
		for k := range v {
			if v[k] = sparse(v[k]); v[k] == nil {
				delete(v, k)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case string, float64, bool:
		if reflect.ValueOf(v).IsZero() {
			return nil
		}
	}
	return v
}

// TestIstioAccepted decodes every resource that Istio was observed to send to proxyless clients
// (testdata/istio/README.md describes how they were recorded): all are accepted, with a
// bootstrap that defines the certificate provider that they name.
func TestIstioAccepted(t *testing.T) {
	opts := Options{CertProvider: onlyDefault}
	n := 0
	for typ, file := range []string{"every.lds.jsonl", "every.rds.jsonl", "every.cds.jsonl", "every.eds.jsonl"} {
		text, err := os.ReadFile("testdata/istio/" + file)
		kit.Must(t, err)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		n += len(lines)
		for i, line := range lines {
			b := fromJSON(t, Type(typ), line)
			if _, err := Decode(Type(typ), b, opts); err != nil {
				t.Errorf("%s:%d: %v", file, i+1, err)
			}
			if Type(typ) != EndpointsType {
				continue
			}
			if _, err := decodeEndpoints(b, Options{}, stopper{}); err != nil {
				t.Errorf("%s:%d: %v", file, i+1, err)
			}
		}
	}
	if n != 37 {
		t.Errorf("%d resources, want 37", n)
	}
}

// TestDecodedKeepsNothing checks that decoded resources do not refer to their bytes, which may
// be a small part of a large response.
func TestDecodedKeepsNothing(t *testing.T) {
	opts := Options{CertProvider: onlyDefault}
	for typ, file := range []string{"every.lds.jsonl", "every.rds.jsonl", "every.cds.jsonl", "every.eds.jsonl"} {
		text, err := os.ReadFile("testdata/istio/" + file)
		kit.Must(t, err)
		for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			b := fromJSON(t, Type(typ), line)
			want, err := Decode(Type(typ), bytes.Clone(b), opts)
			kit.Must(t, err)
			got, err := Decode(Type(typ), b, opts)
			kit.Must(t, err)
			for i := range b {
				b[i] = 'x'
			}
			if !reflect.DeepEqual(plainValue(got), plainValue(want)) {
				t.Errorf("%s:%d: %+v\nwant %+v", file, i+1, got, want)
			}
		}
	}
}
