// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/bench/kit"
)

// field returns the encoding of a field with a length.
func field(num protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), value)
}

func TestType(t *testing.T) {
	for typ := range NumTypes {
		got, ok := TypeOf(typ.URL())
		if got != typ || !ok {
			t.Errorf("TypeOf(%q) = %v, %t, want %v", typ.URL(), got, ok, typ)
		}
		if want := "type.googleapis.com/" + typeName(newMessage(typ)); typ.URL() != want {
			t.Errorf("%v.URL() = %q, want %q", typ, typ.URL(), want)
		}
		if !strings.HasSuffix(typ.URL(), "."+typ.String()) {
			t.Errorf("%v is the name of %q", typ, typ.URL())
		}
	}
	for _, url := range []string{"", "envoy.config.cluster.v3.Cluster", "type.googleapis.com/envoy.api.v2.Cluster"} { // T-XDS-12
		if typ, ok := TypeOf(url); ok {
			t.Errorf("TypeOf(%q) = %v", url, typ)
		}
	}
	if got := NumTypes.String() + NumTypes.URL(); got != "Type(4)" {
		t.Errorf("the invalid type is %q", got)
	}
	if _, err := Decode(NumTypes, nil, Options{}); err == nil {
		t.Error("decoded a resource of no type")
	}
}

// TestReader reads random bytes, which are a valid message if the proto library accepts them
// for a message without known fields.
func TestReader(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	long := field(2, strings.Repeat("x", 300))
	if r := (reader{rest: slices.Concat(long, long)}); !r.next() || len(r.bytes) != 300 || cap(r.bytes) != 300 {
		t.Errorf("a long field has %d bytes and room for %d, want 300", len(r.bytes), cap(r.bytes))
	}
	valid := 0
	for range 100000 {
		b := make([]byte, rnd.IntN(9))
		for i := range b {
			b[i] = byte(rnd.Uint32()) >> rnd.IntN(6) // also small numbers, and so short lengths
		}
		if rnd.IntN(4) == 0 { // a number near the greatest
			b = append(protowire.AppendVarint(nil, uint64(1<<29-2+rnd.IntN(4))<<3|uint64(rnd.IntN(2))), b...)
		}
		r := reader{rest: b}
		for r.next() {
			if r.tag&7 == bytesType && cap(r.bytes) != len(r.bytes) {
				t.Fatalf("in %x, the field %x has room for %d bytes more", b, r.bytes, cap(r.bytes)-len(r.bytes))
			}
		}
		want := proto.Unmarshal(b, new(emptypb.Empty)) == nil
		if want {
			valid++
		}
		if r.bad == want {
			t.Fatalf("%x: is malformed (%t), want %t", b, r.bad, !want)
		}
	}
	if valid < 10000 {
		t.Errorf("only %d messages were valid", valid)
	}
}

// TestMalformed checks that decoding errors name the resource if its name can be decoded, and
// have the same text in every program.
func TestMalformed(t *testing.T) {
	tests := []struct {
		typ         Type
		value, want string
	}{
		{ClusterType, "\x0a", `Cluster "": cannot be read as envoy.config.cluster.v3.Cluster: .+`},
		{ClusterType, string(field(1, "c")) + string(field(10, "\x0a")), `Cluster "c": cannot be read as envoy.config.cluster.v3.Cluster: .+`},
		{RouteConfigType, string(field(1, "\xff")), `RouteConfiguration "": cannot be read as .* invalid UTF-8`},
		{EndpointsType, "\x0a", `ClusterLoadAssignment "": is malformed, or contains text that is not UTF-8`},
		{EndpointsType, string(field(1, "e")) + string(field(2, "")) + string(field(2, "\x0a")), `ClusterLoadAssignment "e": endpoints\[1\]: is malformed, .*`},
		{EndpointsType, string(field(1, "e")) + string(field(2, string(field(2, ""))+string(field(2, "\x0a")))), `ClusterLoadAssignment "e": endpoints\[0\].lb_endpoints\[1\]: is malformed, .*`},
		{EndpointsType, string(field(1, "e")) + string(field(2, "\x1a\x02\x08\x01")) + string(field(2, "\x1a\x02\x08\x01"+string(field(2, "\x0a")))),
			`ClusterLoadAssignment "e": endpoints\[1\].lb_endpoints\[0\]: is malformed, .*`}, // and not that the first lacks a locality
		// Two halves of a field do not make one: the first is a group that the second
		// ends, a text that the second completes, or takes up whole.
		{EndpointsType, string(field(1, "e")) + string(field(2, string(field(1, "\x7b"))+string(field(1, "\x7c")))), `ClusterLoadAssignment "e": endpoints\[0\]: is malformed, .*`},
		{EndpointsType, string(field(1, "e")) + string(field(2, string(field(1, "\x0a\x02"))+string(field(1, "zz")))), `ClusterLoadAssignment "e": endpoints\[0\]: is malformed, .*`},
		{EndpointsType, string(field(1, "e")) + string(field(4, "\x12\x04")) + string(field(4, string(field(2, "\x0a\x00")))), `ClusterLoadAssignment "e": is malformed, .*`},
		{EndpointsType, string(field(1, "e")) + string(field(4, "")) + string(field(4, "\x12\x04")) + string(field(4, string(field(2, "\x0a\x00")))), `ClusterLoadAssignment "e": is malformed, .*`},
	}
	for _, tt := range tests {
		v, err := Decode(tt.typ, []byte(tt.value), Options{})
		var e *resourceError
		ok := errors.As(err, &e)
		if !ok {
			t.Errorf("Decode(%v, %q) = %v, %v, want an *Error", tt.typ, tt.value, v, err)
			continue
		}
		if !regexp.MustCompile("^"+tt.want+"$").MatchString(e.Error()) || strings.Contains(e.Error(), "\u00a0") {
			t.Errorf("Decode(%v, %q) = %v, want %s", tt.typ, tt.value, e, tt.want)
		}
	}
	if name, err := Name(EndpointsType, []byte("\x0a\x04name\x12\x05x")); err == nil {
		t.Errorf("Name of a malformed resource = %q, want an error", name)
	}
	if _, value, err := Unwrap(&anypb.Any{TypeUrl: wrapperURL, Value: slices.Concat(field(2, ""), []byte("\x12\x05x"))}); err == nil {
		t.Errorf("Unwrap of a malformed wrapper = %q, want an error", value)
	}
}

