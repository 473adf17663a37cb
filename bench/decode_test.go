// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkDecode decodes and validates the EDS resource of n endpoints.
// change=weight has seen the previous version, which differs in one weight, as a
// client has. impl=proto is proto.Unmarshal and a walk over the message that
// formats the addresses and does nothing else.
func BenchmarkDecode(b *testing.B) {
	for _, n := range sizes(100, 1000, 10_000) {
		sc := scenario{localities: 5, perLocality: n / 5, weighted: true}
		first := encode(b, sc.resources(0).Endpoints[0])
		second := encode(b, sc.resources(1).Endpoints[0])
		run := func(impl, change string, decode func(value []byte)) {
			b.Run(fmt.Sprintf("impl=%s/n=%d/change=%s", impl, n, change), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(first)))
				values := [][]byte{first, second}
				defer charge(b)()
				for i := 0; b.Loop(); i++ {
					decode(values[i%2])
				}
			})
		}
		run("ours", "all", func(value []byte) {
			decodeEndpoints(b, value, nil)
		})
		prev := decodeEndpoints(b, second, nil)
		run("ours", "weight", func(value []byte) {
			prev = decodeEndpoints(b, value, prev)
		})
		run("proto", "all", func(value []byte) {
			m := new(endpointv3.ClusterLoadAssignment)
			if err := proto.Unmarshal(value, m); err != nil {
				b.Fatal(err)
			}
			for _, l := range m.Endpoints {
				for _, e := range l.LbEndpoints {
					a := e.GetEndpoint().GetAddress().GetSocketAddress()
					sink += len(net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue()))))
				}
			}
		})
		if stock.decode != nil {
			decode := func(value []byte) {
				if err := stock.decode(xdstest.EDS, value); err != nil {
					b.Fatal(err)
				}
			}
			run("stock", "all", decode)
			run("stock", "weight", decode) // it has no other way
		}
	}
}

func encode(tb testing.TB, m proto.Message) []byte {
	return must(tb, func() ([]byte, error) { return proto.MarshalOptions{Deterministic: true}.Marshal(m) })
}

func decodeEndpoints(b *testing.B, value []byte, prev *resource.Endpoints) *resource.Endpoints {
	v := must(b, func() (any, error) {
		return resource.Decode(resource.EndpointsType, value, resource.Options{Previous: prev})
	})
	return v.(*resource.Endpoints)
}
