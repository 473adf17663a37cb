// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
)

// pushbackKey is the trailer in which servers say when to retry, or not to
// (gRFC A6).
const pushbackKey = "grpc-retry-pushback-ms"

// retrying makes attempts at unary RPCs as the policy says.
func retrying(policy *picker.RetryPolicy, invoker grpc.UnaryInvoker) grpc.UnaryInvoker {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		return retryUnary(ctx, policy, opts, func(opts []grpc.CallOption) error {
			return invoker(ctx, method, req, reply, cc, opts...)
		})
	}
}

// retryUnary makes attempts at a unary RPC as the policy says (A44, A6): an
// attempt that got response headers is final, and so is one that the server
// does not want repeated, or that a pick ended.
func retryUnary(ctx context.Context, policy *picker.RetryPolicy, opts []grpc.CallOption, attempt func([]grpc.CallOption) error) error {
	call, _ := ctx.Value(rpcKey{}).(*rpc)
	backoff := policy.BaseBackoff
	for n := 1; ; n++ {
		var header, trailer metadata.MD
		err := attempt(append(opts[:len(opts):len(opts)], grpc.Header(&header), grpc.Trailer(&trailer)))
		if err == nil || n >= policy.MaxAttempts || len(header) > 0 || !slices.Contains(policy.On, uint32(status.Code(err))) ||
			call != nil && call.final.Load() {
			return err
		}
		wait := time.Duration(rand.Int64N(int64(backoff)) + 1)
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
		case <-ctx.Done():
			timer.Stop()
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}
