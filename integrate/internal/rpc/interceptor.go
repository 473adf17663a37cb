// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/picker"
)

// UnaryInterceptor is integrate.UnaryInterceptor.
func UnaryInterceptor(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	t, err := tableOf(ctx, cc, opts)
	switch {
	case err != nil:
		finish(opts, err)
		return err
	case t == nil:
		return invoker(ctx, method, req, reply, cc, opts...)
	case t.Plans.skips(method):
		ch := t.Channel // the RPC holds no Snapshot (D9)
		return ch.withInfo(invoker(ctx, method, req, reply, cc, opts...))
	default:
		return Unary(ctx, t, method, req, reply, cc, invoker, opts...)
	}
}

// A unaryRPC is a unary RPC on its way through these stages, each of which calls the next one:
//
//	Unary     binds it to a route and cluster (Bind), and applies the route's timeout
//	filter    runs the HTTP filters, one after the other
//	attempts  changes headers, and makes one attempt, or several: side by side (hedge), or one after the other (retry)
//	attempt   probes endpoints for their load (Call.ask), and has gRPC pick and send
//
// HTTP filters may replace all arguments of a grpc.UnaryInvoker. Each further attempt of a
// hedged RPC has messages, a context and options of its own.
type unaryRPC struct {
	call    *Call
	invoker grpc.UnaryInvoker

	ctx        context.Context
	method     string
	req, reply any
	cc         *grpc.ClientConn
	opts       []grpc.CallOption
}

// Unary is the first stage, for a table with Plans. OnFinish is called once, whether or not the
// RPC reaches gRPC, and however many attempts are made.
func Unary(ctx context.Context, t *Table, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, call := Bind(ctx, t, method)
	ch := t.Channel
	if call == nil || !call.plan.needed() {
		return ch.withInfo(invoker(ctx, method, req, reply, cc, opts...))
	}
	if d := call.plan.timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	r := unaryRPC{call, invoker, ctx, method, req, reply, cc, withoutOnFinish(opts)}
	err := ch.withInfo(r.filter(0))
	finish(opts, err)
	return err
}

// filter runs the HTTP filters from index i on.
func (r unaryRPC) filter(i int) error {
	f, next := r.call.plan.filters.nextUnary(i)
	if f == nil {
		return r.attempts()
	}
	call, invoker := r.call, r.invoker
	return f.unary(r.ctx, r.method, r.req, r.reply, r.cc, func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		return unaryRPC{call, invoker, ctx, method, req, reply, cc, opts}.filter(next)
	}, r.opts...)
}

// attempts changes the headers, and makes the attempts that the route's retry policy allows. It
// calls OnFinish options that filters have added.
func (r unaryRPC) attempts() (err error) {
	p := r.call.plan
	if p.filters.active > 0 {
		r.call.afterFilters(r.ctx)
		opts := r.opts
		r.opts = withoutOnFinish(opts)
		defer func() { finish(opts, err) }()
	}
	r.ctx = r.call.mutate(r.ctx)
	switch {
	case p.retry == nil:
		return r.attempt()
	case p.hedge && r.mayHedge():
		return r.hedge()
	default:
		return r.retry()
	}
}

// attempt makes one attempt.
func (r unaryRPC) attempt() error {
	if r.call.plan.probesFirst {
		r.call.probed.Store(r.call.probe(r.ctx))
	}
	return r.invoker(r.ctx, r.method, r.req, r.reply, r.cc, r.opts...)
}

// StreamInterceptor is integrate.StreamInterceptor.
func StreamInterceptor(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	t, err := tableOf(ctx, cc, opts)
	switch {
	case err != nil:
		finish(opts, err)
		return nil, err
	case t == nil:
		return streamer(ctx, desc, cc, method, opts...)
	case t.Plans.skips(method):
		ch := t.Channel
		s, err := streamer(ctx, desc, cc, method, opts...)
		return s, ch.withInfo(err)
	default:
		return stream(ctx, t, desc, cc, method, streamer, opts)
	}
}

