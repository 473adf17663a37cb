// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

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

// A concurrency refuses RPCs of a channel to a cluster while as many are in flight as a limit
// says, which follows how long they take (Envoy's adaptive_concurrency; see package gradient).
// It is outside of retries: an RPC has one place, whatever attempts and hedges it takes, and
// one that is refused is not retried. RPCs that the client streams are let pass and do not
// count: how long they are open is up to the application. One that only the server streams
// counts until its first message.
//
// There is one for each filter, configuration and cluster of a channel, whatever routes have
// it. Clusters are other servers, with another latency: a slow one that shared a limit with a
// fast one would take its places.
//
//	newConcurrency ──▶ in force ──▶ kept by the plans of the next configuration
//	                            └──▶ gone with its plans, if that lacks it
//
// Any number of goroutines may use it; none waits.
type concurrency struct {
	*gradient.Controller
	err     error         // of RPCs that are refused
	refused atomic.Uint64 // since it was made
}

// concurrencyKey is what tells one concurrency of a channel from another.
type concurrencyKey struct {
	filter, cluster string
	cfg             resource.AdaptiveConcurrency
}

func newConcurrency(key concurrencyKey) *concurrency {
	text := fmt.Sprintf("xds: RPC refused by adaptive concurrency %q, because cluster %q has as many RPCs in flight as it should", key.filter, key.cluster)
	return &concurrency{
		Controller: gradient.New(&key.cfg, time.Now()),
		err:        refusal(codes.Code(key.cfg.Code), text, "CONCURRENCY", map[string]string{"filter": key.filter, "cluster": key.cluster}),
	}
}

// clusterLimits are the concurrencies of a route's clusters, for a filter. They are few.
type clusterLimits []struct {
	cluster string
	*concurrency
}

// limitsFor returns those of a route, or of one of its clusters if that has a name.
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

// of returns that of a cluster, or nil if there is none.
func (l clusterLimits) of(cluster string) *concurrency {
	for i := range l {
		if l[i].cluster == cluster {
			return l[i].concurrency
		}
	}
	return nil
}

// observe records an RPC that has ended. RPCs that were canceled have no information about servers,
// and neither have those without a server and those that were refused, which may be fast. RPCs that
// timed out took too long, whatever their deadline.
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

// A place is that of an RPC among those in flight to its cluster.
type place struct {
	of    *concurrency // nil if there is no limit for the RPC
	call  *Call
	began time.Time
}

// placeFor returns the place of an RPC, or the error of an RPC that is refused.
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
		ch.unsent.Add(1)
	}
	return p, c.err
}

// observe records how the RPC ended, unless the client ended it before a server was involved.
func (p *place) observe(err error) {
	if err == nil || !p.call.final() {
		p.of.observe(p.began, err)
	}
}

// concurrencyInterceptor is the concurrencies of a route's clusters as an interceptor.
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

// firstMessage is a stream that counts as in flight until its first message, or its end.
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

// A ConcurrencyState is what an adaptive concurrency filter is at for a cluster.
type ConcurrencyState struct {
	Filter, Cluster string
	gradient.State
	Refused uint64 // since the filter has this configuration
}

func (c *concurrency) state(key concurrencyKey) ConcurrencyState {
	return ConcurrencyState{key.filter, key.cluster, c.State(time.Now()), c.refused.Load()}
}

// Concurrencies returns what the adaptive concurrency filters of the plans are at, by filter
// and cluster.
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

// Concurrency returns what a filter with a configuration is at for a cluster, if that is
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

// TimesOut reports whether RPCs took too long to have ended.
func (s ConcurrencyState) TimesOut() bool { return s.SampleRTT == gradient.Forever }

// String says what the limit is, and why.
func (s ConcurrencyState) String() string {
	text := fmt.Sprintf("lets %d RPCs be in flight, and %d are", s.Limit, s.InFlight)
	switch {
	case s.MinRTT == 0:
		return text + "; how long they take is being measured"
	case s.SampleRTT == 0:
		return text + fmt.Sprintf("; they should take %v", s.MinRTT)
	case s.TimesOut():
		return text + fmt.Sprintf("; they should take %v, and time out", s.MinRTT)
	}
	return text + fmt.Sprintf("; they should take %v, and took %v", s.MinRTT, s.SampleRTT)
}
