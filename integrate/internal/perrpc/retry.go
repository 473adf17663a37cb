// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker"
)

// pushbackKey is the trailer in which servers say when to retry, or not to
// (gRFC A6).
const pushbackKey = "grpc-retry-pushback-ms"

// previousAttemptsKey is the header that tells servers how many attempts were made
// before (A6).
const previousAttemptsKey = "grpc-previous-rpc-attempts"

// retrying makes attempts at unary RPCs as the policy says, and as the application's
// options allow.
func retrying(policy *picker.RetryPolicy, invoker grpc.UnaryInvoker) grpc.UnaryInvoker {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		return retryUnary(ctx, policy, req, opts, func(ctx context.Context, opts []grpc.CallOption) error {
			return invoker(ctx, method, req, reply, cc, opts...)
		})
	}
}

// retryUnary makes attempts at a unary RPC as the policy says (A44, A6): an
// attempt that got response headers is final, and so is one that the server
// does not want repeated, or that a pick ended.
func retryUnary(ctx context.Context, policy *picker.RetryPolicy, req any, opts []grpc.CallOption, attempt func(context.Context, []grpc.CallOption) error) error {
	call := callIn(ctx)
	backoff := policy.BaseBackoff
	limit := call.maxAttempts(policy.MaxAttempts)
	for n := 1; ; n++ {
		var header, trailer metadata.MD
		attemptCtx := ctx
		if n > 1 {
			attemptCtx = metadata.AppendToOutgoingContext(ctx, previousAttemptsKey, strconv.Itoa(n-1))
		}
		err := attempt(attemptCtx, append(opts[:len(opts):len(opts)], grpc.Header(&header), grpc.Trailer(&trailer)))
		if err == nil || n >= limit || len(header) > 0 || !slices.Contains(policy.On, uint32(status.Code(err))) ||
			call != nil && call.final.Load() || n == 1 && !fitsBuffer(req, opts) {
			return err
		}
		wait := jitter(backoff)
		backoff = min(2*backoff, policy.MaxBackoff)
		if pushback := trailer.Get(pushbackKey); len(pushback) > 0 {
			ms, perr := strconv.ParseInt(pushback[0], 10, 32)
			if len(pushback) > 1 || perr != nil || ms < 0 {
				return err
			}
			wait, backoff = time.Duration(ms)*time.Millisecond, policy.BaseBackoff
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			call.countRetry()
		case <-ctx.Done():
			timer.Stop()
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// countRetry counts an attempt after the first.
func (c *Call) countRetry() {
	if c != nil && c.link != nil {
		c.link.retries.Add(1)
	}
}

// jitter is a back-off made longer or shorter by up to a fifth (A6).
func jitter(backoff time.Duration) time.Duration {
	return time.Duration((0.8 + 0.4*rand.Float64()) * float64(backoff))
}

// maxAttempts is n, or grpc.WithMaxCallAttempts of the RPC's channel if that is less.
func (c *Call) maxAttempts(n int) int {
	if c == nil || c.link == nil {
		return n
	}
	return min(n, int(c.link.maxAttempts.Load()))
}

// fitsBuffer reports whether gRPC would keep a request for other attempts: whether it
// is not larger than grpc.MaxRetryRPCBufferSize, as which gRPC has 256 KiB by default.
// gRPC means the size on the wire; this is the size before compression. What is no
// proto.Message counts as empty.
func fitsBuffer(req any, opts []grpc.CallOption) bool {
	const frameHeader = 5
	limit, size := 256<<10, frameHeader
	for _, o := range opts {
		if o, ok := o.(grpc.MaxRetryRPCBufferSizeCallOption); ok {
			limit = o.MaxRetryRPCBufferSize
		}
	}
	if m, ok := req.(proto.Message); ok {
		size += proto.Size(m)
	}
	return size <= limit
}
