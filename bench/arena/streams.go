// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// This file has streams: RPCs whose latency is that of their first message, and which stay open
// for long.

const longStreams = "long streams"

// streamed returns the fleets with streams.
func streamed() []Fleet {
	return []Fleet{
		smaller(longStreams, .7, "one RPC in a hundred is a stream that stays open for 10 s; 70 % load").with(func(f *Fleet) {
			f.Methods = []Method{{Share: .99, Mean: 10 * time.Millisecond}, {Share: .01, Mean: 10 * time.Millisecond, Open: 10 * time.Second}}
			f.Warm = 15 * time.Second // the number of open streams is then stationary
			f.ChannelsOnly = true
		}),
	}
}

// openStream opens a stream and keeps it until its server ends it. Its latency is that of its
// first message.
func (w *world) openStream(ctx context.Context, i int, ended func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(w.fleet.Timeout, cancel)
	out := new(wrapperspb.UInt32Value)
	s, err := w.conns[w.work[i].client].NewStream(ctx, &serviceDesc.Streams[0], streaming)
	for _, step := range []func() error{
		func() error { return s.SendMsg(wrapperspb.UInt32(uint32(i))) },
		func() error { return s.CloseSend() },
		func() error { return s.RecvMsg(out) },
	} {
		if err == nil {
			err = step()
		}
	}
	timer.Stop()
	ended(err)
	for err == nil {
		err = s.RecvMsg(out)
	}
}

// stream runs the job, answers, and keeps the stream open for the time set by the RPC's method.
func (n *node) stream(stream grpc.ServerStream) error {
	number := new(wrapperspb.UInt32Value)
	if err := stream.RecvMsg(number); err != nil {
		return err
	}
	out, err := n.do(stream.Context(), number)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(out); err != nil {
		return err
	}
	pause(stream.Context(), n.world.fleet.Methods[n.world.work[number.Value].method].Open)
	return nil
}
