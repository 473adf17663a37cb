// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
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

// arrived returns what a response is when it has come through gRPC, in buffers that end
// anywhere.
func arrived(msg proto.Message) message {
	switch msg := msg.(type) {
	case message:
		return msg
	case *discoveryv3.DeltaDiscoveryResponse:
		return deltaResponse{msg}
	}
	data, err := proto.Marshal(msg)
	if err != nil {
		panic(err)
	}
	r := &sotwResponse{}
	if err := r.read(scattered(data, rand.IntN)); err != nil {
		panic(err)
	}
	return r
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
func (r *sotwResponse) whole() *discoveryv3.DiscoveryResponse {
	msg := proto.CloneOf(r.DiscoveryResponse)
	for _, p := range r.parts {
		msg.Resources = append(msg.Resources, &anypb.Any{TypeUrl: p.url, Value: p.value})
	}
	return msg
}

// checkUnmarshal holds sotwResponse.read against proto.Unmarshal.
func checkUnmarshal(t *testing.T, data []byte, rng *rand.Rand) {
	t.Helper()
	got, want := &sotwResponse{}, &discoveryv3.DiscoveryResponse{}
	gotErr, wantErr := got.read(scattered(data, rng.IntN)), proto.Unmarshal(data, want)
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%x: error %v, want %v", data, gotErr, wantErr)
	}
	for _, a := range want.Resources {
		a.ProtoReflect().SetUnknown(nil) // nobody asks for these
	}
	if wantErr == nil && !proto.Equal(got.whole(), want) {
		t.Fatalf("%x:\n%v\nwant\n%v", data, got.whole(), want)
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
	rng := rand.New(rand.NewPCG(1, 2))
	checkUnmarshal(t, nil, rng)
	checkUnmarshal(t, append(valid, valid...), rng)
	runs := 20000
	if testing.Short() || raceEnabled {
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

// FuzzUnmarshalResponse reads what is like a response, in buffers that end anywhere.
func FuzzUnmarshalResponse(f *testing.F) {
	for n := range 3 {
		data, err := proto.Marshal(largeResponse(n))
		if err != nil {
			f.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	list := framesOf(data)
	if n := testing.AllocsPerRun(10, func() {
		r := &sotwResponse{}
		err := r.read(list)
		r.free()
		if err != nil {
			t.Error(err)
		}
	}); n > 30 {
		t.Errorf("%v allocations for 1000 resources", n)
	}
}

// BenchmarkUnmarshalResponse reads a response with 4000 clusters of 1.3 KB, as gRPC's
// codec does and as adsCodec.
func BenchmarkUnmarshalResponse(b *testing.B) {
	data, err := proto.Marshal(largeResponse(4000))
	if err != nil {
		b.Fatal(err)
	}
	for name, unmarshal := range map[string]func() error{
		"proto": func() error { return proto.Unmarshal(data, &discoveryv3.DiscoveryResponse{}) },
		"sotw":  func() error { return new(sotwResponse).read(framesOf(data)) },
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
