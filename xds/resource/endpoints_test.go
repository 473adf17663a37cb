// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// plain returns e without the fields that only decodeEndpoints sets.
func plain(e *Endpoints) *Endpoints {
	if e == nil {
		return nil
	}
	return &Endpoints{Name: e.Name, Priorities: e.Priorities, Drops: e.Drops, Unhealthy: e.Unhealthy}
}

// TestEndpointsOracle: A27-CLA-8, A27-CLA-12, A55, T-DROP-1, T-EDS-2. It compares decoding with the
// oracle, with and without AcceptHostnames: messages as the library encodes them, the same in unusual encodings,
// and damaged ones. Damaged messages are rejected if a proto
// library that knows only the used fields rejects them (testdata/endpoints.textproto).
func TestEndpointsOracle(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	read := readFields(t)
	desc := (&endpointv3.ClusterLoadAssignment{}).ProtoReflect().Descriptor()
	count := map[string]int{}
	check := func(kind string, b []byte, names bool) { count[compareEndpoints(t, read, kind, b, names)]++ }
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	for i := range rounds {
		names := i%2 == 1
		random := func() []byte {
			m := randomAssignment(rnd)
			if i%4 > 1 {
				nameEndpoints(rnd, m)
			}
			return encode(t, m)
		}
		b := random()
		check("plain", b, names)
		check("scrambled", scramble(rnd, desc, b), names)
		check("doubled", append(slices.Clone(b), random()...), names)
		for range 5 {
			check("damaged", mutate(rnd, b), names)
		}
	}
	if count["valid"] < rounds || count["invalid"] < rounds/2 || count["malformed"] < rounds/2 {
		t.Errorf("messages of %d rounds: %v, too few of a kind", rounds, count)
	}
}

// compareEndpoints compares decoding with the oracle, and returns the kind of message. Damaged
// messages are malformed if they are for a proto library that knows only the fields read.
func compareEndpoints(t *testing.T, read protoreflect.MessageDescriptor, kind string, b []byte, names bool) string {
	t.Helper()
	got, err := decodeEndpoints(b, Options{AcceptHostnames: names}, stopper{})
	m := new(endpointv3.ClusterLoadAssignment)
	if proto.Unmarshal(b, m) != nil {
		if proto.Unmarshal(b, dynamicpb.NewMessage(read)) != nil && err == nil {
			t.Fatalf("%s message %x is malformed, but was decoded", kind, b)
		}
		return "malformed"
	}
	want := naiveEndpoints(m, names)
	if (err != nil) != (want == nil) || !reflect.DeepEqual(plain(got), want) {
		t.Fatalf("%s message %x:\n got %+v, %v\nwant %+v", kind, b, got, err, want)
	}
	if want == nil {
		return "invalid"
	}
	return "valid"
}

// TestEndpointsOneof checks that the last field of a oneof wins, and that earlier values of the
// same field before another one are discarded.
func TestEndpointsOneof(t *testing.T) {
	for _, tt := range oneofCases() {
		got, err := decodeEndpoints(tt.value, Options{}, stopper{})
		m := new(endpointv3.ClusterLoadAssignment)
		if err := proto.Unmarshal(tt.value, m); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if want := naiveEndpoints(m, false); (err == nil) != tt.valid || !reflect.DeepEqual(plain(got), want) {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, want)
		}
	}
}

type oneofCase struct {
	name  string
	value []byte
	valid bool
}

// oneofCases are assignments with an endpoint whose oneofs are set more than once.
func oneofCases() []oneofCase {
	ip := field(2, "1.2.3.4")
	port, named := []byte("\x18\x50"), field(4, "http")
	socket := func(parts ...[]byte) []byte { return field(1, string(slices.Concat(parts...))) }
	address := func(parts ...[]byte) []byte { return field(1, string(slices.Concat(parts...))) }
	endpoint := func(parts ...[]byte) []byte { return field(1, string(slices.Concat(parts...))) }
	pipe, internal, name := field(2, ""), field(3, ""), field(5, "x")
	good := endpoint(address(socket(ip, port)))
	list := []oneofCase{
		{"an endpoint", good, true},
		{"an endpoint, then a name", slices.Concat(good, name), false},
		{"a name, then an endpoint", slices.Concat(name, good), true},
		{"an endpoint, a name, half an endpoint", slices.Concat(good, name, endpoint(address(socket(ip)))), false},
		{"an endpoint in two halves", slices.Concat(endpoint(address(socket(ip))), endpoint(address(socket(port)))), true},
		{"a pipe at last", endpoint(address(socket(ip, port), pipe)), false},
		{"an internal address at last", endpoint(address(socket(ip, port), internal)), false},
		{"a socket at last", endpoint(address(internal, pipe, socket(ip, port))), true},
		{"half a socket at last", endpoint(address(socket(ip, port), pipe, socket(ip))), false},
		{"a named port at last", endpoint(address(socket(ip, port, named))), false},
		{"a port at last", endpoint(address(socket(named, port, ip))), true},
	}
	for i := range list {
		list[i].value = slices.Concat(field(1, "e"), field(2, string(slices.Concat(field(1, ""), field(3, "\x08\x01"), field(2, string(list[i].value))))))
	}
	return list
}

