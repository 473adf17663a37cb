// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/picker"
)

// Hedging makes another attempt at a unary RPC, at another endpoint, while an attempt takes
// longer than the policy's per_try_timeout (Envoy's hedge_on_per_try_timeout; A6 has the same
// for a fixed delay). The first good answer is the RPC's, and the other attempts are canceled.
// Attempts count like retries, and the codes and the backoff of the retry policy decide about
// an attempt that fails: a fatal code ends the RPC, and another code is followed by a further
// attempt. A server's pushback delays further attempts, or stops them.

// hedges reports whether a route's unary RPCs are hedged.
func hedges(r *picker.Route) bool { return r.Hedge && r.Retry != nil }

// mayHedge reports whether the RPC may be hedged: its method is declared idempotent, and its
// messages are proto.Messages of a size that gRPC would keep for further attempts. Other RPCs are
// retried.
func (r unaryRPC) mayHedge() bool {
	if !mayRepeat(r.call.channel(), r.call.method) {
		return false
	}
	_, request := r.req.(proto.Message)
	_, reply := r.reply.(proto.Message)
	return request && reply && wireSize(r.req, r.opts) <= bufferSize(r.opts)
}

// mayRepeat reports whether the application declares that RPCs of a method may be made twice at the
// same time, and logs once that it does not.
func mayRepeat(ch *Channel, method string) bool {
	if idempotent(method) || ch != nil && ch.Idempotent != nil && ch.Idempotent(method) {
		return true
	}
	if ch != nil {
		link.WarnOnce(ch.Logger, ch.Target, "hedge", "RPCs are not hedged as their route requires: the method is not declared idempotent. "+
			"Give the method the option idempotency_level, or set integrate.Config.Idempotent.", "method", method)
	}
	return false
}

// idempotent reports whether a method's descriptor declares it idempotent.
func idempotent(method string) bool {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service).Append(protoreflect.Name(name)))
	if err != nil {
		return false
	}
	o, ok := d.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}

// hedge makes attempts side by side. It requires mayHedge.
func (r unaryRPC) hedge() error {
	req, reply := r.req.(proto.Message), r.reply.(proto.Message)
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	policy := r.call.plan.retry
	h := &hedgedCall{
		retries: newRetries(r.call), rpc: r, ctx: ctx, cancel: cancel, req: req, reply: reply, replies: reply.ProtoReflect().Type(),
		ended: make(chan *attempt, policy.MaxAttempts), timer: time.NewTimer(policy.PerTryTimeout),
	}
	defer h.timer.Stop()
	h.launch()
	winner, err := h.run()
	cancel(ErrHedgeSuperseded)
	h.deliver(winner)
	return err
}

// A hedgedCall is the state of one hedged RPC and its attempts. One goroutine owns it. Each attempt
// runs in another goroutine, which ends with its attempt.
type hedgedCall struct {
	retries
	rpc     unaryRPC
	ctx     context.Context // of the attempts
	cancel  context.CancelCauseFunc
	req     proto.Message
	reply   proto.Message
	replies protoreflect.MessageType // of reply, which the first attempt owns until it ends
	timer   *time.Timer              // for the next attempt
	ended   chan *attempt            // has room for all
	active  int
	stopped bool     // no more attempts are started
	first   bool     // the first attempt has ended
	last    *attempt // the latest that ended and had a stream
}

// attemptKey is the context key of a hedged RPC's *attempt, if the RPC has a session.
type attemptKey struct{ of *Call }

// launch starts an attempt. The first attempt uses the application's request and reply. Further
// attempts, which may go on after the RPC has returned, use copies.
func (r *hedgedCall) launch() {
	a, rpc := &attempt{reply: r.reply}, r.rpc
	rpc.ctx, rpc.opts = r.ctx, r.begin(a, rpc.opts)
	if a.number > 1 {
		rpc.req, a.reply = proto.Clone(r.req), r.replies.New().Interface()
		rpc.reply = a.reply
	}
	if r.call.Session() != nil {
		rpc.ctx = context.WithValue(rpc.ctx, attemptKey{r.call}, a)
	}
	r.active++
	go func() {
		a.exited = true
		defer func() {
			if v := recover(); v != nil {
				a.panicked = v
				r.logPanic(v)
			}
			a.release()
			r.ended <- a
		}()
		a.err = rpc.attempt()
		a.exited = false
	}()
}

