// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// largeResponse returns a response with n clusters of 1.3 KB.
func largeResponse(n int) *discoveryv3.DiscoveryResponse {
	msg := &discoveryv3.DiscoveryResponse{TypeUrl: cds.URL(), VersionInfo: "7", Nonce: "n",
		ControlPlane:   &corev3.ControlPlane{Identifier: "cp"},
		ResourceErrors: []*discoveryv3.ResourceError{{ErrorDetail: &statuspb.Status{Message: "gone"}}}}
	for i := range n {
		msg.Resources = append(msg.Resources, wrap(largeCluster(fmt.Sprint("cluster-", i), 1)))
	}
	return msg
}

// checkUnmarshal holds unmarshalResponse against proto.Unmarshal.
func checkUnmarshal(t *testing.T, data []byte) {
	t.Helper()
	var got, want discoveryv3.DiscoveryResponse
	gotErr, wantErr := unmarshalResponse(data, &got), proto.Unmarshal(data, &want)
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%x: error %v, want %v", data, gotErr, wantErr)
	}
	if wantErr == nil && !proto.Equal(&got, &want) {
		t.Fatalf("%x:\n%v\nwant\n%v", data, &got, &want)
	}
}

// TestUnmarshalResponse reads responses that are whole, changed in a byte or two, and cut.
func TestUnmarshalResponse(t *testing.T) {
	small := largeResponse(0)
	small.Resources = []*anypb.Any{
		wrap(listenerTo("a", "b")), wrap(listenerTo("c", "d")), wrap(routesTo("r", "c")), {}, {TypeUrl: "x"}, {Value: []byte("y")},
	}
	valid, err := proto.Marshal(small)
	if err != nil {
		t.Fatal(err)
	}
	checkUnmarshal(t, nil)
	checkUnmarshal(t, append(valid, valid...))
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		data := append([]byte(nil), valid...)
		for range rng.IntN(3) {
			data[rng.IntN(len(data))] = byte(rng.Uint32())
		}
		checkUnmarshal(t, data[:len(data)-rng.IntN(2)*rng.IntN(len(data))])
	}
	for at := range valid { // each byte of each tag and length
		for _, b := range []byte{0, 0x0b, 0x0c, 0x12, 0x80, 0xff} {
			data := append([]byte(nil), valid...)
			data[at] = b
			checkUnmarshal(t, data)
		}
	}
}

// TestUnmarshalResponseAllocs: the memory of a response is in a few pieces, however many
// resources it has.
func TestUnmarshalResponseAllocs(t *testing.T) {
	data, err := proto.Marshal(largeResponse(1000))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() {
		if err := unmarshalResponse(data, &discoveryv3.DiscoveryResponse{}); err != nil {
			t.Error(err)
		}
	}); n > 60 {
		t.Errorf("%v allocations for 1000 resources", n)
	}
}

// BenchmarkUnmarshalResponse reads a response with 4000 clusters of 1.3 KB, as gRPC's
// codec does and as sotwCodec.
func BenchmarkUnmarshalResponse(b *testing.B) {
	data, err := proto.Marshal(largeResponse(4000))
	if err != nil {
		b.Fatal(err)
	}
	for name, unmarshal := range map[string]func(*discoveryv3.DiscoveryResponse) error{
		"proto": func(m *discoveryv3.DiscoveryResponse) error { return proto.Unmarshal(data, m) },
		"sotw": func(m *discoveryv3.DiscoveryResponse) error {
			return unmarshalResponse(append([]byte(nil), data...), m) // gRPC's buffers are copied
		},
	} {
		b.Run("codec="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var m discoveryv3.DiscoveryResponse
				if err := unmarshal(&m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
