// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestUnknownFields checks that unknown fields have no effect (A27-UNK-1), in resources of each
// type; TestEndpointsOracle has them in every message of an assignment, and TestIstioAccepted
// has fields that a real control plane sets.
func TestUnknownFields(t *testing.T) {
	extra := protowire.AppendString(protowire.AppendTag(nil, 12345, protowire.BytesType), "?")
	extra = protowire.AppendVarint(protowire.AppendTag(extra, 54321, protowire.VarintType), 7)
	for typ, text := range []string{
		`{"name": "l", "apiListener": {"apiListener": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
			"rds": {"configSource": {"ads": {}}, "routeConfigName": "r"}, "httpFilters": [{"name": "router", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}}`,
		`{"name": "r", "virtualHosts": [{"domains": ["*"], "routes": [{"match": {"prefix": ""}, "route": {"cluster": "c"}}]}]}`,
		`{"name": "c", "type": "EDS", "edsClusterConfig": {"edsConfig": {"ads": {}}}}`,
		`{"clusterName": "e", "endpoints": [{"locality": {}, "loadBalancingWeight": 1, "lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "10.0.0.1", "portValue": 1}}}}]}]}`,
	} {
		b := fromJSON(t, Type(typ), text)
		want, err := Decode(Type(typ), b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, with := range [][]byte{slices.Concat(b, extra), slices.Concat(extra, b)} {
			got, err := Decode(Type(typ), with, Options{})
			if err != nil || !reflect.DeepEqual(plainValue(got), plainValue(want)) {
				t.Errorf("%v with unknown fields: %+v, %v; want %+v", Type(typ), got, err, want)
			}
		}
	}
}

// plainValue removes the parts of endpoints that depend on their bytes.
func plainValue(v any) any {
	if e, ok := v.(*Endpoints); ok {
		return plain(e)
	}
	return v
}