// TestMemory bounds the total allocations of decoding per byte of input, for messages of
// maximum density (T-SEC-2).
func TestMemory(t *testing.T) {
	// nested returns n times value as field path[len(path)-1], inside of one
	// message for each number before that, after a name.
	nested := func(n int, value string, path ...protowire.Number) string {
		b := strings.Repeat(string(field(path[len(path)-1], value)), n)
		for i := len(path) - 2; i >= 0; i-- {
			b = string(field(path[i], b))
		}
		return string(field(1, "name")) + b
	}
	endpoint := string(field(1, string(field(1, string(field(1, string(field(2, "::"))+"\x18\x01"))))))
	weight := string(field(3, "\x08\x01"))
	// overrides is a host with 2000 of them, and 2000 routes with one each.
	override := func(num protowire.Number, i int) string {
		config := field(2, string(field(1, "/envoy.config.route.v3.FilterConfig")))
		return string(field(num, string(field(1, fmt.Sprint(i)))+string(config)))
	}
	overrides := strings.Repeat(string(field(3, string(field(1, "\x0a\x00"))+override(13, 0))), 2000)
	for i := range 2000 {
		overrides += override(15, i)
	}
	tests := []struct {
		name, value string
		typ         Type
		limit       uint64
	}{
		{"virtual hosts", nested(1e5, "", 2), RouteConfigType, 512},
		{"routes", nested(1e5, "", 2, 3), RouteConfigType, 512},
		{"header matchers", nested(1e5, "", 2, 3, 1, 6), RouteConfigType, 512},
		{"weighted clusters", nested(1e5, "", 2, 3, 2, 3, 1), RouteConfigType, 512},
		{"hash policies", nested(1e5, "", 2, 3, 2, 15), RouteConfigType, 512},
		{"repetitions", nested(3000, "(?:x{30}){30}", 2, 3, 1, 10, 2), RouteConfigType, 512},
		{"expressions", nested(3000, string(field(1, string(field(10, string(field(2, "(?:x{30}){30}")))))), 2, 3), RouteConfigType, 512},
		{"classes", nested(100, string(field(1, string(field(10, string(field(2, strings.Repeat(`\pL`, 2700))))))), 2, 3), RouteConfigType, 512},
		{"overrides", string(field(1, "name")) + string(field(2, overrides)), RouteConfigType, 512},
		{"thresholds", nested(1e5, "", 10, 1), ClusterType, 512},
		{"policies", nested(1e5, "", 41, 1), ClusterType, 512},
		{"filter chains", nested(1e5, "", 3), ListenerType, 512},
		{"localities", nested(1e5, weight, 2), EndpointsType, 32},
		{"localities without weight", nested(1e5, "", 2), EndpointsType, 128},
		{"endpoints", string(field(1, "name")) + string(field(2, string(field(1, ""))+weight+strings.Repeat(string(field(2, "")), 1e5))), EndpointsType, 8},
		{"the same endpoint", string(field(1, "name")) + string(field(2, string(field(1, ""))+weight+strings.Repeat(string(field(2, endpoint)), 1e5))), EndpointsType, 128},
		{"drops", nested(1e5, "", 4, 2), EndpointsType, 128},
		{"metadata", string(field(1, "name")) + string(field(2, string(field(1, ""))+weight+nested(1e5, "", 9, 1, 2, 1)[6:])), EndpointsType, 128},
		{"metadata lists", string(field(1, "name")) + string(field(2, string(field(1, ""))+weight+nested(1e5, "", 9, 1, 2, 1, 2, 6, 1)[6:])), EndpointsType, 128},
	}
	for _, tt := range tests {
		value := []byte(tt.value)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode(tt.typ, value, Options{})
		runtime.ReadMemStats(&after)
		got := (after.TotalAlloc - before.TotalAlloc) / uint64(len(value))
		t.Logf("%s: %d bytes per byte of %d (%.100v)", tt.name, got, len(value), err)
		if got > tt.limit {
			t.Errorf("%s: decoding %d bytes took %d times as much memory, want at most %d times", tt.name, len(value), got, tt.limit)
		}
	}
}

