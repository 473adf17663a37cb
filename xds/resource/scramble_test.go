// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// randomAssignment returns a message that is valid about half of the time.
func randomAssignment(rnd *rand.Rand) *endpointv3.ClusterLoadAssignment {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: "cluster"[:7*(1-rare(rnd))]}
	for range rnd.IntN(3) {
		m.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: append(m.Policy.GetDropOverloads(), &endpointv3.ClusterLoadAssignment_Policy_DropOverload{
			Category: pick(rnd, "lb", "throttle", "ä"),
			DropPercentage: &typev3.FractionalPercent{
				Numerator:   rnd.Uint32() >> rnd.IntN(32),
				Denominator: typev3.FractionalPercent_DenominatorType(rnd.IntN(3) + 7*rare(rnd)),
			},
		})}
	}
	host := 0
	for l := range rnd.IntN(4) {
		loc := &endpointv3.LocalityLbEndpoints{
			Locality:            &corev3.Locality{Region: pick(rnd, "", "r"), Zone: fmt.Sprint(l * (1 - rare(rnd)))},
			LoadBalancingWeight: wrapperspb.UInt32(rnd.Uint32() >> (1 + rnd.IntN(31)) << rare(rnd)),
			Priority:            uint32(rnd.IntN(2) * l),
		}
		if rare(rnd) == 1 {
			loc.Locality = nil
		}
		if rare(rnd) == 1 {
			loc.LbConfig = &endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig{}
		}
		if rnd.IntN(4) == 0 {
			loc.Metadata = randomMetadata(rnd)
		}
		listed := rnd.IntN(4) == 0 && loc.LbConfig == nil
		for range rnd.IntN(5) {
			e := lbEndpoint(host, 1+rnd.Uint32()>>(rnd.IntN(30)+2))
			host += 1 - rare(rnd)
			e.HealthStatus = corev3.HealthStatus(max(0, rnd.IntN(12)-6))
			at := e.GetEndpoint()
			if rnd.IntN(4) == 0 {
				at.Hostname = pick(rnd, "h1", "h2")
			}
			for range max(0, rnd.IntN(5)-2) {
				at.AdditionalAddresses = append(at.AdditionalAddresses, &endpointv3.Endpoint_AdditionalAddress{
					Address: socketAddress(fmt.Sprintf(pick(rnd, "fe80::%x", "::ffff:1.2.3.%d", "10.0.1.%d"), host), 80),
				})
				host++
			}
			if rnd.IntN(4) == 0 {
				e.Metadata = randomMetadata(rnd)
			}
			if rnd.IntN(3) == 0 {
				e.LoadBalancingWeight = nil
			}
			if rare(rnd) == 1 {
				at.Address = []*corev3.Address{nil, {}, socketAddress("localhost", 1), socketAddress("::1%eth0", 1), socketAddress("1.2.3.04", 1),
					socketAddress("1.2.3.4", 1<<16), {Address: &corev3.Address_Pipe{}}}[rnd.IntN(7)]
			}
			loc.LbEndpoints = append(loc.LbEndpoints, e)
		}
		if listed {
			loc.LbConfig = &endpointv3.LocalityLbEndpoints_LoadBalancerEndpoints{
				LoadBalancerEndpoints: &endpointv3.LocalityLbEndpoints_LbEndpointList{LbEndpoints: loc.LbEndpoints},
			}
			loc.LbEndpoints = loc.LbEndpoints[:min(len(loc.LbEndpoints), rare(rnd))]
		}
		m.Endpoints = append(m.Endpoints, loc)
	}
	return m
}

func randomMetadata(rnd *rand.Rand) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{pick(rnd, "istio", "envoy.lb"): {
		Fields: map[string]*structpb.Value{pick(rnd, "hash_key", "x"): pick(rnd, structpb.NewStringValue("k"), structpb.NewBoolValue(true))},
	}}}
}

