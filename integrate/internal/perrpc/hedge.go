// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/xdslb/xdslb/picker"
)

// hedging makes another attempt at a unary RPC while one is under way that takes long, at
// another endpoint (Envoy's hedge_on_per_try_timeout; A6 has the same for a fixed delay).
// The first good answer is the RPC's, and the other attempts are canceled. Attempts count as
// those of retries do, and the codes and the back-off of the retry policy say what becomes
// of one that fails: one that is fatal ends the RPC, another one is followed by a further
// attempt. A server's push-back puts that off, or stops it.
//
// An attempt takes long once the policy's per_try_timeout has passed.
type hedging struct{ policy *picker.RetryPolicy }

// hedges reports whether a route's unary RPCs are hedged.
func hedges(r *picker.Route) bool { return r.Hedge && r.Retry != nil }

// mayHedge reports whether the application declares that RPCs of the Call's method may be
// made twice at the same time, and logs once that it does not.
func (c *Call) mayHedge() bool {
	l := c.link()
	if idempotent(c.method) || l != nil && l.Idempotent != nil && l.Idempotent(c.method) {
		return true
	}
	if l != nil {
		warn(l.Logger, l.Target, "hedge", "RPCs are not hedged as their route says, because nothing declares that their method may be called twice. "+
			"Give the method the option idempotency_level, or set integrate.Config.Idempotent.", "method", c.method)
	}
	return false
}

// idempotent reports whether a method's descriptor says that it is.
func idempotent(method string) bool {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service).Append(protoreflect.Name(name)))
	if err != nil {
		return false
	}
	o, ok := d.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}

// unary hedges RPCs. Those that cannot be, because their messages are not proto.Messages or
// larger than gRPC would keep, go to retried.
func (h *hedging) unary(invoker, retried grpc.UnaryInvoker) grpc.UnaryInvoker {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		request, ok := req.(proto.Message)
		response, both := reply.(proto.Message)
		if !ok || !both || wireSize(req, opts) > bufferSize(opts) {
			return retried(ctx, method, req, reply, cc, opts...)
		}
		return h.race(ctx, request, response, opts, func(ctx context.Context, req, reply proto.Message, opts []grpc.CallOption) error {
			return invoker(ctx, method, req, reply, cc, opts...)
		})
	}
}

// ErrLost is the end of an attempt that was canceled because another one has decided the RPC.
// It says nothing of the server.
var ErrLost = status.Error(codes.Canceled, "xds: another attempt at the hedged RPC has decided it")

// Done returns what a pick for the RPC is to call when its attempt ends: done, which is told
// of ErrLost if that is how it ends. ctx is the attempt's. It allocates for RPCs that are
// hedged.
//
// A pick that finds no Plans looks for no Call, so an attempt that waits for its pick while an
// update takes the last of the target's Plans away, and loses, counts as canceled, which is a
// failure. That is at most one attempt for each such RPC, once; a look for the Call would cost
// all picks of targets whose routes ask for nothing.
func (c *Call) Done(ctx context.Context, done func(balancer.DoneInfo)) func(balancer.DoneInfo) {
	if c.plan == nil || c.plan.hedge == nil {
		return done
	}
	return func(info balancer.DoneInfo) {
		if status.Code(info.Err) == codes.Canceled && context.Cause(ctx) == ErrLost {
			info.Err = ErrLost
		}
		done(info)
	}
}

// A race is the attempts at one hedged RPC. One goroutine has it; each attempt runs in
// another one, which ends with its attempt.
type race struct {
	retries
	ended    chan *entrant // has room for all
	underway int
	stopped  bool // there are to be no more attempts
	denied   bool // an attempt was not to be had, which counts once for the RPC
	last     *results
}

// An entrant is an attempt in a race.
type entrant struct {
	results
	call   *Call
	first  bool
	reply  proto.Message
	err    error
	picked atomic.Pointer[upstream] // if the RPC has a session
}

