// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// bufferSize returns how many bytes of an RPC's requests gRPC keeps for further attempts:
// grpc.MaxRetryRPCBufferSize, or 256 KiB.
func bufferSize(opts []grpc.CallOption) int {
	limit := 256 << 10
	for _, o := range opts {
		if o, ok := o.(grpc.MaxRetryRPCBufferSizeCallOption); ok {
			limit = o.MaxRetryRPCBufferSize
		}
	}
	return limit
}

// wireSize returns the size of a request for this limit, in bytes. gRPC uses the size on the wire;
// this is the size before compression. A request of another codec than protobuf's is encoded to
// measure it. A request whose size is unknown is not kept.
func wireSize(req any, opts []grpc.CallOption) int {
	const frameHeader, unknown = 5, math.MaxInt
	codec, subtype := codecOf(opts)
	if codec == nil && (subtype == "" || subtype == encodingproto.Name) {
		switch m := req.(type) {
		case proto.Message:
			return frameHeader + proto.Size(m)
		case protoadapt.MessageV1:
			return frameHeader + proto.Size(protoadapt.MessageV2Of(m))
		}
		return unknown
	}
	if codec == nil {
		codec = registered(subtype)
	}
	if n, ok := encodedSize(codec, req); ok {
		return frameHeader + n
	}
	return unknown
}

// codecOf returns the codec that an RPC's options force, or nil, and the name of its content
// subtype.
func codecOf(opts []grpc.CallOption) (codec any, subtype string) {
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ForceCodecV2CallOption:
			codec = o.CodecV2
		case grpc.ForceCodecCallOption:
			codec = o.Codec
		case grpc.CustomCodecCallOption:
			codec = o.Codec
		case grpc.ContentSubtypeCallOption:
			subtype = o.ContentSubtype
		}
	}
	return codec, subtype
}

// registered returns the registered codec with a name, or nil.
func registered(name string) any {
	if c := encoding.GetCodecV2(name); c != nil {
		return c
	}
	return encoding.GetCodec(name)
}

// encodedSize returns the size of a message that a codec of either kind encodes.
func encodedSize(codec, m any) (n int, ok bool) {
	switch codec := codec.(type) {
	case encoding.CodecV2:
		data, err := codec.Marshal(m)
		defer data.Free()
		return data.Len(), err == nil
	case interface{ Marshal(any) ([]byte, error) }:
		data, err := codec.Marshal(m)
		return len(data), err == nil
	}
	return 0, false
}