func TestCanonicalName(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"svc", "svc"},
		{"svc?b=1&a=2#x", "svc?b=1&a=2#x"},
		{"xdstp://a/t/id", "xdstp://a/t/id"},
		{"xdstp://a/t/id?", "xdstp://a/t/id"},
		{"xdstp://a/t/id?b=2&a=1", "xdstp://a/t/id?a=1&b=2"},
		{"xdstp://a/t/id?a=1#entry=x", "xdstp://a/t/id?a=1"},
		{"xdstp:///t/id?z=1&y=%26&x", "xdstp:///t/id?x&y=%26&z=1"},
	} {
		if got := CanonicalName(tt.in); got != tt.want {
			t.Errorf("CanonicalName(%q) = %q, want %q", tt.in, got, tt.want)
		}
		if got := CanonicalName(tt.want); got != tt.want {
			t.Errorf("CanonicalName(%q) = %q, want the same", tt.want, got)
		}
	}
}

// TestStopped checks that decoding of a large resource polls Stopped frequently, and stops
// immediately. Earlier errors of the resource are not reported.
func TestStopped(t *testing.T) {
	const n = 10_000
	match := string(field(1, string(field(1, ""))))
	endpoint := func(i int) []byte { return encode(t, lbEndpoint(i, 1)) }
	locality := string(field(1, "")) + string(field(3, "\x08\x01"))
	var endpoints, localities []byte
	for i := range n {
		endpoints = append(endpoints, field(2, string(endpoint(i)))...)
		localities = append(localities, field(2, locality)...)
	}
	hosts := slices.Concat(field(1, "r"), bytes.Repeat(field(2, string(field(2, "*"))), n))
	routes := slices.Concat(field(1, "r"), field(2, string(bytes.Repeat(field(3, match+string(field(2, string(field(1, "c"))))), n))))
	for _, tt := range []struct {
		name  string
		typ   Type
		value []byte
		calls int // at least
	}{
		{"virtual hosts", RouteConfigType, hosts, n},
		{"routes", RouteConfigType, routes, n},
		{"routes of a Listener", ListenerType, inListener(t, routes), n},
		{"endpoints", EndpointsType, slices.Concat(field(1, "e"), field(2, locality+string(endpoints))), n / stopEvery},
		{"endpoints without weight", EndpointsType, slices.Concat(field(1, "e"), field(2, string(field(1, ""))+string(endpoints))), n / stopEvery},
		{"localities", EndpointsType, slices.Concat(field(1, "e"), localities), 30}, // which are the same
	} {
		calls := 0
		_, want := Decode(tt.typ, tt.value, Options{})
		_, got := Decode(tt.typ, tt.value, Options{Stopped: func() bool { calls++; return false }})
		if calls < tt.calls || (got == nil) != (want == nil) {
			t.Errorf("%s: called %d times, want at least %d; error %v, want %v", tt.name, calls, tt.calls, got, want)
		}
		for _, last := range []int{1, 2, tt.calls} {
			calls = 0
			v, err := Decode(tt.typ, tt.value, Options{Stopped: func() bool { calls++; return calls == last }})
			if v != nil || err != ErrStopped || calls != last {
				t.Errorf("%s: stopped at call %d: %v, error %v after %d calls", tt.name, last, v, err, calls)
			}
		}
	}
}

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
		kit.Must(t, err)
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