// logPanic logs a panic of an attempt, whose stack is lost when the caller panics in its place. If the RPC
// has ended before, the log line is the only effect of the panic.
func (r *hedgedCall) logPanic(v any) {
	logger := slog.Default()
	if ch := r.call.channel(); ch != nil && ch.Logger != nil {
		logger = ch.Logger
	}
	logger.Error("xdslb: an attempt at a hedged RPC panicked", "method", r.rpc.method, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
}

// received returns an attempt that has ended. If its code has panicked, the calling goroutine panics too,
// as without hedging.
func (r *hedgedCall) received(a *attempt) *attempt {
	r.first = r.first || a.number == 1
	if !a.exited {
		return a
	}
	r.cancel(ErrHedgeSuperseded)
	for !r.first { // it uses the application's messages
		r.first = (<-r.ended).number == 1
	}
	if a.panicked == nil {
		runtime.Goexit()
	}
	panic(a.panicked)
}

// run makes attempts until one decides the RPC, which it returns with the error of the RPC. Without
// active attempts, an error alone may end the RPC.
func (r *hedgedCall) run() (winner *attempt, err error) {
	for {
		select {
		case <-r.timer.C:
			if !r.again() {
				return nil, r.failure
			}
		case a := <-r.ended:
			again, err := r.end(r.received(a))
			if err != nil || a.err == nil {
				return a, err
			}
			if again > 0 {
				r.timer.Reset(again)
			}
		case <-r.rpc.ctx.Done():
			if r.active == 0 {
				return nil, status.FromContextError(r.rpc.ctx.Err()).Err()
			}
			a := r.received(<-r.ended) // attempts end with the context
			_, _ = r.end(a)
			return a, a.err
		}
	}
}

// again launches a further attempt, if one is allowed. It returns false if that ends the RPC.
func (r *hedgedCall) again() bool {
	if r.stopped || r.made >= r.maxAttempts() {
		return true
	}
	// Before the first pick there is nothing that another attempt could overtake, nor a cluster whose budget applies.
	if r.active > 0 && r.call.unpicked() || !r.acquire() {
		r.timer.Reset(r.policy.PerTryTimeout)
		return r.active > 0
	}
	r.count()
	if ch := r.call.channel(); r.active > 0 && ch != nil {
		ch.hedges.Add(1)
	}
	r.launch()
	r.timer.Reset(r.policy.PerTryTimeout)
	return true
}

// end records an attempt that has ended. It returns the error of the RPC, or the delay of the
// next attempt. 0 means that active attempts decide.
func (r *hedgedCall) end(a *attempt) (again time.Duration, err error) {
	r.active--
	if a.hasStream() {
		r.last = a
	}
	if a.err == nil {
		return 0, nil
	}
	again, err = r.after(a.err, len(a.header) > 0, a.trailer)
	if err != nil {
		// A refusal by a pick, a pushback or the limit ends further attempts, but not active ones.
		r.stopped = r.stopped || r.call.final() || r.retriable(a.err) && len(a.header) == 0
		if r.stopped && r.active > 0 {
			return 0, nil
		}
		return 0, err
	}
	switch {
	case !r.stopped:
		return max(again, 1), nil
	case r.active > 0:
		return 0, nil
	}
	return 0, a.err
}

// settle copies the results of the winner, which may be nil, to the application, after the
// first attempt has ended, which may use the application's messages until then.
func (r *hedgedCall) deliver(winner *attempt) {
	for !r.first {
		r.received(<-r.ended)
	}
	if session := r.call.Session(); session != nil && winner != nil {
		session.picked.Store(winner.picked.Load())
	}
	if winner != nil && winner.err == nil {
		r.throttle().succeed()
		if winner.number > 1 {
			proto.Reset(r.reply)
			proto.Merge(r.reply, winner.reply)
		}
	}
	r.last.store(r.rpc.opts)
}
