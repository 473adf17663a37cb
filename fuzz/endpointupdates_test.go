// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

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
