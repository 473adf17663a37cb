// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/picker"
)

// interceptors apply what a route says about an RPC besides where it goes, as
// far as gRPC's service config cannot: timeouts and retries of routes that
// match by header or fraction, and HTTP filters. One that finds nothing to do
// costs an atomic load or two and allocates nothing.
//
// gRPC calls interceptors before a channel has its configuration, and without
// saying which resolver it has. links joins the two by target: the balancer
// leaves its picker there, an interceptor waits for it.
type interceptors struct {
	links sync.Map              // canonical target to *link
	last  atomic.Pointer[bound] // the channel seen last, which usually is the only one
}

// link is what interceptors know of the channels of one target.
type link struct {
	picker atomic.Pointer[stablePicker]
	once   sync.Once
	known  chan struct{} // closed once picker has had a configuration, or an error
}

// bound is a channel's link.
type bound struct {
	cc   *grpc.ClientConn
	link *link
}

// link returns the link of a target.
func (x *interceptors) link(target string) *link {
	if l, ok := x.links.Load(target); ok {
		return l.(*link)
	}
	l, _ := x.links.LoadOrStore(target, &link{known: make(chan struct{})})
	return l.(*link)
}

// attach makes p, which has a configuration by now or cannot have one, the
// picker of the link's channels. One that went idle is used until then, so that
// RPCs which wake a channel need not wait for their routes.
func (l *link) attach(p *stablePicker) {
	l.picker.Store(p)
	l.once.Do(func() { close(l.known) })
}

// table returns what the channel's picks read at the moment, waiting for a
// first configuration if need be. It is nil if ctx ends before; the RPC itself
// will say so better.
func (x *interceptors) table(ctx context.Context, cc *grpc.ClientConn) *published {
	b := x.last.Load()
	if b == nil || b.cc != cc {
		b = &bound{cc, x.link(cc.CanonicalTarget())}
		x.last.Store(b)
	}
	p := b.link.picker.Load()
	if p == nil {
		cc.Connect() // it may be idle
		select {
		case <-b.link.known:
			p = b.link.picker.Load()
		case <-ctx.Done():
			return nil
		}
	}
	return p.current.Load()
}

// rpcKey is the context key of an RPC's *rpc.
type rpcKey struct{}

// rpc is an RPC whose route was chosen by an interceptor: its attempts all go
// to the same cluster (A31).
type rpc struct {
	table   *published
	route   int32 // in table
	cluster int32 // in table
	name    string
	plan    *rpcPlan
}

// clusterIn returns the index of the RPC's cluster in a snapshot. One that is
// gone from the configuration has no index, and its RPC no route.
func (c *rpc) clusterIn(s *published) int32 {
	if s == c.table || s.cfg == c.table.cfg {
		return c.cluster
	}
	return int32(slices.IndexFunc(s.cfg.Clusters, func(cc *picker.Cluster) bool { return cc.Name == c.name }))
}

// routeIn returns the index of the RPC's route in a snapshot, or -1 if the
// routes have changed since.
func (c *rpc) routeIn(s *published) int32 {
	if s == c.table || s.cfg == c.table.cfg {
		return c.route
	}
	return -1
}

// rpcPlan is what is to be done for the RPCs of one route and cluster.
type rpcPlan struct {
	timeout time.Duration       // 0 is none
	retry   *picker.RetryPolicy // nil is none
	filters []Interceptor
}

// plan finds the RPC's route, if the target has any that take an interceptor.
func (x *interceptors) plan(ctx context.Context, cc *grpc.ClientConn, method string) *rpc {
	t := x.table(ctx, cc)
	if t == nil || t.plans == nil {
		return nil
	}
	route, cluster, outcome := t.snapshot.Match(ctx, method, rand.Uint64())
	if outcome != picker.Picked {
		return nil // the pick will say why
	}
	plans := t.plans.of(route)
	if plans == nil {
		return nil
	}
	name := t.cfg.Clusters[cluster].Name
	return &rpc{table: t, route: route, cluster: cluster, name: name, plan: plans.of(name)}
}

// unary is the unary client interceptor.
func (x *interceptors) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := x.plan(ctx, cc, method)
	if call == nil {
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	ctx = context.WithValue(ctx, rpcKey{}, call)
	if d := call.plan.timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	ctx, done, err := call.enter(ctx)
	if err == (abortedOK{}) {
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	if call.plan.retry == nil {
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	return retryUnary(ctx, call.plan.retry, opts, func(opts []grpc.CallOption) error {
		return invoker(ctx, method, req, reply, cc, opts...)
	})
}

// stream is the stream client interceptor. A stream cannot be retried from
// here, since what was sent on it is gone; see methodConfigs for what is.
func (x *interceptors) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	call := x.plan(ctx, cc, method)
	if call == nil {
		return streamer(ctx, desc, cc, method, opts...)
	}
	ctx = context.WithValue(ctx, rpcKey{}, call)
	cancel := func() {}
	if d := call.plan.timeout; d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	if call.plan.retry != nil {
		logUnretried()
	}
	ctx, done, err := call.enter(ctx)
	if err != nil {
		cancel()
		if err == (abortedOK{}) {
			return endedStream{ctx: ctx}, nil
		}
		return nil, err
	}
	finish := sync.OnceFunc(func() { done(); cancel() })
	s, err := streamer(ctx, desc, cc, method, append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { finish() }))...)
	if err != nil {
		finish()
	}
	return s, err
}

var logUnretried = sync.OnceFunc(func() {
	logger.Warning("xdslb: a route's retry policy does not apply to streams: it matches by more than the path, which gRPC's service config cannot say")
})

// enter lets the filters have a look at the RPC, in order.
func (c *rpc) enter(ctx context.Context) (context.Context, func(), error) {
	var leave []func()
	done := func() {
		for _, f := range leave {
			f()
		}
	}
	for _, f := range c.plan.filters {
		next, left, err := f(ctx)
		if err != nil {
			done()
			return ctx, nil, err
		}
		if ctx = next; left != nil {
			leave = append(leave, left)
		}
	}
	return ctx, done, nil
}

// endedStream is a stream that a fault ended with status OK and no message.
type endedStream struct {
	grpc.ClientStream // nil: all methods are below
	ctx               context.Context
}

func (endedStream) Header() (metadata.MD, error) { return nil, nil }
func (endedStream) Trailer() metadata.MD         { return nil }
func (endedStream) CloseSend() error             { return nil }
func (s endedStream) Context() context.Context   { return s.ctx }
func (endedStream) SendMsg(any) error            { return io.EOF }
func (endedStream) RecvMsg(any) error            { return io.EOF }
