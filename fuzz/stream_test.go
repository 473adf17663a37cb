// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// script is what a server says on a stream: messages, each with its length before
// it. It is cut after so many.
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

// A wire is the client's side of a stream without a network: the bytes that the
// test puts into down arrive, what the client sends is kept.
type wire struct {
	grpc.ClientStream // nil
	ctx               context.Context
	down              chan []byte

	mu sync.Mutex
	up []proto.Message
}

func newWire(ctx context.Context) *wire { return &wire{ctx: ctx, down: make(chan []byte)} }

// sent returns what the client has sent.
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
		if err := proto.Unmarshal(b, m.(proto.Message)); err != nil {
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
