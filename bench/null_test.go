// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"io"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// startNull starts a client that accepts everything and looks at nothing: gRPC alone. It
// ends with the process.
func (spec clientSpec) startNull() error {
	cc, err := grpc.NewClient(spec.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<28)))
	if err != nil {
		return err
	}
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(cc)
	codec := grpc.ForceCodecV2(unseen{encoding.GetCodecV2(encodingproto.Name)})
	node := &corev3.Node{Id: "null"}
	st, err := ads.StreamAggregatedResources(context.Background(), codec)
	if err != nil {
		return err
	}
	for t, names := range spec.Names {
		if err := st.Send(&discoveryv3.DiscoveryRequest{TypeUrl: t, ResourceNames: names, Node: node}); err != nil {
			return err
		}
	}
	go func() {
		var r head
		for st.RecvMsg(&r) == nil {
			ack := &discoveryv3.DiscoveryRequest{TypeUrl: r.url, ResourceNames: spec.Names[r.url], VersionInfo: r.version, ResponseNonce: r.nonce}
			if st.Send(ack) != nil {
				return
			}
		}
	}()
	return nil
}

// head has the fields that an answer to a response must repeat.
type head struct{ version, url, nonce string }

// unseen is gRPC's codec, but for how it reads a response: it passes over the resources.
type unseen struct{ encoding.CodecV2 }

func (unseen) Name() string { return "" }

func (unseen) Unmarshal(data mem.BufferSlice, v any) error {
	h := v.(*head)
	*h = head{}
	r := data.Reader()
	defer func() { _ = r.Close() }()
	for r.Remaining() > 0 {
		tag, err := readVarint(r)
		if err != nil {
			return err
		}
		num, typ := protowire.DecodeTag(tag)
		size, err := readVarint(r)
		if err != nil {
			return err
		}
		into := map[protowire.Number]*string{1: &h.version, 4: &h.url, 5: &h.nonce}[num]
		switch {
		case typ != protowire.BytesType:
		case into == nil:
			_, err = r.Discard(int(size))
		default:
			b := make([]byte, size)
			_, err = io.ReadFull(r, b)
			*into = string(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readVarint(r io.ByteReader) (x uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if x |= uint64(b&0x7f) << shift; b < 0x80 {
			return x, nil
		}
	}
	return 0, io.ErrUnexpectedEOF
}
