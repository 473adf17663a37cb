// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// bufferSize is how much gRPC keeps of an RPC's requests for other attempts: what
// grpc.MaxRetryRPCBufferSize says, or 256 KiB.
func bufferSize(opts []grpc.CallOption) int {
	limit := 256 << 10
	for _, o := range opts {
		if o, ok := o.(grpc.MaxRetryRPCBufferSizeCallOption); ok {
			limit = o.MaxRetryRPCBufferSize
		}
	}
	return limit
}

// wireSize is the size of a request that counts for that, in bytes. gRPC means what is sent;
// this is the size before compression. A request of another codec than protobuf's is encoded
// to find out. If the size is unknown the request is not kept.
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

// codecOf returns the codec that an RPC's options force, or nil, and else the name of its own.
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

// registered returns the codec with a name, or nil.
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
