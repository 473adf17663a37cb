// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
)

// rpcKey is the context key of an RPC's *rpc.
type rpcKey struct{}

// rpc is an RPC whose route was chosen by an interceptor: its attempts all go
// to the same cluster (A31). It lives as long as the RPC and holds no snapshot
// (D9).
type rpc struct {
	plans   *plans
	plan    *rpcPlan
	route   int32 // while plans are in force
	cluster int32 // where it was when the route was chosen
	name    string
	// session is the RPC's session, if it may have one (A55).
	session *session
	// final says that a pick ended the RPC, which is then not to be retried.
	final atomic.Bool
}

// refused notes that a pick failed: with a status, it is the end of the RPC
// (T-DROP-3, A32).
func (c *rpc) refused(err error) {
	if _, ok := status.FromError(err); ok {
		c.final.Store(true)
	}
}

// clusterIn returns the index of the RPC's cluster in a snapshot, or -1 if it
// is gone from the configuration.
func (c *rpc) clusterIn(s *published) int32 {
	clusters := s.cfg.Clusters
	if i := int(c.cluster); i < len(clusters) && clusters[i].Name == c.name {
		return c.cluster
	}
	return int32(slices.IndexFunc(clusters, func(cc *picker.Cluster) bool { return cc.Name == c.name }))
}

// place returns the route and the cluster that the RPC's picks from a snapshot
// are for. If an update has taken the cluster away since the route was chosen it
// is -1; if only the routes have changed, what the route says besides the cluster
// is that of the route which the RPC would take now.
func (c *rpc) place(s *published, info balancer.PickInfo, r uint64) (route, cluster int32) {
	route, cluster = c.route, c.clusterIn(s)
	if s.plans != c.plans {
		route, _, _ = s.snapshot.Match(info.Ctx, info.FullMethodName, r)
	}
	return route, cluster
}

// pick picks from the RPC's cluster, or from what the RPC's route would be now if
// there is no such cluster any more.
func (c *rpc) pick(s *published, info balancer.PickInfo, r uint64) picker.Result {
	route, cluster := c.place(s, info, r)
	if cluster < 0 {
		return s.snapshot.Pick(info.Ctx, info.FullMethodName, r)
	}
	return s.snapshot.PickCluster(info.Ctx, route, cluster, r)
}

// planOf finds the RPC's route, if the channel is ours and its target has any
// that take an interceptor.
func planOf(ctx context.Context, cc *grpc.ClientConn, method string) *rpc {
	t := tableOf(ctx, cc)
	if t == nil || t.plans == nil {
		return nil
	}
	return t.plan(ctx, method)
}

// plan finds the RPC's route; it is nil if there is nothing to do for it.
func (t *published) plan(ctx context.Context, method string) *rpc {
	route, cluster, outcome := t.snapshot.Match(ctx, method, rand.Uint64())
	if outcome != picker.Picked {
		return nil // the pick will say why
	}
	plans := t.plans.of(route)
	if plans == nil {
		return nil
	}
	name := t.cfg.Clusters[cluster].Name
	return &rpc{plans: t.plans, plan: plans.of(name), route: route, cluster: cluster, name: name}
}

// UnaryInterceptor applies what the route of a unary RPC says besides where the
// RPC goes, as far as gRPC's service config cannot: timeouts and retries of
// routes that match by header or fraction, and HTTP filters. [DialOptions] and
// [NewClient] install it; it is exported for channels whose interceptors are put
// together elsewhere. It serves any channel that has a resolver of this package,
// and lets RPCs of others pass. With nothing to do it costs a map look-up or two at most
// and allocates nothing.
func UnaryInterceptor(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := planOf(ctx, cc, method)
	if call == nil {
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	ctx = context.WithValue(ctx, rpcKey{}, call)
	if d := call.plan.timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	return call.plan.unary(invoker)(ctx, method, req, reply, cc, opts...)
}

// unary wraps retries around an invoker, and the filters around that.
func (p *rpcPlan) unary(next grpc.UnaryInvoker) grpc.UnaryInvoker {
	if p.retry != nil {
		next = retrying(p.retry, next)
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

// StreamInterceptor is what [UnaryInterceptor] is, for streams, but for retries:
// what was sent on a stream is gone when it fails. Routes that gRPC's service
// config can say (see [DialOptions]) have their streams retried by gRPC; a policy
// of another route that meets a stream is reported in the log, once.
func StreamInterceptor(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	call := planOf(ctx, cc, method)
	if call == nil {
		return streamer(ctx, desc, cc, method, opts...)
	}
	ctx = context.WithValue(ctx, rpcKey{}, call)
	if call.plan.retry != nil {
		logUnretried()
	}
	streamer = call.plan.stream(streamer)
	d := call.plan.timeout
	if d == 0 {
		return streamer(ctx, desc, cc, method, opts...)
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	s, err := streamer(ctx, desc, cc, method, append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { cancel() }))...)
	if err != nil {
		cancel()
	}
	return s, err
}

// stream wraps the filters around a streamer.
func (p *rpcPlan) stream(next grpc.Streamer) grpc.Streamer {
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

var logUnretried = sync.OnceFunc(func() {
	logger.Warning("xdslb: a route's retry policy does not apply to streams: it matches by more than the path, which gRPC's service config cannot say")
})
