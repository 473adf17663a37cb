// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
)

// UnaryInterceptor applies the settings of a unary RPC's route that gRPC's service config
// cannot express: timeouts and retries of routes that match by header or fraction, and HTTP
// filters. [DialOptions] and [NewClient] install it. It is exported for channels whose
// interceptors are composed elsewhere; it should come last (see [DialOptions]). It serves any
// channel with a resolver of this package, and passes RPCs of other channels on. An RPC without
// such settings requires a look-up in a table and no allocation.
//
// The call options of an RPC apply to the RPC as a whole, not to its attempts: [grpc.OnFinish]
// is called once, also if a filter ends the RPC, and [grpc.Header], [grpc.Trailer] and
// [grpc.Peer] get the values of the last attempt with a stream. Statistics handlers and later
// interceptors see each attempt. [grpc.WithMaxCallAttempts] and [grpc.MaxRetryRPCBufferSize]
// limit the retries as they limit gRPC's own: an RPC is not retried if its request, before
// compression, has more than 256 KiB, or the limit of the option, or an unknown size. Any codec
// may encode it.
//
// If a route asks for hedging, and the method is declared safe (see [Config.Idempotent]), a
// second attempt is made while the first is slow. Headers, trailers and peers then come from
// the attempt that decides the RPC. A call option that embeds one of gRPC's gets the values of
// each attempt, perhaps of two at the same time.
//
// A channel needs both UnaryInterceptor and [StreamInterceptor]. If one is missing, RPCs of its
// kind are routed, but lack the settings above. This is not logged, since picks cannot
// distinguish the two kinds of RPCs.
func UnaryInterceptor(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return rpc.UnaryInterceptor(ctx, method, req, reply, cc, invoker, opts...)
}

// StreamInterceptor is [UnaryInterceptor] for streams. A stream may be retried until it has response
// headers, has sent more than [grpc.MaxRetryRPCBufferSize] (256 KiB by default), or its Context or
// Trailer is called. Until then its messages are kept, without a copy, to be sent again;
// afterwards a message costs an atomic load.
func StreamInterceptor(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return rpc.StreamInterceptor(ctx, desc, cc, method, streamer, opts...)
}
