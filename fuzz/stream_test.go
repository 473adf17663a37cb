// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// script splits bytes into the messages of a server, each preceded by its length, up to a
// maximum number.
func script(b []byte, most int) (messages [][]byte) {
	for len(messages) < most {
		m, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return messages
		}
		messages, b = append(messages, m), b[n:]
	}
	return messages
}

// say is the script of messages.
func say(messages ...[]byte) (b []byte) {
	for _, m := range messages {
		b = protowire.AppendBytes(b, m)
	}
	return b
}

// A wire is the client's side of a stream without a network: the bytes that the test puts into
// down arrive, and the client's messages are stored.
type wire struct {
	grpc.ClientStream // nil
	ctx               context.Context
	codec             encoding.CodecV2
	down              chan []byte

	mu sync.Mutex
	up []proto.Message
}

// newWire returns the wire of a stream with options, which may have a codec.
func newWire(ctx context.Context, opts []grpc.CallOption) *wire {
	w := &wire{ctx: ctx, codec: encoding.GetCodecV2(encodingproto.Name), down: make(chan []byte)}
	for _, o := range opts {
		if o, ok := o.(grpc.ForceCodecV2CallOption); ok {
			w.codec = o.CodecV2
		}
	}
	return w
}

// sent returns the client's messages.
func (w *wire) sent() []proto.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up
}

// SendMsg implements grpc.ClientStream.
func (w *wire) SendMsg(m any) error {
	if w.ctx.Err() != nil {
		return io.EOF
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up = append(w.up, proto.Clone(m.(proto.Message)))
	return nil
}

// RecvMsg implements grpc.ClientStream. Bytes that are no message end the stream, as
// gRPC has it.
func (w *wire) RecvMsg(m any) error {
	select {
	case b := <-w.down:
		if err := w.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m); err != nil {
			return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
		}
		return nil
	case <-w.ctx.Done():
		return status.FromContextError(w.ctx.Err()).Err()
	}
}

// CloseSend implements grpc.ClientStream.
func (w *wire) CloseSend() error { return nil }

// Context implements grpc.ClientStream.
func (w *wire) Context() context.Context { return w.ctx }

// Header implements grpc.ClientStream.
func (w *wire) Header() (metadata.MD, error) { return nil, nil }
