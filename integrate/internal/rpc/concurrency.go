// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/gradient"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// A concurrency refuses RPCs of a channel to a cluster while the number of RPCs in flight is at
// a limit, which adapts to their latency (Envoy's adaptive_concurrency; see package gradient).
// Retries happen inside of it: an RPC counts once, however many attempts it takes, and a
// refused RPC is not retried. Streams of the client pass and do not count, since the
// application decides how long they are open. A stream of the server counts until its first
// message.
//
// A channel has one concurrency for each filter, configuration and cluster, which its routes
// share. Clusters have different servers, with different latencies: a slow cluster would use up
// the limit of a fast one. The plans of the next configuration take it over if they have the
// same filter and cluster.
//
// Any number of goroutines may use a concurrency without waiting.
type concurrency struct {
	*gradient.Controller
	err     error         // of RPCs that are refused
	refused atomic.Uint64 // since it was made
}

// A concurrencyKey identifies a concurrency of a channel.
type concurrencyKey struct {
	filter, cluster string
	cfg             resource.AdaptiveConcurrency
}

func newConcurrency(key concurrencyKey) *concurrency {
	text := fmt.Sprintf("xdslb: RPC refused by adaptive concurrency %q: cluster %q is at its limit of RPCs in flight", key.filter, key.cluster)
	return &concurrency{
		Controller: gradient.New(&key.cfg, time.Now()),
		err:        refusal(codes.Code(key.cfg.Code), text, "CONCURRENCY", map[string]string{"filter": key.filter, "cluster": key.cluster}),
	}
}

// clusterLimits are the concurrencies of a route's clusters, for a filter. There are few.
type clusterLimits []struct {
	cluster string
	*concurrency
}

// limitsFor returns the limits of a route, or of one of its clusters if c has a name.
func (p *planner) limitsFor(f *picker.Filter, cfg *resource.AdaptiveConcurrency, r *picker.Route, c *picker.WeightedCluster) (limits clusterLimits) {
	for i := range r.Clusters {
		name := r.Clusters[i].Name
		if c.Name != "" && c.Name != name || slices.ContainsFunc(r.Clusters[:i], func(c picker.WeightedCluster) bool { return c.Name == name }) {
			continue
		}
		limit := keep(p.concurrencies, p.before.concurrencies, concurrencyKey{f.Name, name, *cfg}, newConcurrency)
		limits = append(limits, struct {
			cluster string
			*concurrency
		}{name, limit})
	}
	return limits
}

// of returns the limit of a cluster, or nil.
func (l clusterLimits) of(cluster string) *concurrency {
	for i := range l {
		if l[i].cluster == cluster {
			return l[i].concurrency
		}
	}
	return nil
}

// observe records an RPC that has ended. Canceled RPCs are ignored, and so are RPCs without a
// server and refused RPCs, which may be fast. An RPC that timed out counts as slow, whatever
// its deadline.
func (c *concurrency) observe(began time.Time, err error) {
	now := time.Now()
	took := max(now.Sub(began), 1)
	switch status.Code(err) {
	case codes.Canceled, codes.Unavailable, codes.ResourceExhausted:
		return
	case codes.DeadlineExceeded:
		took = gradient.Forever
	}
	c.Observe(began, now, took)
}

// A place is the place of an RPC among those in flight to its cluster.
type place struct {
	of    *concurrency // nil if the RPC is not limited
	call  *Call
	began time.Time
}

// placeFor returns the place of an RPC, or the error of a refused RPC.
func placeFor(ctx context.Context, limits clusterLimits) (p place, err error) {
	call := callIn(ctx)
	if call == nil {
		return p, nil
	}
	c := limits.of(call.matched.name)
	if c == nil {
		return p, nil
	}
	p = place{c, call, time.Now()}
	if c.Acquire(p.began) {
		return p, nil
	}
	c.refused.Add(1)
	call.ended.Store(true)
	if ch := call.channel(); ch != nil {
		ch.rejectedByConcurrency.Add(1)
	}
	return p, c.err
}

