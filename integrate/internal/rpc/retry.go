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
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

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

// Limits of Pushback.
const (
	exhaustedPushback = time.Second // for RESOURCE_EXHAUSTED without a time
	maxPushback       = time.Minute
)

// Pushback returns for how long the server of a failed attempt requests not to be sent RPCs: the time of
// grpc-retry-pushback-ms, or a second for RESOURCE_EXHAUSTED without it, up to a minute; 0 if it
// requests nothing. gRPC's errors about the size of messages are RESOURCE_EXHAUSTED too, and do
// not count. Does not allocate, except for RESOURCE_EXHAUSTED.
func Pushback(info *balancer.DoneInfo) time.Duration {
	switch wait, pushed, again := pushbackOf(info.Trailer); {
	case pushed && again:
		return min(wait, maxPushback)
	case status.Code(info.Err) == codes.ResourceExhausted && !strings.Contains(status.Convert(info.Err).Message(), "larger than max"):
		return exhaustedPushback
	}
	return 0
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

// A Budget bounds how many retries of a cluster's RPCs are active at a time, so that retries
// add little to the load of a cluster that fails (Envoy's retry_budget and max_retries). A
// retry is active from its backoff to its end, or until a stream has response headers. A nil
// Budget has no bound.
//
// Envoy's percentage applies to all RPCs in flight. Here it applies to the RPCs that are not
// retries: 20 % allow 1.2 attempts for each RPC.
type Budget struct {
	Limit    *picker.RetryLimit
	InFlight *picker.Breaker // counts the attempts in flight
	Active   *atomic.Int64   // retries, in the process
}

// acquire reports whether another retry is allowed. The retry is then active until release.
func (b *Budget) acquire() bool {
	if b == nil {
		return true
	}
	for {
		n := b.Active.Load()
		rest := b.InFlight.InFlight() - n
		if n >= max(int64(b.Limit.Min), int64(b.Limit.Percent/100*float64(rest))) {
			return false
		}
		if b.Active.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends a retry that acquire admitted.
func (b *Budget) release() {
	if b != nil {
		b.Active.Add(-1)
	}
}

// A Throttle is the retryThrottling of A6: each failure that could be retried takes a token,
// each RPC that succeeds returns a part of a token, and while at most half of the tokens are
// left, retries are suspended. It applies to the retries of a channel's interceptors. gRPC has
// a throttle of its own for the retries of the service config. Any number of goroutines may use
// it. A nil Throttle does not limit retries.
type Throttle struct {
	max, ratio int64 // in thousandths of a token
	tokens     atomic.Int64
}

// NewThrottle returns a Throttle with all of its tokens.
func NewThrottle(maxTokens, tokenRatio float64) *Throttle {
	t := &Throttle{max: int64(maxTokens * 1000), ratio: int64(tokenRatio * 1000)}
	t.tokens.Store(t.max)
	return t
}

// fail takes a token, and reports whether retries are suspended.
func (t *Throttle) fail() (throttled bool) { return t != nil && t.add(-1000) <= t.max/2 }

// throttled reports whether retries are suspended.
func (t *Throttle) throttled() bool { return t != nil && t.tokens.Load() <= t.max/2 }

// succeed returns a part of a token.
func (t *Throttle) succeed() {
	if t != nil {
		t.add(t.ratio)
	}
}

// add changes the tokens within their bounds, and returns them.
func (t *Throttle) add(n int64) int64 {
	for {
		was := t.tokens.Load()
		now := min(max(was+n, 0), t.max)
		if was == now || t.tokens.CompareAndSwap(was, now) {
			return now
		}
	}
}

// bufferSize returns how many bytes of an RPC's requests gRPC keeps for further attempts:
// grpc.MaxRetryRPCBufferSize, or 256 KiB.
func bufferSize(opts []grpc.CallOption) int {
	limit := 256 << 10
	for _, o := range opts {
		if o, ok := o.(grpc.MaxRetryRPCBufferSizeCallOption); ok {
			limit = o.MaxRetryRPCBufferSize
		}
	}
	return limit
}

// wireSize returns the size of a request for this limit, in bytes. gRPC uses the size on the wire;
// this is the size before compression. A request of another codec than protobuf's is encoded to
// measure it. A request whose size is unknown is not kept.
func wireSize(req any, opts []grpc.CallOption) int {
	const frameHeader, unknown = 5, math.MaxInt
	codec, subtype := codecOf(opts)
	if codec == nil && (subtype == "" || subtype == encodingproto.Name) {
		switch m := req.(type) {
		case proto.Message:
			return frameHeader + proto.Size(m)
		case protoadapt.MessageV1:
			return frameHeader + proto.Size(protoadapt.MessageV2Of(m))
		}
		return unknown
	}
	if codec == nil {
		codec = registered(subtype)
	}
	if n, ok := encodedSize(codec, req); ok {
		return frameHeader + n
	}
	return unknown
}

// codecOf returns the codec that an RPC's options force, or nil, and the name of its content
// subtype.
func codecOf(opts []grpc.CallOption) (codec any, subtype string) {
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ForceCodecV2CallOption:
			codec = o.CodecV2
		case grpc.ForceCodecCallOption:
			codec = o.Codec
		case grpc.CustomCodecCallOption:
			codec = o.Codec
		case grpc.ContentSubtypeCallOption:
			subtype = o.ContentSubtype
		}
	}
	return codec, subtype
}

// registered returns the registered codec with a name, or nil.
func registered(name string) any {
	if c := encoding.GetCodecV2(name); c != nil {
		return c
	}
	return encoding.GetCodec(name)
}

// encodedSize returns the size of a message that a codec of either kind encodes.
func encodedSize(codec, m any) (n int, ok bool) {
	switch codec := codec.(type) {
	case encoding.CodecV2:
		data, err := codec.Marshal(m)
		defer data.Free()
		return data.Len(), err == nil
	case interface{ Marshal(any) ([]byte, error) }:
		data, err := codec.Marshal(m)
		return len(data), err == nil
	}
	return 0, false
}
