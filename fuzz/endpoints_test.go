// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// endpointSeeds are load assignments, and why each is of interest.
func endpointSeeds() []*endpointv3.ClusterLoadAssignment {
	addr := func(n byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 443) }
	hosts := func(first byte, weights ...uint32) (list []xdstest.Endpoint) {
		for i, w := range weights {
			list = append(list, xdstest.Endpoint{Addr: addr(first + byte(i)), Weight: w})
		}
		return list
	}
	zone := func(name string, priority, weight uint32, list ...xdstest.Endpoint) xdstest.Locality {
		return xdstest.Locality{Place: xdstest.Place{Region: "r", Zone: name}, Priority: priority, Weight: weight, Endpoints: list}
	}
	change := func(m *endpointv3.ClusterLoadAssignment, f func(*endpointv3.LocalityLbEndpoints)) *endpointv3.ClusterLoadAssignment {
		f(m.Endpoints[0])
		return m
	}
	one := func() *endpointv3.ClusterLoadAssignment {
		return xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, 1)...))
	}
	draining := hosts(1, 1, 1)
	draining[0].Health = corev3.HealthStatus_DRAINING
	unhealthy := hosts(1, 1, 1)
	unhealthy[1].Health = corev3.HealthStatus_UNHEALTHY
	return []*endpointv3.ClusterLoadAssignment{
		{},                     // no name
		xdstest.Endpoints("s"), // nothing to pick (A27-CLA-4)
		one(),
		xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, 1, 2, 3)...), zone("b", 0, 2, hosts(9, 5, 5)...)),                     // weights on both levels
		xdstest.Endpoints("s", zone("b", 0, 2, hosts(9, 5, 5)...), zone("a", 0, 1, hosts(1, 3, 2, 1)...)),                     // the same in another order, one weight changed
		xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, 1)...), zone("a", 1, 1, hosts(2, 1)...)),                              // two priorities
		xdstest.Endpoints("s", zone("a", 1, 1, hosts(1, 1)...)),                                                               // a gap in them (A27-CLA-5)
		xdstest.Endpoints("s", zone("a", 0, 1), zone("a", 0, 1)),                                                              // a locality twice (A27-CLA-6)
		xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, 1)...), zone("b", 0, 1, hosts(1, 1)...)),                              // an address twice (A27-CLA-12)
		xdstest.Endpoints("s", zone("a", 0, math.MaxUint32), zone("b", 0, 1)),                                                 // too much weight (A27-CLA-3)
		xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, math.MaxUint32, 1)...)),                                               // likewise of endpoints (T-EDS-3)
		xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, math.MaxUint32-1, 1)...)),                                             // the most there can be
		xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, math.MaxUint32)...), zone("b", 0, 1, hosts(2, math.MaxUint32, 0)...)), // in one layer more than a locality may have
		xdstest.Endpoints("s", zone("a", 0, 1, draining...)),                                                                  // A55
		xdstest.Endpoints("s", zone("a", 0, 1, unhealthy...)),                                                                 // A27-CLA-8
		testplane.Drop(testplane.Drop(one(), "throttle", 250000), "all", 2000000),                                             // more than everything
		change(one(), func(l *endpointv3.LocalityLbEndpoints) { // excluded, but its contents are invalid
			l.LoadBalancingWeight = nil
			l.LbEndpoints[0].HostIdentifier = nil
		}),
		change(one(), func(l *endpointv3.LocalityLbEndpoints) { l.LbEndpoints[0].LoadBalancingWeight = wrapperspb.UInt32(0) }),
		change(one(), func(l *endpointv3.LocalityLbEndpoints) { // A27-CLA-11
			l.LbEndpoints[0].GetEndpoint().Address.GetSocketAddress().Address = "example.com"
		}),
		change(one(), func(l *endpointv3.LocalityLbEndpoints) { // the address of another endpoint in disguise, and everything an endpoint can have (A61, A76, A81)
			e := l.LbEndpoints[0].GetEndpoint()
			e.Hostname = "h"
			mapped := proto.CloneOf(e.Address)
			mapped.GetSocketAddress().Address = "::ffff:10.0.0.2"
			e.AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: mapped}}
			l.LbEndpoints[0].Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
				"envoy.lb": {Fields: map[string]*structpb.Value{"hash_key": structpb.NewStringValue("k"), "nan": structpb.NewNumberValue(math.NaN())}},
			}}
			l.Metadata = l.LbEndpoints[0].Metadata
		}),
	}
}