// observe records how the RPC ended, unless the client ended it before a server was involved.
func (p *place) observe(err error) {
	if err == nil || !p.call.final() {
		p.of.observe(p.began, err)
	}
}

// concurrencyInterceptor returns the limits of a route's clusters as an interceptor.
func concurrencyInterceptor(limits clusterLimits) interceptor {
	return interceptor{
		unary: func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			p, err := placeFor(ctx, limits)
			switch {
			case err != nil:
				return err
			case p.of == nil:
				return invoker(ctx, method, req, reply, cc, opts...)
			}
			defer p.of.Release()
			err = invoker(ctx, method, req, reply, cc, opts...)
			p.observe(err)
			return err
		},
		stream: func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if desc.ClientStreams {
				return streamer(ctx, desc, cc, method, opts...)
			}
			p, err := placeFor(ctx, limits)
			switch {
			case err != nil:
				return nil, err
			case p.of == nil:
				return streamer(ctx, desc, cc, method, opts...)
			}
			s := &firstMessage{place: p}
			if s.ClientStream, err = streamer(ctx, desc, cc, method, append(opts[:len(opts):len(opts)], grpc.OnFinish(s.leave))...); err != nil {
				s.leave(err)
				return nil, err
			}
			return s, nil
		},
	}
}

// A firstMessage is a stream that counts as in flight until its first message or its end.
type firstMessage struct {
	grpc.ClientStream
	place
	left atomic.Bool
}

// leave is called with the first message, which has no error, and at the end of the stream.
func (s *firstMessage) leave(err error) {
	if !s.left.Swap(true) {
		s.of.Release()
		s.observe(err)
	}
}

// RecvMsg implements grpc.ClientStream. A stream without messages ends by OnFinish.
func (s *firstMessage) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && !s.left.Load() {
		s.leave(nil)
	}
	return err
}

// A ConcurrencyState is the state of an adaptive concurrency filter for a cluster.
type ConcurrencyState struct {
	Filter, Cluster string
	gradient.State
	Refused uint64 // since the filter has this configuration
}

func (c *concurrency) state(key concurrencyKey) ConcurrencyState {
	return ConcurrencyState{key.filter, key.cluster, c.State(time.Now()), c.refused.Load()}
}

// Concurrencies returns the states of the adaptive concurrency filters, by filter and cluster.
func (p *Plans) Concurrencies() (list []ConcurrencyState) {
	if p == nil {
		return nil
	}
	for key, c := range p.concurrencies {
		list = append(list, c.state(key))
	}
	slices.SortFunc(list, func(a, b ConcurrencyState) int {
		return cmp.Or(strings.Compare(a.Filter, b.Filter), strings.Compare(a.Cluster, b.Cluster), cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Limit, a.Limit))
	})
	return list
}

// Concurrency returns the state of a filter with a configuration for a cluster, if it is
// adaptive concurrency and some plan has it.
func (p *Plans) Concurrency(filter, cluster string, config any) (s ConcurrencyState, ok bool) {
	cfg, ok := config.(*resource.AdaptiveConcurrency)
	if !ok || p == nil {
		return s, false
	}
	key := concurrencyKey{filter, cluster, *cfg}
	c := p.concurrencies[key]
	if c == nil {
		return s, false
	}
	return c.state(key), true
}

// TimesOut reports whether the latest RPCs timed out.
func (s ConcurrencyState) TimesOut() bool { return s.SampleRTT == gradient.Forever }

// String describes the state.
func (s ConcurrencyState) String() string {
	text := fmt.Sprintf("limit of %d RPCs in flight, %d in flight", s.Limit, s.InFlight)
	switch {
	case s.MinRTT == 0:
		return text + "; the minimum latency is being measured"
	case s.SampleRTT == 0:
		return text + fmt.Sprintf("; minimum latency %v", s.MinRTT)
	case s.TimesOut():
		return text + fmt.Sprintf("; minimum latency %v, recent RPCs time out", s.MinRTT)
	}
	return text + fmt.Sprintf("; minimum latency %v, recent latency %v", s.MinRTT, s.SampleRTT)
}
