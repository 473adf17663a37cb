// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
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
		link := t.Link // the RPC holds no Snapshot (D9)
		return link.withInfo(invoker(ctx, method, req, reply, cc, opts...))
	default:
		return t.Unary(ctx, method, req, reply, cc, invoker, opts...)
	}
}

// Unary is the unary interceptor of a table with Plans. Whatever attempts the RPC
// takes, and whether it gets as far as gRPC, OnFinish is called once.
func (t *Table) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, call := t.Bind(ctx, method)
	link := t.Link
	if call == nil || !call.plan.needed() {
		return link.withInfo(invoker(ctx, method, req, reply, cc, opts...))
	}
	if d := call.plan.timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	err := link.withInfo(call.unary(invoker)(ctx, method, req, reply, cc, withoutOnFinish(opts)...))
	finish(opts, err)
	return err
}

// withoutOnFinish returns the options without OnFinish, which the caller sees to.
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

// finish tells the options that the RPC ended.
func finish(opts []grpc.CallOption, err error) {
	for _, o := range opts {
		if o, ok := o.(grpc.OnFinishCallOption); ok {
			o.OnFinish(err)
		}
	}
}

// unary wraps retries around an invoker, and the filters around that.
func (c *Call) unary(next grpc.UnaryInvoker) grpc.UnaryInvoker {
	p := c.plan
	if p.asks {
		next = c.asking(next)
	}
	if p.retry != nil {
		invoker := next
		if next = retrying(p.retry, invoker); p.hedge != nil && c.mayHedge() {
			next = p.hedge.unary(invoker, next)
		}
	}
	if inner := next; len(p.filters) > 0 {
		next = func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
			err := inner(ctx, method, req, reply, cc, withoutOnFinish(opts)...)
			finish(opts, err) // what the filters have added
			return err
		}
	}
	if inner := next; c.filtersCount() {
		next = func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
			c.afterFilters(ctx)
			return inner(ctx, method, req, reply, cc, opts...)
		}
	}
	for _, f := range slices.Backward(p.filters) {
		if f.unary == nil {
			continue
		}
		inner := next
		next = func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
			return f.unary(ctx, method, req, reply, cc, inner, opts...)
		}
	}
	return next
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
		link := t.Link
		s, err := streamer(ctx, desc, cc, method, opts...)
		return s, link.withInfo(err)
	default:
		return t.Stream(ctx, desc, cc, method, streamer, opts...)
	}
}

// Stream is the stream interceptor of a table with Plans. It calls OnFinish for
// streams that do not get as far as gRPC.
func (t *Table) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, call := t.Bind(ctx, method)
	link := t.Link
	if call == nil || !call.plan.needed() {
		s, err := streamer(ctx, desc, cc, method, opts...)
		return s, link.withInfo(err)
	}
	started := false
	chain := call.stream(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		started = true
		return streamer(ctx, desc, cc, method, opts...)
	})
	inner, cancel := opts, func() {}
	if d := call.plan.timeout; d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
		inner = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { cancel() }))
	}
	s, err := chain(ctx, desc, cc, method, inner...)
	if err != nil {
		err = link.withInfo(err)
		cancel()
		if !started {
			finish(opts, err)
		}
	}
	return s, err
}

// filtersCount reports whether the RPC's filters could change its route if they
// came before it was matched.
func (c *Call) filtersCount() bool {
	return c.link() != nil && len(c.plan.filters) > 0 && c.matched.plans.byHeader
}

// stream wraps retries around a streamer, and the filters around that.
func (c *Call) stream(next grpc.Streamer) grpc.Streamer {
	p := c.plan
	if p.retry != nil {
		next = retryingStreams(p.retry, next)
	}
	if inner := next; c.filtersCount() {
		next = func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			c.afterFilters(ctx)
			return inner(ctx, desc, cc, method, opts...)
		}
	}
	for _, f := range slices.Backward(p.filters) {
		if f.stream == nil {
			continue
		}
		inner := next
		next = func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return f.stream(ctx, desc, cc, method, inner, opts...)
		}
	}
	return next
}

// tableOf returns what the channel's picks read at the moment, or nil if the
// channel is not ours. It waits for a first configuration. An RPC that is
// wait-for-ready waits also while the target cannot be served, since until then
// nobody knows what its route asks for. If ctx ends before, the error says what the
// RPC waited for.
func tableOf(ctx context.Context, cc *grpc.ClientConn, opts []grpc.CallOption) (*Table, error) {
	l := linkOf(ctx, cc)
	if l == nil || l.Aside {
		return nil, nil
	}
	if t := l.Current(); t != nil && t.Snapshot != nil {
		return t, nil
	}
	return waitForTable(ctx, cc, opts)
}

// waitForTable is the slow path of tableOf. The channel may become idle meanwhile, since
// gRPC does not count the RPC yet. The RPC wakes it, and holds the link of before until
// the next one has taken over, so that what the client has done for the target is not lost.
func waitForTable(ctx context.Context, cc *grpc.ClientConn, opts []grpc.CallOption) (*Table, error) {
	var last, previous *Link
	defer func() { last.leave(); previous.leave() }()
	for {
		l := linkOf(ctx, cc)
		if l == nil || l.Aside {
			return nil, nil
		}
		event := l.nextEvent()
		t := l.Current()
		if t != nil && (t.Snapshot != nil || !waitsForReady(opts)) {
			return t, nil // without Snapshot, the pick says why
		}
		if l != last {
			l.enter()
			previous.leave()
			last, previous = l, last
		}
		select {
		case <-event:
		case <-ctx.Done():
			return nil, l.withInfo(l.waitErr(ctx, t))
		}
	}
}

// waitErr is the error of an RPC that ended while it waited for a configuration.
func (l *Link) waitErr(ctx context.Context, t *Table) error {
	code := status.FromContextError(ctx.Err()).Code()
	if t != nil && t.Err != nil {
		return status.Errorf(code, "latest balancer error: %v", t.Err) // gRPC's words
	}
	if err := l.Waiting(); err != nil {
		return status.Errorf(code, "%v: %v", ctx.Err(), err)
	}
	return status.Errorf(code, "xds: %v while waiting for a first configuration", ctx.Err())
}

// waitsForReady reports whether an RPC is wait-for-ready.
func waitsForReady(opts []grpc.CallOption) bool {
	wait := false
	for _, o := range opts {
		if o, ok := o.(grpc.FailFastCallOption); ok {
			wait = !o.FailFast
		}
	}
	return wait
}
