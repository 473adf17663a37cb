// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/internal/fieldlimit"
)

// TestFieldsInAnyOrder checks that messages decoded one element at a time equal those that
// proto.Unmarshal decodes: fields may be in any order, repeated, and with the wrong wire type.
func TestFieldsInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	shuffled := func(fields ...[]byte) []byte {
		var out []byte
		for range 1 + rng.IntN(7) {
			out = append(out, fields[rng.IntN(len(fields))]...)
		}
		return out
	}
	varint := func(n protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), 7)
	}
	route := func(cluster string) string {
		return string(field(3, string(field(1, string(field(1, "/"))))+string(field(2, string(field(1, cluster))))))
	}
	accepted, inline := 0, 0
	for range 3000 {
		host := func() []byte {
			return field(2, string(shuffled(field(2, "*"), field(1, "v"), []byte(route("a")), []byte(route("b")), []byte(route("")), varint(3))))
		}
		routes := func() []byte {
			return shuffled(field(1, "r"), field(1, "s"), host(), host(), varint(2), field(14, "unknown"), []byte{2 << 3})
		}
		value := slices.Concat(field(1, "r"), routes())
		if sameDecoding(t, RouteConfigType, value, new(routev3.RouteConfiguration)) {
			accepted++
		}
		rds := field(3, string(field(1, string(field(3, ""))))+string(field(2, "name")))
		hcm := shuffled(rds, field(4, string(routes())), field(4, string(routes())), field(31, ""), field(2, "stat"), varint(4))
		listener, err := proto.Marshal(&listenerv3.Listener{Name: "l", ApiListener: &listenerv3.ApiListener{ApiListener: &anypb.Any{
			TypeUrl: "type.googleapis.com/" + typeName(new(hcmv3.HttpConnectionManager)), Value: hcm,
		}}})
		kit.Must(t, err)
		canonical := new(hcmv3.HttpConnectionManager)
		if proto.Unmarshal(hcm, canonical) == nil && canonical.GetRouteConfig() != nil {
			inline++
		}
		got, gotErr := Decode(ListenerType, listener, Options{})
		want, wantErr := decodeListenerWhole(t, hcm)
		if (gotErr == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
			t.Fatalf("HttpConnectionManager %x:\n got %+v, %v\nwant %+v, %v", hcm, got, gotErr, want, wantErr)
		}
	}
	if accepted < 100 || inline < 100 {
		t.Errorf("%d route configurations were accepted and %d were in a listener, want some", accepted, inline)
	}
}

// sameDecoding compares a resource with the canonical encoding of the same message, and reports
// whether it is accepted.
func sameDecoding(t *testing.T, typ Type, value []byte, m proto.Message) (accepted bool) {
	t.Helper()
	got, gotErr := Decode(typ, value, Options{})
	if err := proto.Unmarshal(value, m); err != nil {
		if gotErr == nil {
			t.Fatalf("%x was accepted, and proto.Unmarshal returns %v", value, err)
		}
		return false
	}
	want, wantErr := Decode(typ, encode(t, m), Options{})
	if (gotErr == nil) != (wantErr == nil) || gotErr != nil && gotErr.Error() != wantErr.Error() || !reflect.DeepEqual(got, want) {
		t.Fatalf("%x:\n got %+v, %v\nwant %+v, %v", value, got, gotErr, want, wantErr)
	}
	return gotErr == nil
}

// decodeListenerWhole decodes a Listener with the canonical encoding of a connection manager.
func decodeListenerWhole(t *testing.T, hcm []byte) (any, error) {
	t.Helper()
	m := new(hcmv3.HttpConnectionManager)
	if err := proto.Unmarshal(hcm, m); err != nil {
		return nil, err
	}
	packed, err := anypb.New(m)
	kit.Must(t, err)
	return Decode(ListenerType, encode(t, &listenerv3.Listener{Name: "l", ApiListener: &listenerv3.ApiListener{ApiListener: packed}}), Options{})
}