// wireSeeds are encodings that no encoder produces, but that are valid. Encodings of an
// endpoint replace the only one of a valid resource.
func wireSeeds() (list [][]byte) {
	field := func(n protowire.Number, value ...string) string {
		return string(protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), strings.Join(value, "")))
	}
	const port, named = "\x18\x50", "\x22\x04http"
	ip := field(2, "10.0.0.1")
	address := func(socket ...string) string { return field(1, field(1, socket...)) }
	for _, endpoint := range []string{
		field(1, address(ip, port)) + field(5, "name"),                       // the last of a oneof counts
		field(5, "name") + field(1, address(ip, port)),                       //
		field(1, address(ip, port, named)),                                   //
		field(1, address(ip, named, port)),                                   //
		field(1, field(1, field(1, ip, port), field(2))),                     //
		field(1, field(1, field(1, ip, port), field(3), field(1, ip, port))), // and is not merged with its previous value
		field(1, address(ip)) + field(1, address(port)),                      // two halves are merged
		field(1, address(ip, port)) + field(4, "\x08\x00") + field(4),        // the weight stays 0
		field(1, address(ip, port)) + "\x20\x05",                             // a weight of the wrong wire type
		field(1, address(ip, port)) + "\x10\x80\x80\x80\x80\x10",             // a health beyond 32 bits
		field(1, address(ip, "\x18\xd0\x80\x80\x80\x10")),                    // likewise a port
		field(1, address(ip, port)) + "\x7b\x7c",                             // a group
		field(1, address(ip, port)) + "\x7b",                                 // that does not end
		field(1, address(ip, port), field(3, "\xff")),                        // a hostname that is not UTF-8
		field(1, address(ip, port)) + field(3, field(1, field(1, "a\xff"))),  // nor is this
		"\x10\x02" + field(1, "\x80"),                                        // left out, but malformed
		field(1, address(ip, port), field(4, field(1, field(1, ip, port)))),  // an address twice in one endpoint
		field(1, address(field(2, "::1%eth0"), port)),                        // a zone
		field(1, address(field(2, "010.0.0.1"), port)),                       // octal, or not
	} {
		list = append(list, []byte(field(1, "s")+field(2, field(1, field(2, "z")), field(3, "\x08\x01"), field(2, endpoint))))
	}
	return list
}

// FuzzEndpoints takes an EDS resource, and another that came before it, through
// decoding to picks, with or without DNS names as addresses.
func FuzzEndpoints(f *testing.F) {
	last := []byte(nil)
	for _, m := range endpointSeeds() {
		b := encode(f, m)
		f.Add(b, last, false)
		f.Add(b, b, true)
		last = b
	}
	for _, b := range append(wireSeeds(), recorded(f, resource.EndpointsType, "-eds", "endpoints.txt")...) {
		f.Add(b, last, true)
		f.Add(slices.Concat(b, b), b, false) // merges the two
		last = b
	}
	f.Fuzz(func(t *testing.T, value, before []byte, names bool) {
		decode := func(value []byte, prev *resource.Endpoints) (*resource.Endpoints, error) {
			e, err := resource.Decode(resource.EndpointsType, value, resource.Options{Previous: prev, AcceptHostnames: names})
			got, _ := e.(*resource.Endpoints)
			return got, err
		}
		var got *resource.Endpoints
		var err error
		spend(t, 128*len(value)+64<<10, func() { got, err = decode(value, nil) })
		checkEndpoints(t, value, names, got, err)

		prev, _ := decode(before, nil)
		var next *resource.Endpoints
		var nextErr error
		spend(t, 128*(len(value)+len(before))+64<<10, func() { next, nextErr = decode(value, prev) })
		if fmt.Sprint(nextErr) != fmt.Sprint(err) {
			t.Fatalf("error is %v, after another version %v", err, nextErr)
		}
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if text, want := render(next), render(got); text != want {
			t.Fatalf("after another version it is\n%s\nwant\n%s", text, want)
		}
		if again, err := decode(value, next); again != next {
			t.Errorf("the same bytes are not the same as before (%v):\n%s\nthen\n%s", err, render(next), render(again))
		}
		checkPicks(t, got, next)
	})
}

