// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental/stats/telemetry"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// A Shadow watches a channel of google.golang.org/grpc/xds, and compares where that sends
// RPCs with where xdslb would: the trial before a roll-out, in which nothing is at stake.
// It has an XdsClient, which it shares with channels of ours that have the same
// configuration, and subscribes to the target's resources. It connects to no backend.
//
// What is compared is the cluster that the route leads to, by the label
// grpc.lb.backend_service that stock gives an attempt (A89); the shares of clusters of a
// weighted route; and whether there is a route at all. The two may get an update at
// different times, so a difference counts only if no configuration explains it that was in
// force in the second before the RPC, or comes into force in the second after it.
// Which endpoint is picked is not compared: that depends on connections.
//
// It costs an RPC 9 allocations, 0.8 KB and a microsecond or so (bench/README.md).
//
// A Shadow is for one channel. It watches while the channel is not idle.
type Shadow struct {
	opts  *Config
	boot  *bootstrap.Config
	state atomic.Pointer[shadowState] // nil before the first configuration
	calls atomic.Uint64

	mu      sync.Mutex
	target  string // of the channel, while that is not idle
	metrics *metric.Channel
	found   map[ShadowKind]uint64
	noted   map[ShadowKind]bool
	pending []shadowCall // that may be differences
	timer   *time.Timer  // runs while some are pending
}

// ShadowKind is what kind of difference there is between stock and xdslb.
type ShadowKind string

// The kinds of differences.
const (
	// ShadowCluster is an RPC that stock sent to a cluster where xdslb would not.
	ShadowCluster ShadowKind = "cluster"
	// ShadowNoRoute is one that stock sent, and for which xdslb has no route.
	ShadowNoRoute ShadowKind = "no_route"
	// ShadowRoute is one for which stock found no route, and xdslb has one.
	ShadowRoute ShadowKind = "route"
	// ShadowUnserved is one that stock sent while xdslb cannot serve the target.
	ShadowUnserved ShadowKind = "unserved"
	// ShadowShares is a weighted route of which stock sends a cluster another share, by 6
	// standard deviations in 4096 RPCs or more. It counts once for each configuration.
	// Where routes are for fractions of RPCs, or there are HTTP filters, it is not looked for.
	ShadowShares ShadowKind = "shares"
)

// ShadowReport is what a Shadow has found so far.
type ShadowReport struct {
	// Calls are the RPCs that were compared. Those before the first configuration are not,
	// nor those that stock sent nowhere for other reasons than the lack of a route.
	Calls uint64
	// Pending are calls that look like differences, until that is settled.
	Pending     int
	Differences map[ShadowKind]uint64
}

// NewShadow returns a Shadow by a configuration, of which that counts which is for the
// XdsClient, and the Logger. It fails if the bootstrap cannot be read.
func NewShadow(cfg Config) (*Shadow, error) {
	s := &Shadow{opts: cfg.withDefaults(), found: map[ShadowKind]uint64{}, noted: map[ShadowKind]bool{}}
	var err error
	s.boot, err = s.opts.bootstrap()
	return s, err
}

// DialOptions are for the channel, whose target is of scheme xds:
//
//	grpc.NewClient("xds:///service:port", append(opts, shadow.DialOptions()...)...)
//
// They should come last, since an interceptor that comes behind may change headers. The
// program must link google.golang.org/grpc/xds, to which all RPCs go.
func (s *Shadow) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithResolvers(shadowBuilder{s}),
		grpc.WithChainUnaryInterceptor(s.unary),
		grpc.WithChainStreamInterceptor(s.stream),
	}
}

// Report returns what has been found so far.
func (s *Shadow) Report() ShadowReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ShadowReport{Calls: s.calls.Load(), Pending: len(s.pending), Differences: maps.Clone(s.found)}
}

// shadowBuilder makes stock's resolver, and has the shadow watch for as long as that lives.
type shadowBuilder struct{ *Shadow }

// Scheme implements resolver.Builder.
func (shadowBuilder) Scheme() string { return "xds" }