// TestDenseRoutes bounds the memory that dense RouteConfigurations allocate and keep for each
// of their bytes, in a RouteConfiguration and in a Listener. xds/SECURITY.md has the bounds.
func TestDenseRoutes(t *testing.T) {
	const n = 100_000
	match := field(1, string(field(1, "")))
	for _, tt := range []struct {
		name            string
		host            []byte
		allocated, kept float64
	}{
		{"empty virtual hosts", bytes.Repeat(field(2, ""), n), 80, 50},
		{"virtual hosts of one domain", bytes.Repeat(field(2, string(field(2, "*"))), n), 40, 25},
		{"empty routes", field(2, string(bytes.Repeat(field(3, ""), n))), 120, 1},
		{"routes of one cluster", field(2, string(bytes.Repeat(field(3, string(match)+string(field(2, string(field(1, "c"))))), n))), 220, 40},
		{"routes that do not forward", field(2, string(bytes.Repeat(field(3, string(match)+string(field(18, ""))), n))), 220, 40},
	} {
		for typ, value := range map[Type][]byte{RouteConfigType: slices.Concat(field(1, "r"), tt.host), ListenerType: inListener(t, slices.Concat(field(1, "r"), tt.host))} {
			var before, after, kept runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			v, _ := Decode(typ, value, Options{})
			runtime.ReadMemStats(&after)
			runtime.GC()
			runtime.ReadMemStats(&kept)
			size := float64(len(value))
			a, k := float64(after.TotalAlloc-before.TotalAlloc)/size, (float64(kept.HeapAlloc)-float64(before.HeapAlloc))/size
			t.Logf("%v, %s: %.0f bytes allocated for each of %d, %.0f kept", typ, tt.name, a, len(value), k)
			if a > tt.allocated || k > tt.kept {
				t.Errorf("%v, %s: %.0f bytes allocated for each of %d, %.0f kept; want %v and %v at most", typ, tt.name, a, len(value), k, tt.allocated, tt.kept)
			}
			runtime.KeepAlive(v)
		}
	}
}

func inListener(t *testing.T, routes []byte) []byte {
	return encode(t, &listenerv3.Listener{Name: "l", ApiListener: &listenerv3.ApiListener{ApiListener: &anypb.Any{
		TypeUrl: "type.googleapis.com/" + typeName(new(hcmv3.HttpConnectionManager)), Value: field(4, string(routes)),
	}}})
}

// TestTooManyFields checks that messages that are unmarshaled as a whole have at most fieldlimit.Max
// fields at all depths, which bounds the allocations of dense ones.
func TestTooManyFields(t *testing.T) {
	empty := func(number protowire.Number, n int) string { return strings.Repeat(string(field(number, "")), n) }
	hcm := func(s string) string {
		return string(encode(t, &listenerv3.Listener{Name: "l", ApiListener: &listenerv3.ApiListener{ApiListener: &anypb.Any{
			TypeUrl: "type.googleapis.com/" + typeName(new(hcmv3.HttpConnectionManager)), Value: []byte(s),
		}}}))
	}
	for _, tt := range []struct {
		name  string
		typ   Type
		value func(n int) string // with n fields, and few more
	}{
		{"filter chains", ListenerType, func(n int) string { return string(field(1, "l")) + empty(3, n) }},
		{"HTTP filters", ListenerType, func(n int) string { return hcm(empty(5, n)) }},
		{"metric names", ClusterType, func(n int) string { return string(field(1, "c")) + empty(57, n) }},
		{"localities of a Cluster", ClusterType, func(n int) string { return string(field(1, "c")) + string(field(33, empty(2, n))) }},
		{"LB policies", ClusterType, func(n int) string { return string(field(1, "c")) + string(field(41, lbPolicies(n))) }},
		{"domains", RouteConfigType, func(n int) string { return string(field(1, "r")) + string(field(2, empty(2, n))) }},
		{"weighted clusters", RouteConfigType, func(n int) string {
			return string(field(1, "r")) + string(field(2, string(field(3, string(field(2, string(field(3, empty(1, n)))))))))
		}},
	} {
		for n, refused := range map[int]bool{fieldlimit.Max - 10: false, fieldlimit.Max + 1: true} {
			value := []byte(tt.value(n))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decode(tt.typ, value, Options{})
			runtime.ReadMemStats(&after)
			a := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%s: %d MiB allocated for %d fields", tt.name, a, n)
			if got := err != nil && strings.Contains(err.Error(), "fields in all"); got != refused || a > 128 || refused && a > 8 {
				t.Errorf("%s: %d fields: %d MiB allocated, error %.300v", tt.name, n, a, err)
			}
		}
	}
}

// lbPolicies returns a list of one wrr_locality with n empty child policies.
func lbPolicies(n int) string {
	child := &anypb.Any{TypeUrl: "/" + typeName(new(wrrlocalityv3.WrrLocality)), Value: field(1, strings.Repeat(string(field(1, "")), n))}
	list := &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{TypedExtensionConfig: &corev3.TypedExtensionConfig{TypedConfig: child}}}}
	value, err := proto.Marshal(list)
	if err != nil {
		panic(err)
	}
	return string(value)
}