// checkEndpoints compares the result for value with the oracle. Bytes that proto.Unmarshal
// rejects may be accepted because of a field that is not read.
func checkEndpoints(t *testing.T, value []byte, names bool, got *resource.Endpoints, err error) {
	t.Helper()
	m := new(endpointv3.ClusterLoadAssignment)
	if proto.Unmarshal(value, m) != nil {
		return
	}
	want, rule := naiveEndpoints(m, names)
	if (err != nil) != (rule != "") {
		t.Fatalf("%v\nerror is %v, but the oracle's is %q", m, err, rule)
	}
	if err != nil {
		return
	}
	if text, want := render(got), render(want); text != want {
		t.Fatalf("%v\nis decoded to\n%s\nwant\n%s", m, text, want)
	}
}

// naiveEndpoints is the oracle: the message as a list, and which rule it breaks.
func naiveEndpoints(m *endpointv3.ClusterLoadAssignment, names bool) (e *resource.Endpoints, rule string) {
	e = &resource.Endpoints{Name: m.GetClusterName()}
	require := func(ok bool, what string) {
		if !ok {
			rule = what
		}
	}
	require(e.Name != "", "name")
	for _, d := range m.GetPolicy().GetDropOverloads() {
		p := d.GetDropPercentage()
		require(p.GetDenominator() >= 0 && p.GetDenominator() <= 2, "denominator")
		unit := map[int32]uint64{0: 10000, 1: 100, 2: 1}[int32(p.GetDenominator())]
		e.Drops = append(e.Drops, picker.Drop{Category: d.GetCategory(), PerMillion: uint32(min(1e6, uint64(p.GetNumerator())*unit))})
	}
	var places, addrs []string // values that must be unique
	levels := make(map[uint32]picker.Priority)
	shares := make(map[uint32]uint64)
	for _, in := range m.GetEndpoints() {
		weight, place := in.GetLoadBalancingWeight().GetValue(), in.GetLocality()
		if weight == 0 {
			continue
		}
		l := picker.Locality{ID: picker.LocalityID{Region: place.GetRegion(), Zone: place.GetZone(), SubZone: place.GetSubZone()}, Weight: weight}
		l.Metadata, _ = naiveMetadata(in.GetMetadata())
		list := in.GetLbEndpoints()
		if listed := in.GetLoadBalancerEndpoints(); in.GetLbConfig() != nil && in.GetLedsClusterLocalityConfig() == nil {
			require(len(list) == 0, "lb_endpoints twice")
			list = listed.GetLbEndpoints()
		}
		if in.GetLedsClusterLocalityConfig() != nil {
			require(false, "leds_cluster_locality_config")
		}
		require(place != nil, "locality")
		places = append(places, fmt.Sprintf("%d %q", in.GetPriority(), l.ID))
		sum := uint64(0)
		var endpoints []picker.Endpoint
		for _, ep := range list {
			if !slices.Contains([]corev3.HealthStatus{corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DRAINING}, ep.GetHealthStatus()) {
				continue
			}
			endpoint, ok := naiveEndpoint(ep, names)
			require(ok, "endpoint")
			sum += uint64(endpoint.Weight)
			for _, a := range append([]netip.AddrPort{endpoint.Addr}, endpoint.Extra.Addrs...) {
				addrs = append(addrs, a.String())
			}
			endpoints = append(endpoints, endpoint)
		}
		l.Endpoints = picker.ListOf(endpoints...)
		require(sum <= math.MaxUint32, "endpoint weights")
		shares[in.GetPriority()] += uint64(weight)
		level := levels[in.GetPriority()]
		level.Localities = append(level.Localities, l)
		levels[in.GetPriority()] = level
	}
	for p := range uint32(len(levels)) {
		level, ok := levels[p]
		require(ok, "priorities")
		require(shares[p] <= math.MaxUint32, "locality weights")
		e.Priorities = append(e.Priorities, level)
	}
	for _, list := range [][]string{places, addrs} {
		n := len(list)
		slices.Sort(list)
		require(len(slices.Compact(list)) == n, "unique")
	}
	return e, rule
}

func naiveEndpoint(m *endpointv3.LbEndpoint, names bool) (e picker.Endpoint, ok bool) {
	e = picker.Endpoint{Weight: 1, Extra: &picker.EndpointExtra{Hostname: m.GetEndpoint().GetHostname()}}
	if m.GetHealthStatus() == corev3.HealthStatus_DRAINING {
		e.Health = picker.Draining
	}
	if m.GetLoadBalancingWeight() != nil {
		e.Weight = m.GetLoadBalancingWeight().GetValue()
	}
	e.Extra.Metadata, e.Extra.HashKey = naiveMetadata(m.GetMetadata())
	e.Addr, ok = naiveAddress(m.GetEndpoint().GetAddress(), names)
	ok = ok && e.Weight > 0
	for _, more := range m.GetEndpoint().GetAdditionalAddresses() {
		addr, valid := naiveAddress(more.GetAddress(), names)
		e.Extra.Addrs = append(e.Extra.Addrs, addr)
		ok = ok && valid
	}
	return e, ok
}