// Build implements resolver.Builder.
func (b shadowBuilder) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	stock := stockBuilder()
	if stock == nil {
		return nil, errors.New("xdslb: a Shadow is for channels of google.golang.org/grpc/xds, which the program does not import")
	}
	listener, err := b.boot.ListenerName(target.URL.Host, target.Endpoint())
	if err != nil {
		return nil, fmt.Errorf("xds: target %q: %w", target.URL.String(), err)
	}
	r := &shadowResolver{shadow: b.Shadow}
	if other, ok := b.begin(target.String()); !ok {
		return nil, fmt.Errorf("xdslb: a Shadow is for one channel, and has %q already", other)
	}
	if r.Resolver, err = stock.Build(target, cc, opts); err != nil {
		b.end()
		return nil, err
	}
	authority := opts.Authority
	if authority == "" {
		authority = target.Endpoint()
	}
	r.client = b.opts.acquire(b.boot)
	metrics := channelmetrics.Start(target.String(), opts.MetricsRecorder, nil)
	b.mu.Lock()
	b.metrics = metrics
	b.mu.Unlock()
	r.stop = r.client.Watch(listener, authority, b.Shadow)
	return r, nil
}

// begin begins to watch a target, unless another is watched already.
func (s *Shadow) begin(target string) (other string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target != "" {
		return s.target, false
	}
	s.target = target
	return "", true
}

// end forgets the target.
func (s *Shadow) end() {
	s.mu.Lock()
	metrics := s.metrics
	defer metrics.Stop() // with the mutex free
	defer s.mu.Unlock()
	s.target, s.metrics = "", nil
	s.pending = nil
	s.state.Store(nil)
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// shadowResolver is stock's resolver of a channel that is watched.
type shadowResolver struct {
	resolver.Resolver
	shadow *Shadow
	client *xds.Client
	stop   func()
}

// Close implements resolver.Resolver.
func (r *shadowResolver) Close() {
	r.Resolver.Close()
	r.stop()
	r.client.Release()
	r.shadow.end()
}

// Update implements xds.Watcher.
func (s *Shadow) Update(cfg *picker.Config) {
	next, err := newShadowState(cfg)
	if err != nil {
		s.Error(err)
		return
	}
	s.install(next)
}

// Error implements xds.Watcher.
func (s *Shadow) Error(err error) { s.install(&shadowState{err: err}) }

// install has RPCs compared with a state from now on, and for a while with those before.
func (s *Shadow) install(next *shadowState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target == "" {
		return
	}
	if last := s.state.Load(); last != nil {
		next.follow(last)
	}
	s.state.Store(next)
	// What stock did before it was known here is no difference.
	kept := s.pending[:0]
	for _, c := range s.pending {
		if next.judge(&c) != "" {
			kept = append(kept, c)
		}
	}
	clear(s.pending[len(kept):])
	s.pending = kept
}

// unary is the interceptor of unary RPCs.
func (s *Shadow) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	w := &shadowWatch{shadow: s, ctx: ctx, method: method}
	err := invoker(telemetry.NewContextWithLabelCallback(ctx, w.labels), method, req, reply, cc, opts...)
	if err != nil {
		w.failed(err)
	}
	return err
}

// stream is the interceptor of streams.
func (s *Shadow) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	w := &shadowWatch{shadow: s, ctx: ctx, method: method}
	stream, err := streamer(telemetry.NewContextWithLabelCallback(ctx, w.labels), desc, cc, method, opts...)
	if err != nil {
		w.failed(err)
	}
	return stream, err
}

// note counts a difference, and logs the first of its kind. The mutex is not held.
func (s *Shadow) note(kind ShadowKind, c *shadowCall, state *shadowState) {
	s.mu.Lock()
	target, metrics, first := s.target, s.metrics, !s.noted[kind]
	s.found[kind]++
	s.noted[kind] = true
	s.mu.Unlock()
	metrics.Count(metric.ShadowDifferences, 1, target, string(kind))
	if first {
		perrpc.LoggerOr(s.opts.Logger).Log(context.Background(), slog.LevelWarn, "xdslb: stock did what xdslb would not have done; this is logged once for each kind of difference",
			"target", target, "kind", string(kind), "method", c.method, "stock", c.did(), "xdslb", state.explain(target, c))
	}
}
