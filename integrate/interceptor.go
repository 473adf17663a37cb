// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
)

// UnaryInterceptor applies what the route of a unary RPC says besides where the
// RPC goes, as far as gRPC's service config cannot: timeouts and retries of
// routes that match by header or fraction, and HTTP filters. [DialOptions] and
// [NewClient] install it; it is exported for channels whose interceptors are put
// together elsewhere, where it should come last (see [DialOptions]). It serves any
// channel that has a resolver of this package, and lets RPCs of others pass. With
// nothing to do it costs a map look-up or two at most and allocates nothing.
//
// An RPC is one RPC to its options, whatever attempts it takes: [grpc.OnFinish] is
// called once, also if a filter ends the RPC, and [grpc.Header], [grpc.Trailer] and
// [grpc.Peer] are those of the last attempt that had a stream. Statistics handlers and interceptors
// that come behind see each attempt. [grpc.WithMaxCallAttempts] and
// [grpc.MaxRetryRPCBufferSize] limit its retries as they limit gRPC's own: an RPC is not
// retried if its request has more than 256 KiB, or what the option says, before
// compression, or if its size is unknown. Any codec may encode it.
//
// Where a route asks for hedging, and the application declares the method safe (see
// [Config.Idempotent]), a second attempt is made while the first takes long. What is said of
// the last attempt above is then said of the one that decides the RPC. A call option that
// embeds one of gRPC's is told by each attempt, perhaps by two at a time.
//
// A channel wants this and [StreamInterceptor]. With one of them only, RPCs of the
// other kind go where their routes say, without the rest. That is not logged: a
// pick cannot tell which kind an RPC is of.
func UnaryInterceptor(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return perrpc.UnaryInterceptor(ctx, method, req, reply, cc, invoker, opts...)
}

// StreamInterceptor is what [UnaryInterceptor] is, for streams. A stream is retried until
// it has response headers, has sent more than [grpc.MaxRetryRPCBufferSize], or 256 KiB, or
// is asked for its context or trailer. Until then its messages are kept as they are,
// to be sent again; afterwards a message costs an atomic load.
func StreamInterceptor(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return perrpc.StreamInterceptor(ctx, desc, cc, method, streamer, opts...)
}
