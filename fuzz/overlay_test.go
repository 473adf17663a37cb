// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

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
