// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
)

// pushbackKey is the trailer in which servers say when to retry, or not to
// (gRFC A6).
const pushbackKey = "grpc-retry-pushback-ms"

// retries decides about the attempts of one RPC (A44, A6). It is used by one goroutine
// at a time.
type retries struct {
	policy  *picker.RetryPolicy
	call    *Call // nil in tests
	made    int   // attempts
	backoff time.Duration
	failure error   // the latest
	budget  *Budget // of the attempt that is under way; nil if it does not count
}

func newRetries(policy *picker.RetryPolicy, call *Call) retries {
	return retries{policy: policy, call: call, backoff: policy.BaseBackoff}
}

// begin begins another attempt, whose options it returns and may change.
func (r *retries) begin(opts []grpc.CallOption) []grpc.CallOption {
	if r.made++; r.made == 1 {
		return opts
	}
	return withPreviousAttempts(opts, r.made-1)
}

// next returns nil, after a back-off, if there is to be another attempt after one that
// failed with err, or else the error of the RPC.
func (r *retries) next(ctx context.Context, err error, headers bool, trailer metadata.MD) error {
	r.release()
	wait, err := r.after(err, headers, trailer)
	if err != nil {
		return err
	}
	budget, ok := r.call.acquireRetry(false)
	if !ok {
		return r.failure
	}
	r.budget = budget
	if err := pause(ctx, wait); err != nil {
		r.release()
		return err
	}
	r.call.countRetry()
	return nil
}

// after returns how long to wait for another attempt after one that failed with err, or the
// error of the RPC if there is to be none. An attempt that got response headers is final,
// and so is one that the server does not want repeated, or that a pick ended.
func (r *retries) after(err error, headers bool, trailer metadata.MD) (wait time.Duration, end error) {
	r.failure = err
	if headers || r.call.final() || len(trailer) == 0 && isLocal(err) {
		return 0, err
	}
	pushback, pushed, again := pushbackOf(trailer)
	if again && !slices.Contains(r.policy.On, uint32(status.Code(err))) {
		return 0, err
	}
	throttled := r.call.throttle().fail()
	last := r.made >= r.call.maxAttempts(r.policy.MaxAttempts)
	switch {
	case !again:
		return 0, err
	case throttled:
		if !last {
			r.call.link().unmade.throttle.Add(1)
		}
		return 0, err
	case last:
		return 0, fmt.Errorf("max retries exhausted: failed after %d attempts: %w", r.made, err) // gRPC's words
	}
	wait = jitter(r.backoff)
	r.backoff = min(2*r.backoff, r.policy.MaxBackoff)
	if pushed {
		wait, r.backoff = pushback, r.policy.BaseBackoff
	}
	return wait, nil
}

// release lets go of the budget once an attempt is no longer a retry that is under way.
func (r *retries) release() {
	if r.budget != nil {
		r.budget.release()
		r.budget = nil
	}
}

// isLocal reports whether an RPC with a stream failed because of its request, in which case
// gRPC sends nothing and retries nothing. Only its words tell that.
func isLocal(err error) bool {
	text := status.Convert(err).Message()
	return slices.ContainsFunc([]string{
		"trying to send message larger than max",
		"grpc: error while marshaling",
		"grpc: error while compressing",
	}, func(words string) bool { return strings.HasPrefix(text, words) })
}

// pushbackOf returns how long the server wants the next attempt to wait, if it says so;
// again is false if it wants none.
func pushbackOf(trailer metadata.MD) (wait time.Duration, pushed, again bool) {
	values := trailer.Get(pushbackKey)
	if len(values) == 0 {
		return 0, false, true
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if len(values) > 1 || err != nil || ms < 0 {
		return 0, true, false
	}
	return time.Duration(ms) * time.Millisecond, true, true
}

// retrying makes attempts at unary RPCs as the policy says, and as the application's
// options allow.
func retrying(policy *picker.RetryPolicy, invoker grpc.UnaryInvoker) grpc.UnaryInvoker {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		return retryUnary(ctx, policy, req, opts, func(ctx context.Context, opts []grpc.CallOption) error {
			return invoker(ctx, method, req, reply, cc, opts...)
		})
	}
}

// retryUnary makes attempts at a unary RPC. Its options get the results of the last that
// had a stream, as in gRPC.
func retryUnary(ctx context.Context, policy *picker.RetryPolicy, req any, opts []grpc.CallOption, attempt func(context.Context, []grpc.CallOption) error) error {
	r := newRetries(policy, callIn(ctx))
	var last *results // of an attempt that had a stream
	for {
		res := new(results)
		err := attempt(ctx, r.begin(res.options(opts)))
		if res.filled() {
			last = res
		}
		switch {
		case err == nil:
			r.call.throttle().succeed()
		case r.made == 1 && wireSize(req, opts) > bufferSize(opts): // gRPC would not keep it
		default:
			if err = r.next(ctx, err, len(res.header) > 0, res.trailer); err == nil {
				continue
			}
		}
		r.release()
		last.store(opts)
		return err
	}
}

// countRetry counts an attempt after the first.
func (c *Call) countRetry() {
	if l := c.link(); l != nil {
		l.retries.Add(1)
	}
}

// jitter is a back-off made longer or shorter by up to a fifth (A6). A time.Duration holds a
// back-off of up to 292 years, and not a fifth more.
func jitter(backoff time.Duration) time.Duration {
	return time.Duration((0.8 + 0.4*rand.Float64()) * float64(min(backoff, math.MaxInt64/2)))
}

// maxAttempts is n, or grpc.WithMaxCallAttempts of the RPC's channel if that is less.
func (c *Call) maxAttempts(n int) int {
	l := c.link()
	if l == nil || l.maxAttempts.Load() == 0 {
		return n
	}
	return min(n, int(l.maxAttempts.Load()))
}