// hostname matches DNS names, except for names that end in a number, and overlong ones.
var hostname = regexp.MustCompile(`^([[:alnum:]_]([[:alnum:]_-]{0,61}[[:alnum:]_])?\.)*[[:alnum:]_]([[:alnum:]_-]{0,61}[[:alnum:]_])?\.?$`)

func naiveAddress(m *corev3.Address, names bool) (netip.AddrPort, bool) {
	s := m.GetSocketAddress()
	ip, err := netip.ParseAddr(s.GetAddress())
	_, numbered := s.GetPortSpecifier().(*corev3.SocketAddress_PortValue)
	ok := err == nil && ip.Zone() == "" && numbered && s.GetPortValue() <= math.MaxUint16
	if name := s.GetAddress(); names && err != nil && len(name) < 255 && hostname.MatchString(name) && !regexp.MustCompile(`(^|\.)[0-9]+\.?$`).MatchString(name) {
		ip, ok = netip.MustParseAddr("::%"+name), numbered && s.GetPortValue() <= math.MaxUint16
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(s.GetPortValue())), ok
}

func naiveMetadata(m *corev3.Metadata) (data picker.Metadata, hashKey string) {
	if len(m.GetFilterMetadata()) > 0 {
		data = make(picker.Metadata)
	}
	for name, object := range m.GetFilterMetadata() {
		data[name] = object.AsMap()
	}
	return data, m.GetFilterMetadata()["envoy.lb"].GetFields()["hash_key"].GetStringValue()
}

// render writes e in an order of its own, since the decoder may keep the order
// that an earlier version had. The text is the same for equal contents, NaN
// included.
func render(e *resource.Endpoints) string {
	text := fmt.Sprintf("%q drops %+v\n", e.Name, e.Drops)
	for p, level := range e.Priorities {
		var localities []string
		for _, l := range level.Localities {
			line := fmt.Sprintf(" priority %d: %q weight %d %#v\n", p, l.ID, l.Weight, l.Metadata)
			list := l.Endpoints.Slice()
			slices.SortFunc(list, func(a, b picker.Endpoint) int {
				return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Weight, b.Weight))
			})
			for _, ep := range list {
				var x picker.EndpointExtra
				if ep.Extra != nil {
					x = *ep.Extra
				}
				line += fmt.Sprintf("  %v weight %d health %d, %v %q %q %#v\n", ep.Addr, ep.Weight, ep.Health, x.Addrs, x.Hostname, x.HashKey, x.Metadata)
			}
			localities = append(localities, line)
		}
		slices.Sort(localities)
		text += fmt.Sprint(localities)
	}
	return text
}

// FuzzEndpointUpdates makes a history of versions of an EDS resource with several hundred endpoints from
// edits of four bytes each, of which some make it invalid, and damages the encoding of some
// versions. Each version is decoded with the previous one, and without: the results and the errors are the
// same.
func FuzzEndpointUpdates(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	for kind := range byte(editKinds) {
		one := []byte{kind, 100, 0, 7, endVersion, 0, 0, 0}
		f.Add(one, uint16(0))
		f.Add(slices.Concat(one, one, []byte{kind + 1, 180, 1, 90, endVersion, 0, 0, 0}, one), uint16(200*uint16(kind)))
	}
	f.Fuzz(func(t *testing.T, edits []byte, damage uint16) {
		e := newEndpointEdits()
		var prev *resource.Endpoints
		last := proto.CloneOf(e.m)
		edits = edits[:min(len(edits), 4*40)]
		for version := 0; len(edits) >= 4; version++ {
			for len(edits) >= 4 {
				edit := edits[:4]
				edits = edits[4:]
				if edit[0] >= endVersion {
					break
				}
				e.apply(edit)
			}
			b := encode(t, e.m)
			if version%3 == 2 && damage > 0 {
				b[int(damage)%len(b)] ^= 1 << (damage % 8)
			}
			want, wantErr := decodeEndpoints(b, nil)
			got, err := decodeEndpoints(b, prev)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("version %d: error %v with the previous version, want %v", version, err, wantErr)
			}
			if err != nil {
				e.m = proto.CloneOf(last)
				continue
			}
			if text, wantText := render(got), render(want); text != wantText {
				t.Fatalf("version %d: with the previous version\n%s\nwithout\n%s", version, text, wantText)
			}
			prev, last = got, proto.CloneOf(e.m)
		}
	})
}

