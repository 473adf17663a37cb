// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"unicode/utf8"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// sotwCodec is gRPC's codec, but for how it reads a response in state of the world: such
// a response has all resources of its type, of which most have not changed and are only
// hashed. They stay in one buffer, which goes with the response, instead of three
// allocations for each (BenchmarkUnmarshalResponse). What is decoded from them keeps no
// part of it.
type sotwCodec struct{ encoding.CodecV2 }

func newSotWCodec() sotwCodec { return sotwCodec{encoding.GetCodecV2(encodingproto.Name)} }

// Name is empty so that the content type is application/grpc, as without a codec.
func (sotwCodec) Name() string { return "" }

// Unmarshal reads a response as proto.Unmarshal does.
func (c sotwCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if msg, ok := v.(*discoveryv3.DiscoveryResponse); ok {
		return unmarshalResponse(data.Materialize(), msg)
	}
	return c.CodecV2.Unmarshal(data, v)
}

var errMalformed = errors.New("xds: a malformed DiscoveryResponse")

// unmarshalResponse is proto.Unmarshal for a response, whose resources alias the data.
func unmarshalResponse(data []byte, msg *discoveryv3.DiscoveryResponse) error {
	const resources = 2 // field
	var rest []byte     // all other fields
	var list [][]byte
	for len(data) > 0 {
		num, typ, tag := protowire.ConsumeTag(data)
		if tag < 0 || num > protowire.MaxValidNumber {
			return errMalformed
		}
		n := protowire.ConsumeFieldValue(num, typ, data[tag:])
		if n < 0 {
			return errMalformed
		}
		if num == resources && typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data[tag : tag+n])
			list = append(list, value)
		} else {
			rest = append(rest, data[:tag+n]...)
		}
		data = data[tag+n:]
	}
	if err := proto.Unmarshal(rest, msg); err != nil {
		return err
	}
	anys := make([]anypb.Any, len(list))
	msg.Resources = make([]*anypb.Any, len(list))
	url := "" // of the resource before; most are the same
	for i, value := range list {
		msg.Resources[i] = &anys[i]
		if !unmarshalAny(value, &anys[i], url) {
			if err := proto.Unmarshal(value, &anys[i]); err != nil {
				return err
			}
		}
		url = anys[i].TypeUrl
	}
	return nil
}

// unmarshalAny reads an Any that has a type URL and a value and nothing else, whose value
// aliases the data. It reports whether that is so.
func unmarshalAny(data []byte, a *anypb.Any, url string) bool {
	for len(data) > 0 {
		num, typ, tag := protowire.ConsumeTag(data)
		if tag < 0 || typ != protowire.BytesType {
			return false
		}
		value, n := protowire.ConsumeBytes(data[tag:])
		switch {
		case n < 0:
			return false
		case num == 1 && string(value) == url:
			a.TypeUrl = url
		case num == 1 && utf8.Valid(value):
			a.TypeUrl = string(value)
		case num == 2:
			a.Value = value[:len(value):len(value)]
		default:
			return false
		}
		data = data[tag+n:]
	}
	return true
}