// entrantKey is the context key of an attempt's *entrant, if the RPC has a session.
type entrantKey struct{}

// race makes the attempts. The first one has the application's request and reply, which it
// uses until it ends; so that is waited for. The others, which may go on when the RPC has
// returned, have their own.
func (h *hedging) race(ctx context.Context, req, reply proto.Message, opts []grpc.CallOption, attempt func(ctx context.Context, req, reply proto.Message, opts []grpc.CallOption) error) error {
	call := callIn(ctx)
	r := &race{retries: newRetries(h.policy, call), ended: make(chan *entrant, h.policy.MaxAttempts)}
	racing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	replies := reply.ProtoReflect().Type() // the first attempt has the message to itself
	launch := func(budget *Budget) {
		e, req := &entrant{call: call, first: r.made == 0, reply: reply}, req
		if !e.first {
			req, e.reply = proto.Clone(req), replies.New().Interface()
		}
		of, opts := racing, r.begin(e.options(opts))
		if call != nil && call.session != nil {
			of = context.WithValue(of, entrantKey{}, e)
		}
		r.underway++
		go func() {
			e.err = attempt(of, req, e.reply, opts)
			if budget != nil {
				budget.release()
			}
			r.ended <- e
		}()
	}
	delay := h.policy.PerTryTimeout
	launch(nil)
	next := time.NewTimer(delay)
	defer next.Stop()
	firstEnded := false
	var winner *entrant
	var err error
	for winner == nil {
		select {
		case <-next.C:
			if r.stopped || r.made >= call.maxAttempts(h.policy.MaxAttempts) {
				continue
			}
			budget, ok := call.acquireRetry(r.denied)
			if r.denied = r.denied || !ok; !ok {
				if r.underway == 0 {
					r.last.store(opts)
					return r.failure
				}
				next.Reset(delay)
				continue
			}
			call.countRetry()
			if l := call.link(); r.underway > 0 && l != nil {
				l.hedges.Add(1)
			}
			launch(budget)
			next.Reset(delay)
		case e := <-r.ended:
			firstEnded = firstEnded || e.first
			var again time.Duration
			if again, err = r.end(e); err != nil || e.err == nil {
				winner = e
			} else if again > 0 {
				next.Reset(again)
			}
		case <-ctx.Done():
			if r.underway == 0 {
				r.last.store(opts)
				return status.FromContextError(ctx.Err()).Err()
			}
			winner = <-r.ended // attempts end with the context
			firstEnded = firstEnded || winner.first
			_, _ = r.end(winner)
			err = winner.err
		}
	}
	cancel(ErrLost)
	for !firstEnded {
		firstEnded = (<-r.ended).first
	}
	if call != nil && call.session != nil {
		call.session.picked.Store(winner.picked.Load())
	}
	if winner.err == nil {
		call.throttle().succeed()
		if !winner.first {
			proto.Reset(reply)
			proto.Merge(reply, winner.reply)
		}
	}
	r.last.store(opts)
	return err
}

// end takes in an attempt that has ended. It returns the error of the RPC, or when another
// attempt is to be made, 0 being that others are under way, which decide.
func (r *race) end(e *entrant) (again time.Duration, err error) {
	r.underway--
	if e.filled() {
		r.last = &e.results
	}
	if e.err == nil {
		return 0, nil
	}
	again, err = r.after(e.err, len(e.header) > 0, e.trailer)
	if err != nil {
		// What a pick has refused, the server does not want again, or the limit forbids,
		// is the end of further attempts, not of others.
		r.stopped = r.stopped || r.call.final() || slices.Contains(r.policy.On, uint32(status.Code(e.err))) && len(e.header) == 0
		if r.stopped && r.underway > 0 {
			return 0, nil
		}
		return 0, err
	}
	switch {
	case !r.stopped:
		return max(again, 1), nil
	case r.underway > 0:
		return 0, nil
	}
	return 0, e.err
}
