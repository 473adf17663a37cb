// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// plain returns e without what only DecodeEndpoints keeps.
func plain(e *Endpoints) *Endpoints {
	if e == nil {
		return nil
	}
	return &Endpoints{Name: e.Name, Priorities: e.Priorities, Drops: e.Drops}
}

// TestEndpointsOracle compares decoding with the oracle: messages as the library
// encodes them, the same in odd encodings, and damaged ones. The latter are
// refused if a proto library refuses them that knows only the fields that are
// read (testdata/endpoints.textproto).
func TestEndpointsOracle(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	read := readFields(t)
	desc := (&endpointv3.ClusterLoadAssignment{}).ProtoReflect().Descriptor()
	var valid, invalid, malformed int
	check := func(kind string, b []byte) {
		t.Helper()
		got, err := DecodeEndpoints(b, nil)
		m := new(endpointv3.ClusterLoadAssignment)
		if proto.Unmarshal(b, m) != nil {
			malformed++
			if proto.Unmarshal(b, dynamicpb.NewMessage(read)) != nil && err == nil {
				t.Fatalf("%s message %x is malformed, but was decoded", kind, b)
			}
			return
		}
		want := naiveEndpoints(m)
		if want == nil {
			invalid++
		} else {
			valid++
		}
		if (err != nil) != (want == nil) || !reflect.DeepEqual(plain(got), want) {
			t.Fatalf("%s message %x:\n got %+v, %v\nwant %+v", kind, b, got, err, want)
		}
	}
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	for range rounds {
		b := encode(t, randomAssignment(rnd))
		check("plain", b)
		check("scrambled", scramble(rnd, desc, b))
		check("doubled", append(slices.Clone(b), encode(t, randomAssignment(rnd))...))
		for range 5 {
			check("damaged", mutate(rnd, b))
		}
	}
	if valid < rounds || invalid < rounds/2 || malformed < rounds/2 {
		t.Errorf("%d valid, %d invalid, %d malformed messages of %d rounds: too few of a kind", valid, invalid, malformed, rounds)
	}
}

// readFields returns the type of ClusterLoadAssignment without the fields that
// are not read.
func readFields(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	text, err := os.ReadFile("testdata/endpoints.textproto")
	if err != nil {
		t.Fatal(err)
	}
	file := new(descriptorpb.FileDescriptorProto)
	if err := prototext.Unmarshal(text, file); err != nil {
		t.Fatal(err)
	}
	fd, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return fd.Messages().ByName("ClusterLoadAssignment")
}
