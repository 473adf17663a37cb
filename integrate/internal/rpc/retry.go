// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

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

// pushbackKey is the trailer with the delay of the next attempt (gRFC A6).
const pushbackKey = "grpc-retry-pushback-ms"

// retries decides about the attempts at one RPC (A44, A6). It is used by one goroutine at a time.
type retries struct {
	policy  *picker.RetryPolicy
	call    *Call
	made    int // attempts
	backoff time.Duration
	failure error   // the latest
	budget  *Budget // of the next attempt
	denied  bool    // a limit refused an attempt; counted once for each RPC
}

func newRetries(call *Call) retries {
	policy := call.plan.retry
	return retries{policy: policy, call: call, backoff: policy.BaseBackoff}
}

// begin begins another attempt, whose options it returns.
func (r *retries) begin(a *attempt, opts []grpc.CallOption) []grpc.CallOption {
	r.made++
	a.number = r.made
	a.budget, r.budget = r.budget, nil
	return a.options(opts)
}

// next returns nil, after a backoff, if another attempt follows one that failed with err, or
// else the error of the RPC.
func (r *retries) next(ctx context.Context, a *attempt, err error, headers bool, trailer metadata.MD) error {
	a.release()
	wait, err := r.after(err, headers, trailer)
	if err != nil {
		return err
	}
	if !r.acquire() {
		return r.failure
	}
	if err := Pause(ctx, wait); err != nil {
		r.budget.release()
		r.budget = nil
		return err
	}
	r.count()
	return nil
}

// after returns how long to wait for another attempt after one that failed with err, or the
// error of the RPC if no attempt follows. An attempt that got response headers is final unless it
// exceeded its time, and so is an attempt that the server forbids to repeat, or that a pick ended.
func (r *retries) after(err error, headers bool, trailer metadata.MD) (wait time.Duration, end error) {
	r.failure = err
	if r.call.final() || err != errTryTimeout && (headers || len(trailer) == 0 && isLocal(err)) {
		return 0, err
	}
	pushback, pushed, again := pushbackOf(trailer)
	if again && !r.retriable(err) {
		return 0, err
	}
	throttled := r.throttle().fail()
	last := r.made >= r.maxAttempts()
	switch {
	case !again:
		return 0, err
	case throttled:
		if !last {
			r.call.channel().throttled.Add(1)
		}
		return 0, err
	case last:
		return 0, fmt.Errorf("max retries exhausted: failed after %d attempts: %w", r.made, err) // gRPC's words
	}
	wait = Jitter(r.backoff)
	r.backoff = min(2*r.backoff, r.policy.MaxBackoff)
	if pushed {
		wait, r.backoff = pushback, r.policy.BaseBackoff
	}
	return wait, nil
}

// retriable reports whether the policy retries attempts that fail with err.
func (r *retries) retriable(err error) bool {
	if err == errTryTimeout {
		return r.policy.OnTimeout
	}
	return slices.Contains(r.policy.On, uint32(status.Code(err)))
}

// acquire reports whether the limits of the channel and the cluster allow another attempt, and
// sets its budget.
func (r *retries) acquire() bool {
	ch := r.call.channel()
	throttled := r.throttle().throttled()
	if !throttled {
		if b := r.call.budget(); b.acquire() {
			r.budget = b
			return true
		}
	}
	if !r.denied {
		r.denied = true
		if throttled {
			ch.throttled.Add(1)
		} else {
			ch.noBudget.Add(1)
		}
	}
	return false
}

// throttle returns the Throttle of the RPC's channel, or nil.
func (r *retries) throttle() *Throttle {
	if ch := r.call.channel(); ch != nil {
		return ch.Throttle
	}
	return nil
}

// maxAttempts returns the policy's number of attempts, or grpc.WithMaxCallAttempts of the RPC's
// channel if that is less.
func (r *retries) maxAttempts() int {
	if ch := r.call.channel(); ch != nil && ch.MaxAttempts() > 0 {
		return min(r.policy.MaxAttempts, ch.MaxAttempts())
	}
	return r.policy.MaxAttempts
}

// count counts an attempt after the first.
func (r *retries) count() {
	if ch := r.call.channel(); ch != nil {
		ch.retries.Add(1)
	}
}

// isLocal reports whether an RPC with a stream failed because of its request, in which case
// gRPC neither sends nor retries it. Only the text of the error shows that.
func isLocal(err error) bool {
	text := status.Convert(err).Message()
	return slices.ContainsFunc([]string{
		"trying to send message larger than max",
		"grpc: error while marshaling",
		"grpc: error while compressing",
	}, func(words string) bool { return strings.HasPrefix(text, words) })
}

// pushbackOf returns the delay of the next attempt that the server requests, if it does. again
// is false if the server forbids another attempt.
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

// retry makes attempts one after the other. The RPC's options get the results of the last attempt
// that had a stream, as in gRPC.
func (r unaryRPC) retry() error {
	attempts := newRetries(r.call)
	opts := r.opts
	var a, last *attempt           // last had a stream
	defer func() { a.release() }() // also if the attempt panics
	for {
		a = new(attempt)
		r.opts = attempts.begin(a, opts)
		err := r.timedAttempt()
		if a.hasStream() {
			last = a
		}
		switch {
		case err == nil:
			attempts.throttle().succeed()
		case attempts.made == 1 && wireSize(r.req, opts) > bufferSize(opts): // gRPC would not keep it
		default:
			if err = attempts.next(r.ctx, a, err, len(a.header) > 0, a.trailer); err == nil {
				continue
			}
		}
		last.store(opts)
		return err
	}
}

// Jitter returns a backoff made longer or shorter by up to a fifth (A6). A time.Duration holds
// a backoff of up to 292 years, and not a fifth more.
func Jitter(backoff time.Duration) time.Duration {
	return time.Duration((0.8 + 0.4*rand.Float64()) * float64(min(backoff, math.MaxInt64/2)))
}

// Pause waits, or returns the status of an RPC whose context ends first.
func Pause(ctx context.Context, wait time.Duration) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