// A streamRPC is a stream on its way through the stages, which are the same as for a unaryRPC.
// Streams are not hedged, and do not probe endpoints.
type streamRPC struct {
	call     *Call
	streamer grpc.Streamer

	ctx    context.Context
	desc   *grpc.StreamDesc
	cc     *grpc.ClientConn
	method string
	opts   []grpc.CallOption
}

// stream is the first stage. It calls OnFinish for streams that do not reach gRPC.
func stream(ctx context.Context, t *Table, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	ctx, call := Bind(ctx, t, method)
	ch := t.Channel
	if call == nil || !call.plan.needed() {
		s, err := streamer(ctx, desc, cc, method, opts...)
		return s, ch.withInfo(err)
	}
	started := false
	start := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		started = true
		return streamer(ctx, desc, cc, method, opts...)
	}
	inner, cancel := opts, func() {}
	if d := call.plan.timeout; d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
		inner = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { cancel() }))
	}
	s, err := streamRPC{call, start, ctx, desc, cc, method, inner}.filter(0)
	if err != nil {
		err = ch.withInfo(err)
		cancel()
		if !started {
			finish(opts, err)
		}
	}
	return s, err
}

// filter runs the HTTP filters from index i on, and then makes the attempts.
func (r streamRPC) filter(i int) (grpc.ClientStream, error) {
	p := r.call.plan
	if f, next := p.filters.nextStream(i); f != nil {
		call, streamer := r.call, r.streamer
		return f.stream(r.ctx, r.desc, r.cc, r.method, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamRPC{call, streamer, ctx, desc, cc, method, opts}.filter(next)
		}, r.opts...)
	}
	if p.filters.active > 0 {
		r.call.afterFilters(r.ctx)
	}
	r.ctx = r.call.mutate(r.ctx)
	if p.retry != nil {
		return r.retry()
	}
	return r.attempt()
}

// attempt makes one attempt.
func (r streamRPC) attempt() (grpc.ClientStream, error) {
	return r.streamer(r.ctx, r.desc, r.cc, r.method, r.opts...)
}

// withoutOnFinish returns the options without OnFinish, which the caller calls.
func withoutOnFinish(opts []grpc.CallOption) []grpc.CallOption {
	if !slices.ContainsFunc(opts, isOnFinish) {
		return opts
	}
	return slices.DeleteFunc(slices.Clone(opts), isOnFinish)
}

func isOnFinish(o grpc.CallOption) bool {
	_, ok := o.(grpc.OnFinishCallOption)
	return ok
}

// finish calls the OnFinish of the options.
func finish(opts []grpc.CallOption, err error) {
	for _, o := range opts {
		if o, ok := o.(grpc.OnFinishCallOption); ok {
			o.OnFinish(err)
		}
	}
}

// A Channel is the state that interceptors, picks, the resolver and the LB policy of a channel
// share, for the life of the resolver. Any number of goroutines may use it, except that calls
// of NoteFailure and ForgetFailures must be serialised.
type Channel struct {
	*link.Link
	ChannelOptions
	Counters
	failures
	waiting
	table  atomic.Pointer[func() *Table] // nil before the first Publish
	looked atomic.Pointer[Plans]         // set by warnUnapplied
}

// ChannelOptions are immutable properties of a channel.
type ChannelOptions struct {
	// Waiting returns a description of the missing parts of the first configuration, "waiting
	// for ...", or nil if they are unknown. May be nil.
	Waiting func() error
	// Intercepted reports whether the channel was made with our interceptors.
	Intercepted bool
	// Throttle limits the retries of interceptors. Nil means no limit.
	Throttle *Throttle
	// Idempotent reports whether RPCs of a method may be made twice at the same time. Nil means
	// false for all methods.
	Idempotent func(method string) bool
	// Logger logs about the channel. Nil means slog.Default().
	Logger *slog.Logger
}