func pick[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

// rare returns 1 once in a while.
func rare(rnd *rand.Rand) int {
	if rnd.IntN(40) == 0 {
		return 1
	}
	return 0
}

// scramble encodes a message in another, equivalent way: fields in another order where that
// does not matter, messages in several parts, longer varints than necessary, and unknown
// fields.
func scramble(rnd *rand.Rand, m protoreflect.MessageDescriptor, b []byte) []byte {
	fields := map[protowire.Number][][]byte{}
	var order []protowire.Number
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		value := b[n : n+size]
		b = b[n+size:]
		fd := m.Fields().ByNumber(num)
		field := longTag(rnd, num, typ)
		switch {
		case fd == nil || fd.Kind() != protoreflect.MessageKind || fd.IsMap():
			field = append(field, value...)
		default:
			inner, _ := protowire.ConsumeBytes(value)
			inner = scramble(rnd, fd.Message(), inner)
			if cut := fieldBoundary(rnd, inner); !fd.IsList() {
				field = protowire.AppendBytes(field, inner[:cut])
				field = append(field, longTag(rnd, num, typ)...)
				inner = inner[cut:]
			}
			field = protowire.AppendBytes(field, inner)
		}
		if len(fields[num]) == 0 {
			order = append(order, num)
		}
		fields[num] = append(fields[num], field)
	}
	rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var out []byte
	for _, num := range order {
		for _, f := range fields[num] {
			out = append(out, f...)
			if rnd.IntN(4) == 0 {
				out = protowire.AppendTag(out, protowire.Number(1000+rnd.IntN(100000)), protowire.BytesType)
				out = protowire.AppendString(out, "unknown")
			}
			if rnd.IntN(8) == 0 { // known, but with another wire type
				out = protowire.AppendTag(out, num, protowire.Fixed32Type)
				out = protowire.AppendFixed32(out, rnd.Uint32())
			}
		}
	}
	return out
}

// longTag returns a tag, now and then with an empty byte at its end.
func longTag(rnd *rand.Rand, num protowire.Number, typ protowire.Type) []byte {
	b := protowire.AppendTag(nil, num, typ)
	if rnd.IntN(8) == 0 {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

// fieldBoundary returns a place between two fields of b.
func fieldBoundary(rnd *rand.Rand, b []byte) int {
	at := 0
	for at < len(b) && rnd.IntN(3) > 0 {
		_, _, n := protowire.ConsumeField(b[at:])
		at += n
	}
	return at
}

// mutate damages an encoding somewhere.
func mutate(rnd *rand.Rand, b []byte) []byte {
	if len(b) == 0 {
		return []byte{byte(rnd.Uint32())}
	}
	b = append([]byte(nil), b...)
	i, j := rnd.IntN(len(b)), rnd.IntN(len(b)+1)
	switch rnd.IntN(4) {
	case 0:
		b[i] ^= 1 << rnd.IntN(8)
	case 1:
		b[i] = byte(rnd.Uint32())
	case 2:
		b = b[:j]
	default:
		b = append(b[:i], append(b[min(i, j):max(i, j):max(i, j)], b[i:]...)...)
	}
	return b
}

// nameEndpoints replaces addresses of m by DNS names, which differ as the addresses do.
func nameEndpoints(rnd *rand.Rand, m *endpointv3.ClusterLoadAssignment) {
	for _, loc := range m.Endpoints {
		for _, e := range slices.Concat(loc.LbEndpoints, loc.GetLoadBalancerEndpoints().GetLbEndpoints()) {
			for _, a := range append([]*endpointv3.Endpoint_AdditionalAddress{{Address: e.GetEndpoint().GetAddress()}}, e.GetEndpoint().GetAdditionalAddresses()...) {
				if s := a.GetAddress().GetSocketAddress(); s != nil && rnd.IntN(2) == 0 {
					s.Address = strings.NewReplacer(".", "-", ":", "x").Replace(s.Address) + pick(rnd, "", ".example", ".EXAMPLE.")
					if rare(rnd) == 1 {
						s.Address += pick(rnd, "..", ".9", "-", "%eth0", "ä", ":80")
					}
				}
			}
		}
	}
}
