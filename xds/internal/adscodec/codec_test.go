// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package adscodec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

func wrap(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// largeResponse returns a response with n clusters of 1.3 KB.
func largeResponse(n int) *discoveryv3.DiscoveryResponse {
	msg := &discoveryv3.DiscoveryResponse{TypeUrl: resource.ClusterType.URL(), VersionInfo: "7", Nonce: "n",
		ControlPlane:   &corev3.ControlPlane{Identifier: "cp"},
		ResourceErrors: []*discoveryv3.ResourceError{{ErrorDetail: &statuspb.Status{Message: "gone"}}}}
	for i := range n {
		msg.Resources = append(msg.Resources, wrap(xdstest.Cluster(fmt.Sprint("cluster-", i), strings.Repeat("e", 1200))))
	}
	return msg
}

// scattered cuts data into buffers.
func scattered(data []byte, intN func(int) int) (list mem.BufferSlice) {
	for most := 1 + intN(2*len(data)+1); len(data) > 0; {
		n := min(intN(most+1), len(data))
		list = append(list, mem.SliceBuffer(data[:n:n]))
		data = data[n:]
	}
	return list
}

// whole returns a response with its resources.
func (r *Response) whole() *discoveryv3.DiscoveryResponse {
	msg := proto.CloneOf(r.DiscoveryResponse)
	for _, p := range r.Parts {
		msg.Resources = append(msg.Resources, &anypb.Any{TypeUrl: p.URL, Value: p.Value})
	}
	return msg
}

// checkUnmarshal holds Response.read against proto.Unmarshal.
func checkUnmarshal(t *testing.T, data []byte, rng *rand.Rand) {
	t.Helper()
	got, want := &Response{}, &discoveryv3.DiscoveryResponse{}
	gotErr, wantErr := got.read(scattered(data, rng.IntN)), proto.Unmarshal(data, want)
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%x: error %v, want %v", data, gotErr, wantErr)
	}
	for _, a := range want.Resources {
		a.ProtoReflect().SetUnknown(nil) // no caller reads these
	}
	if wantErr == nil && !proto.Equal(got.whole(), want) {
		t.Fatalf("%x:\n%v\nwant\n%v", data, got.whole(), want)
	}
}

// TestUnmarshalResponse reads responses that are whole, changed in a byte or two, and cut.
func TestUnmarshalResponse(t *testing.T) {
	small := largeResponse(0)
	small.Resources = []*anypb.Any{
		wrap(xdstest.Listener("a", "b")), wrap(xdstest.Listener("c", "d")), wrap(xdstest.RouteConfig("r")), {}, {TypeUrl: "x"}, {Value: []byte("y")},
	}
	valid, err := proto.Marshal(small)
	kit.Must(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	checkUnmarshal(t, nil, rng)
	checkUnmarshal(t, append(valid, valid...), rng)
	runs := 20000
	if testing.Short() {
		runs = 4000
	}
	for range runs {
		data := append([]byte(nil), valid...)
		for range rng.IntN(3) {
			data[rng.IntN(len(data))] = byte(rng.Uint32())
		}
		checkUnmarshal(t, data[:len(data)-rng.IntN(2)*rng.IntN(len(data))], rng)
	}
	for at := range valid { // each byte of each tag and length
		for _, b := range []byte{0, 0x0b, 0x0c, 0x12, 0x80, 0xff} {
			data := append([]byte(nil), valid...)
			data[at] = b
			checkUnmarshal(t, data, rng)
		}
	}
}

// FuzzUnmarshalResponse reads bytes that resemble a response, in buffers that end anywhere.
func FuzzUnmarshalResponse(f *testing.F) {
	for n := range 3 {
		data, err := proto.Marshal(largeResponse(n))
		kit.Must(f, err)
		f.Add(data, uint64(n))
	}
	f.Add([]byte{0x13, 0x12, 0x00, 0x14, 0x12, 0x02, 0x0a, 0x00}, uint64(1)) // a group
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		checkUnmarshal(t, data, rand.New(rand.NewPCG(seed, 1)))
	})
}

// TestUnmarshalResponseAllocs: the memory of a response is in a few pieces, however many
// resources it has.
func TestUnmarshalResponseAllocs(t *testing.T) {
	data, err := proto.Marshal(largeResponse(1000))
	kit.Must(t, err)
	list := framesOf(data)
	if n := testing.AllocsPerRun(10, func() {
		r := &Response{}
		err := r.read(list)
		r.Free()
		if err != nil {
			t.Error(err)
		}
	}); n > 30 {
		t.Errorf("%v allocations for 1000 resources", n)
	}
}

// TestTooManyEntries: a response with more entries than maxEntries, or with more than denseEntries
// of which most are small, is not read, in neither variant.
func TestTooManyEntries(t *testing.T) {
	many := func(field byte, n, size int) mem.BufferSlice {
		entry := string([]byte{field<<3 | 2, byte(size - 2), 0xf2, 7, byte(size - 5)}) + strings.Repeat("x", max(size-5, 0)) // an unknown field
		return mem.BufferSlice{mem.SliceBuffer([]byte(strings.Repeat(entry[:size], n)))}
	}
	for _, tt := range []struct {
		n, size int
		refused bool
	}{
		{maxEntries, 10, false},
		{maxEntries + 1, 10, true},
		{denseEntries, 2, false},
		{denseEntries * 4 / 3, 2, false}, // a quarter of which are those of entryBytes
		{denseEntries*4/3 + 1, 2, true},
	} {
		for _, field := range []byte{2, 6} {
			for name, v := range map[string]any{"sotw": &Response{}, "delta": &discoveryv3.DeltaDiscoveryResponse{}} {
				if err := New().Unmarshal(many(field, tt.n, tt.size), v); (err == errTooMany) != tt.refused {
					t.Errorf("%s: %d entries of field %d, %d bytes each: error %v", name, tt.n, field, tt.size, err)
				}
			}
		}
	}
}

// BenchmarkUnmarshalResponse reads a response with 4000 clusters of 1.3 KB, as gRPC's
// codec does and as Codec.
func BenchmarkUnmarshalResponse(b *testing.B) {
	data, err := proto.Marshal(largeResponse(4000))
	if err != nil {
		b.Fatal(err)
	}
	for name, unmarshal := range map[string]func() error{
		"proto": func() error { return proto.Unmarshal(data, &discoveryv3.DiscoveryResponse{}) },
		"sotw":  func() error { return new(Response).read(framesOf(data)) },
	} {
		b.Run("codec="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := unmarshal(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// framesOf cuts data into buffers as gRPC's transport does.
func framesOf(data []byte) (list mem.BufferSlice) {
	for frame := range slices.Chunk(data, 16<<10) {
		list = append(list, mem.SliceBuffer(frame))
	}
	return list
}