// Table is the part of a publication of a channel's balancer that interceptors use. It is
// immutable.
type Table struct {
	Snapshot *picker.Snapshot // nil while there is no configuration
	Err      error            // the reason why there is no configuration; nil before the first
	Config   *picker.Config   // that Snapshot was built from
	Plans    *Plans           // nil if no RPC needs an interceptor
	Budgets  []*Budget        // by cluster, nil for clusters without a limit; nil if no cluster has a limit
	Channel  *Channel         // nil in tests
	// ProbeFirst probes endpoints of a cluster, by its index, for their load, and returns the best, or
	// nil if the pick chooses. Nil if no cluster probes endpoints for each RPC.
	ProbeFirst func(ctx context.Context, cluster int32) *picker.EndpointState
}

// NewChannel returns the Channel of a new resolver. It cannot be found until Register is called.
func NewChannel(resolver link.Options, opts ChannelOptions) *Channel {
	ch := &Channel{ChannelOptions: opts}
	ch.waiting.event = make(chan struct{})
	resolver.Interceptors, resolver.Intercepted = ch, opts.Intercepted
	ch.Link = link.New(resolver)
	return ch
}

// Publish announces a first configuration, or an error, or a configuration after an error.
// table returns the table in force from then on. RPCs that wait for a configuration continue.
func (ch *Channel) Publish(table func() *Table) {
	ch.table.Store(&table)
	ch.waiting.wake(false)
}

// Published reports whether Publish was called.
func (ch *Channel) Published() bool { return ch.table.Load() != nil }

// Current returns the table in force, or nil before the first publication.
func (ch *Channel) Current() *Table {
	if table := ch.table.Load(); table != nil {
		return (*table)()
	}
	return nil
}

// Close ends the Channel with its resolver. RPCs that wait for it continue with the next
// Channel.
func (ch *Channel) Close() {
	if ch.Link.Close() {
		ch.waiting.wake(true)
	}
}

// tableOf returns the table that the channel's picks read at the moment, or nil if RPCs of the
// channel pass. It waits for a first configuration. An RPC that is wait-for-ready waits also
// while the target cannot be served, since until then its route is unknown. If ctx ends first,
// the error names the missing part of the configuration.
func tableOf(ctx context.Context, cc *grpc.ClientConn, opts []grpc.CallOption) (*Table, error) {
	ch := channelOf(ctx, cc)
	if ch == nil {
		return nil, nil
	}
	if t := ch.Current(); t != nil && t.Snapshot != nil {
		return t, nil
	}
	return waitForTable(ctx, cc, opts)
}

// channelOf returns the Channel of an RPC's channel, or nil if RPCs of the channel pass. See
// link.Find.
func channelOf(ctx context.Context, cc *grpc.ClientConn) *Channel {
	l := link.Find(ctx, cc)
	if l == nil {
		return nil
	}
	ch, _ := l.Interceptors.(*Channel)
	return ch
}

// withInfo adds the recorded ErrorInfo, if any, to an error. A nil Channel returns the error
// unchanged.
func (ch *Channel) withInfo(err error) error {
	if err == nil || ch == nil {
		return err
	}
	return ch.failures.withInfo(err)
}

// Counters count the actions of a channel's interceptors.
type Counters struct {
	retries, hedges     atomic.Uint64 // hedges are among retries
	noBudget, throttled atomic.Uint64
	_                   [0]sync.Mutex
}

// Retries returns how many attempts after the first were made.
func (c *Counters) Retries() uint64 { return c.retries.Load() }

// Hedges returns how many of the Retries were made while another attempt was in flight.
func (c *Counters) Hedges() uint64 { return c.hedges.Load() }

// RetriesDenied returns how many RPCs got no further attempt because of the cluster's budget, and
// because of the channel's throttling.
func (c *Counters) RetriesDenied() (budget, throttle uint64) {
	return c.noBudget.Load(), c.throttled.Load()
}