func decodeEndpoints(b []byte, prev *resource.Endpoints) (*resource.Endpoints, error) {
	v, err := resource.Decode(resource.EndpointsType, b, resource.Options{Previous: prev})
	e, _ := v.(*resource.Endpoints)
	return e, err
}

const (
	editKinds  = 14
	endVersion = 200 // and the values above it
)

// endpointEdits changes a resource.
type endpointEdits struct {
	m    *endpointv3.ClusterLoadAssignment
	next int
}

func newEndpointEdits() *endpointEdits {
	e := &endpointEdits{}
	var places []xdstest.Locality
	for _, zone := range []string{"a", "b"} {
		l := xdstest.Locality{Place: xdstest.Place{Region: "r", Zone: zone}, Weight: 1}
		for range 200 {
			l.Endpoints = append(l.Endpoints, e.endpoint())
		}
		places = append(places, l)
	}
	e.m = xdstest.Endpoints("s", places...)
	return e
}

func (e *endpointEdits) endpoint() xdstest.Endpoint {
	e.next++
	return xdstest.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(e.next >> 8), byte(e.next)}), 443), Weight: 1 + uint32(e.next%3)}
}

func (e *endpointEdits) fresh() *endpointv3.LbEndpoint {
	place := xdstest.Locality{Place: xdstest.Place{Region: "r", Zone: "x"}, Weight: 1, Endpoints: []xdstest.Endpoint{e.endpoint()}}
	return xdstest.Endpoints("s", place).Endpoints[0].LbEndpoints[0]
}

// apply makes an edit: its kind, an index, a locality, and a value.
func (e *endpointEdits) apply(edit []byte) {
	l := e.m.Endpoints[int(edit[2])%len(e.m.Endpoints)]
	if len(l.LbEndpoints) == 0 {
		l.LbEndpoints = append(l.LbEndpoints, e.fresh())
	}
	n := len(l.LbEndpoints)
	i, value := int(edit[1])%n, edit[3]
	at := l.LbEndpoints[i]
	switch edit[0] % editKinds {
	case 0: // 0 is invalid
		at.LoadBalancingWeight = wrapperspb.UInt32(uint32(value))
	case 1:
		l.LbEndpoints = slices.Insert(l.LbEndpoints, i, e.fresh())
	case 2:
		l.LbEndpoints = slices.Delete(l.LbEndpoints, i, min(n, i+1+int(value)/8))
	case 3:
		j := int(value) % n
		l.LbEndpoints[i], l.LbEndpoints[j] = l.LbEndpoints[j], l.LbEndpoints[i]
	case 4:
		slices.Reverse(l.LbEndpoints[i:])
	case 5: // to another locality
		l.LbEndpoints = slices.Delete(l.LbEndpoints, i, i+1)
		to := e.m.Endpoints[int(value)%len(e.m.Endpoints)]
		to.LbEndpoints = slices.Insert(to.LbEndpoints, min(i, len(to.LbEndpoints)), at)
	case 6: // twice, which is invalid
		to := e.m.Endpoints[int(value)%len(e.m.Endpoints)]
		to.LbEndpoints = slices.Insert(to.LbEndpoints, min(int(value), len(to.LbEndpoints)), proto.CloneOf(at))
	case 7:
		at.HealthStatus = corev3.HealthStatus(value % 6)
	case 8:
		at.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"envoy.lb": {Fields: map[string]*structpb.Value{"hash_key": structpb.NewStringValue(fmt.Sprint(value % 4))}},
		}}
	case 9:
		at.GetEndpoint().Hostname = fmt.Sprint(value % 3)
	case 10: // may be an address of another endpoint
		other := e.m.Endpoints[0].LbEndpoints
		if len(other) > 0 {
			address := proto.CloneOf(other[int(value)%len(other)].GetEndpoint().Address)
			address.GetSocketAddress().PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: 443 + uint32(value%2)}
			at.GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: address}}
		}
	case 11:
		l.Priority = uint32(value % 2)
	case 12: // the sum may be too large
		at.LoadBalancingWeight = wrapperspb.UInt32(math.MaxUint32 - uint32(value)*4)
	default: // in order, or not
		slices.Reverse(e.m.Endpoints)
	}
}
