// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
)

// encode returns the same bytes for equal messages.
func encode(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(m)
	kit.Must(tb, err)
	return b
}

// recorded returns the encodings of the resources in package resource's testdata: resources
// sent by Istio, in files that end in suffix, and rejected ones, one for each rule.
func recorded(tb testing.TB, typ resource.Type, suffix, refused string) (list [][]byte) {
	tb.Helper()
	testdata := filepath.Join("..", "xds", "resource", "testdata")
	files, err := filepath.Glob(filepath.Join(testdata, "istio", "*"+suffix+".json"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no resources %q: %v", suffix, err)
	}
	var texts []json.RawMessage
	for _, file := range files {
		var some []json.RawMessage
		if err := json.Unmarshal(read(tb, file), &some); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		texts = append(texts, some...)
	}
	_, cases, _ := strings.Cut(string(read(tb, filepath.Join(testdata, "refused", refused))), "\n# ")
	for c := range strings.SplitSeq(cases, "\n# ") {
		_, c, _ = strings.Cut(c, "\n") // the title
		text, _, _ := strings.Cut(c, "\n--\n")
		texts = append(texts, json.RawMessage(text))
	}
	for _, text := range texts {
		m := message(typ)
		if err := protojson.Unmarshal(text, m); err != nil {
			tb.Fatalf("%s\nis not a %v: %v", text, typ, err)
		}
		list = append(list, encode(tb, m))
	}
	return list
}

// ofJSON reads a message from its JSON form.
func ofJSON[M proto.Message](m M, text string) M {
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		panic(err)
	}
	return m
}

func read(tb testing.TB, file string) []byte {
	tb.Helper()
	b, err := os.ReadFile(file)
	kit.Must(tb, err)
	return b
}

// message returns an empty resource of a type.
func message(typ resource.Type) proto.Message {
	return [resource.NumTypes]func() proto.Message{
		resource.ListenerType:    func() proto.Message { return new(listenerv3.Listener) },
		resource.RouteConfigType: func() proto.Message { return new(routev3.RouteConfiguration) },
		resource.ClusterType:     func() proto.Message { return new(clusterv3.Cluster) },
		resource.EndpointsType:   func() proto.Message { return new(endpointv3.ClusterLoadAssignment) },
	}[typ]()
}

// checkRefusal checks the form of an error of a decoder, which goes to the control
// plane: typed, not empty, and of bounded size however large the resource is.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	// At most 32 entries of 2048 bytes, after the name of the resource.
	if text := err.Error(); !strings.Contains(text, ": ") || len(text) > 1<<18+32*2048 {
		t.Errorf("error is %d bytes long: %.200s", len(text), text)
	}
}