// readFields returns the type of ClusterLoadAssignment without the fields that
// are not read.
func readFields(t testing.TB) protoreflect.MessageDescriptor {
	t.Helper()
	text, err := os.ReadFile("testdata/endpoints.textproto")
	kit.Must(t, err)
	file := new(descriptorpb.FileDescriptorProto)
	kit.Must(t, prototext.Unmarshal(text, file))
	fd, err := protodesc.NewFile(file, nil)
	kit.Must(t, err)
	return fd.Messages().ByName("ClusterLoadAssignment")
}

// TestEndpointsAccepted has resources that must not be rejected.
func TestEndpointsAccepted(t *testing.T) {
	tests := []struct{ name, json, want string }{
		{"A27-CLA-1: no localities", `{"clusterName": "e"}`, `[]`},
		{"A27-CLA-2: only localities without weight, whatever is in them", `{"clusterName": "e", "endpoints": [
			{"locality": {}}, {"locality": {}, "loadBalancingWeight": 0, "lbEndpoints": [{}]}]}`, `[]`},
		{"A27-CLA-3: the greatest weights in each of two priorities", `{"clusterName": "e", "endpoints": [
			{"locality": {}, "loadBalancingWeight": 4294967295},
			{"locality": {}, "loadBalancingWeight": 4294967294, "priority": 1}, {"locality": {"zone": "z"}, "loadBalancingWeight": 1, "priority": 1}]}`,
			`[{[{{  } 4294967295 [] map[]}]} {[{{  } 4294967294 [] map[]} {{ z } 1 [] map[]}]}]`},
		{"A27-CLA-5: priorities in any order", `{"clusterName": "e", "endpoints": [
			{"locality": {}, "loadBalancingWeight": 2, "priority": 1}, {"locality": {}, "loadBalancingWeight": 1}]}`,
			`[{[{{  } 1 [] map[]}]} {[{{  } 2 [] map[]}]}]`},
		{"A27-CLA-6: a locality in two priorities", `{"clusterName": "e", "endpoints": [
			{"locality": {"region": "r", "zone": "z", "subZone": "s"}, "loadBalancingWeight": 2},
			{"locality": {"region": "r", "zone": "z", "subZone": "s"}, "loadBalancingWeight": 3, "priority": 1}]}`,
			`[{[{{r z s} 2 [] map[]}]} {[{{r z s} 3 [] map[]}]}]`},
		{"EDF-3, T-EDS-3, T-EDS-4: weights up to the limit, addresses of all kinds, port 0", `{"clusterName": "e", "endpoints": [
			{"locality": {}, "loadBalancingWeight": 1, "lbEndpoints": [
				{"endpoint": {"address": {"socketAddress": {"address": "1.2.3.4", "portValue": 0}}}},
				{"endpoint": {"address": {"socketAddress": {"address": "::ffff:1.2.3.5", "portValue": 65535}}}, "loadBalancingWeight": 4294967293},
				{"endpoint": {"address": {"socketAddress": {"address": "2001:DB8::1", "portValue": 1}}}}]}]}`,
			`[{[{{  } 1 [{1.2.3.4:0 1 0 <nil>} {1.2.3.5:65535 4294967293 0 <nil>} {[2001:db8::1]:1 1 0 <nil>}] map[]}]}]`},
		{"A27-UNK-3: fields that gRPC does not know", `{"clusterName": "e", "namedEndpoints": {"x": {}}, "policy": {"overprovisioningFactor": 0},
			"endpoints": [{"locality": {}, "loadBalancingWeight": 1, "proximity": 3}]}`,
			`[{[{{  } 1 [] map[]}]}]`},
	}
	for _, tt := range tests {
		e := decodeAs[*Endpoints](t, EndpointsType, tt.json)
		if got := fmt.Sprint(e.Priorities); got != tt.want {
			t.Errorf("%s: priorities are %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestEndpointsExtra: A61, A76, A81.
func TestEndpointsExtra(t *testing.T) {
	e := decodeAs[*Endpoints](t, EndpointsType, `{"clusterName": "e", "endpoints": [{
		"locality": {}, "loadBalancingWeight": 1, "metadata": {"filterMetadata": {"proxy": {"port": 3, "list": [null, true]}}},
		"lbEndpoints": [{
			"endpoint": {
				"address": {"socketAddress": {"address": "1.2.3.4", "portValue": 80}},
				"additionalAddresses": [{"address": {"socketAddress": {"address": "::1", "portValue": 81}}}],
				"hostname": "host"},
			"metadata": {"filterMetadata": {"envoy.lb": {"hash_key": "key"}}}
		}, {
			"endpoint": {"address": {"socketAddress": {"address": "1.2.3.5", "portValue": 80}}},
			"metadata": {"filterMetadata": {"envoy.lb": {"hash_key": 7}}}
		}]}]}`)
	loc := e.Priorities[0].Localities[0]
	for _, tt := range []struct{ got, want string }{
		{fmt.Sprint(loc.Metadata), "map[proxy:map[list:[<nil> true] port:3]]"},
		{fmt.Sprint(*loc.Endpoints.At(0).Extra), "{[[::1]:81] host key map[envoy.lb:map[hash_key:key]]}"},
		{fmt.Sprint(*loc.Endpoints.At(1).Extra), "{[]   map[envoy.lb:map[hash_key:7]]}"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}

// TestParseAddr compares parsing addresses with netip's.
func TestParseAddr(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	valid := 0
	for range 20000 {
		text := []byte(pick(rnd, "1.2.3.4", "255.250.0.10", "::ffff:1.2.3.4", "fe80::1", "1.2.3.4.5", "300.1.1.1"))
		for range rnd.IntN(4) {
			text = mutate(rnd, text)
		}
		for range rnd.IntN(2) {
			text = append(text, ".019:"[rnd.IntN(5)])
		}
		want, err := netip.ParseAddr(string(text))
		ok := err == nil && want.Zone() == ""
		if ok {
			valid++
		}
		if got, gotOK := parseAddr(text); gotOK != ok || ok && got != want.Unmap() {
			t.Fatalf("parseAddr(%q) = %v, %t, want %v, %t", text, got, gotOK, want, ok)
		}
	}
	if valid < 1000 {
		t.Errorf("only %d addresses were valid", valid)
	}
}

// naiveEndpoints is the oracle of DecodeEndpoints: the rules, one after the
// other, on the decoded message. With names, addresses can be DNS names. It returns nil if one is broken.
func naiveEndpoints(m *endpointv3.ClusterLoadAssignment, names bool) *Endpoints {
	e := &Endpoints{Name: m.GetClusterName()}
	bad := e.Name == ""
	for _, drop := range m.GetPolicy().GetDropOverloads() {
		parts, ok := map[int32]uint64{0: 100, 1: 10000, 2: 1000000}[int32(drop.GetDropPercentage().GetDenominator())]
		if bad = bad || !ok; ok {
			n := uint64(drop.GetDropPercentage().GetNumerator()) * 1000000 / parts
			e.Drops = append(e.Drops, picker.Drop{Category: drop.GetCategory(), PerMillion: uint32(min(n, 1000000))})
		}
	}
	type key struct {
		priority uint32
		id       picker.LocalityID
	}
	localities, addrs, weights := map[key]bool{}, map[netip.AddrPort]bool{}, map[uint32]uint64{}
	levels := map[uint32][]picker.Locality{}
	for _, lm := range m.GetEndpoints() {
		if lm.GetLoadBalancingWeight().GetValue() == 0 {
			continue
		}
		p, id := lm.GetPriority(), picker.LocalityID{Region: lm.GetLocality().GetRegion(), Zone: lm.GetLocality().GetZone(), SubZone: lm.GetLocality().GetSubZone()}
		bad = bad || lm.GetLocality() == nil || localities[key{p, id}]
		localities[key{p, id}] = true
		weights[p] += uint64(lm.GetLoadBalancingWeight().GetValue())
		loc := picker.Locality{ID: id, Weight: lm.GetLoadBalancingWeight().GetValue()}
		if x := newExtra(lm.GetMetadata()); x != nil {
			loc.Metadata = x.Metadata
		}
		sum := uint64(0)
		list := lm.GetLbEndpoints()
		switch config := lm.GetLbConfig().(type) {
		case *endpointv3.LocalityLbEndpoints_LoadBalancerEndpoints:
			bad = bad || len(list) > 0
			list = config.LoadBalancerEndpoints.GetLbEndpoints()
		case *endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig:
			bad = true
		}
		var endpoints []picker.Endpoint
		for _, em := range list {
			if h := em.GetHealthStatus(); h != 0 && h != 1 && h != 3 {
				e.Unhealthy = append(e.Unhealthy, naiveUnhealthy(em, names)...)
				continue
			}
			ep, ok := naiveEndpoint(em, addrs, names)
			bad = bad || !ok
			sum += uint64(ep.Weight)
			endpoints = append(endpoints, ep)
		}
		loc.Endpoints = picker.ListOf(endpoints...)
		bad = bad || sum > math.MaxUint32 || weights[p] > math.MaxUint32
		levels[p] = append(levels[p], loc)
	}
	for p := range uint32(len(levels)) {
		bad = bad || levels[p] == nil
		e.Priorities = append(e.Priorities, picker.Priority{Localities: levels[p]})
	}
	if bad {
		return nil
	}
	slices.SortFunc(e.Unhealthy, func(a, b picker.Unhealthy) int { return strings.Compare(a.Health, b.Health) })
	slices.SortStableFunc(e.Unhealthy, func(a, b picker.Unhealthy) int { return a.Addr.Compare(b.Addr) })
	e.Unhealthy = slices.Compact(e.Unhealthy)
	return e
}

// naiveUnhealthy is an endpoint that is left out, if it can be named.
func naiveUnhealthy(m *endpointv3.LbEndpoint, names bool) []picker.Unhealthy {
	addr, ok := naiveAddr(m.GetEndpoint().GetAddress(), names)
	if !ok {
		return nil
	}
	return []picker.Unhealthy{{Addr: addr, Health: m.GetHealthStatus().String()}}
}

var hostname = regexp.MustCompile(`^([[:alnum:]_]([[:alnum:]_-]{0,61}[[:alnum:]_])?\.)*[[:alnum:]_]([[:alnum:]_-]{0,61}[[:alnum:]_])?\.?$`)
var numeric = regexp.MustCompile(`(^|\.)[0-9]+\.?$`)

func naiveAddr(a *corev3.Address, names bool) (addr netip.AddrPort, ok bool) {
	s := a.GetSocketAddress()
	if _, set := s.GetPortSpecifier().(*corev3.SocketAddress_PortValue); !set || s.GetPortValue() > math.MaxUint16 {
		return addr, false
	}
	ip, err := netip.ParseAddr(s.GetAddress())
	if err != nil && names && len(s.GetAddress()) < 255 && hostname.MatchString(s.GetAddress()) && !numeric.MatchString(s.GetAddress()) {
		return netip.AddrPortFrom(netip.MustParseAddr("::%"+s.GetAddress()), uint16(s.GetPortValue())), true
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(s.GetPortValue())), err == nil && ip.Zone() == ""
}

func naiveEndpoint(m *endpointv3.LbEndpoint, seen map[netip.AddrPort]bool, names bool) (e picker.Endpoint, ok bool) {
	e.Weight, ok = 1, true
	if w := m.GetLoadBalancingWeight(); w != nil {
		e.Weight, ok = w.GetValue(), w.GetValue() != 0
	}
	if m.GetHealthStatus() == 3 {
		e.Health = picker.Draining
	}
	if e.Extra = newExtra(m.GetMetadata()); e.Extra == nil {
		e.Extra = &picker.EndpointExtra{}
	}
	e.Extra.Hostname = m.GetEndpoint().GetHostname()
	list := []*endpointv3.Endpoint_AdditionalAddress{{Address: m.GetEndpoint().GetAddress()}}
	for i, a := range append(list, m.GetEndpoint().GetAdditionalAddresses()...) {
		addr, valid := naiveAddr(a.GetAddress(), names)
		ok = ok && valid && !seen[addr]
		if seen[addr] = true; i == 0 {
			e.Addr = addr
		} else {
			e.Extra.Addrs = append(e.Extra.Addrs, addr)
		}
	}
	if x := e.Extra; x.Hostname == "" && x.Addrs == nil && x.Metadata == nil {
		e.Extra = nil
	}
	return e, ok
}
