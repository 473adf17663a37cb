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

// of returns that of the cluster that an RPC goes to, or nil if no cluster serves the RPC.
func (l clusterLimits) of(call *Call) *concurrency {
	for i := range l {
		if call != nil && l[i].cluster == call.matched.name {
			return l[i].concurrency
		}
	}
	return nil
}

// admit returns the error of an RPC that is refused, or nil if it counts as in flight.
func (c *concurrency) admit(call *Call, now time.Time) error {
	if c.Acquire(now) {
		return nil
	}
	c.refused.Add(1)
	call.ended.Store(true)
	if l := call.link(); l != nil {
		l.unsent.Add(1)
	}
	return c.err
}

// observe takes in an RPC that has ended. What the client has ended itself, before a server
// had a say, says nothing; nor do those that were canceled, and those that failed for want of
// a server or were turned away, which may be fast. Those that timed out took too long, by
// whatever deadline.
func (c *concurrency) observe(call *Call, began time.Time, err error) {
	now := time.Now()
	took := max(now.Sub(began), 1)
	if err != nil {
		if call.final() {
			return
		}
		switch status.Code(err) {
		case codes.Canceled, codes.Unavailable, codes.ResourceExhausted:
			return
		case codes.DeadlineExceeded:
			took = gradient.Forever
		}
	}
	c.Observe(began, now, took)
}

// interceptor is the filter as an interceptor.
func (l clusterLimits) interceptor() interceptor {
	return interceptor{
		unary: func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			call := callIn(ctx)
			c := l.of(call)
			if c == nil {
				return invoker(ctx, method, req, reply, cc, opts...)
			}
			began := time.Now()
			if err := c.admit(call, began); err != nil {
				return err
			}
			defer c.Release()
			err := invoker(ctx, method, req, reply, cc, opts...)
			c.observe(call, began, err)
			return err
		},
		stream: func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			call := callIn(ctx)
			c := l.of(call)
			if c == nil || desc.ClientStreams {
				return streamer(ctx, desc, cc, method, opts...)
			}
			began := time.Now()
			if err := c.admit(call, began); err != nil {
				return nil, err
			}
			first := &firstMessage{of: c, call: call, began: began}
			s, err := streamer(ctx, desc, cc, method, append(opts[:len(opts):len(opts)], grpc.OnFinish(first.come))...)
			if err != nil {
				first.come(err)
				return nil, err
			}
			first.ClientStream = s
			return first, nil
		},
	}
}

// firstMessage is a stream that counts as in flight until its first message, or its end.
type firstMessage struct {
	grpc.ClientStream
	of    *concurrency
	call  *Call
	began time.Time
	came  atomic.Bool
}

// come says that a message has come, or that the stream has ended.
func (s *firstMessage) come(err error) {
	if !s.came.Swap(true) {
		s.of.Release()
		s.of.observe(s.call, s.began, err)
	}
}

// RecvMsg implements grpc.ClientStream. A stream without messages ends by OnFinish.
func (s *firstMessage) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && !s.came.Load() {
		s.come(nil)
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

// Unsent returns how many RPCs adaptive concurrency has refused.
func (l *Link) Unsent() uint64 { return l.unsent.Load() }
