// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/integrate/internal/proberpc"
)

// serviceName and Method name the RPC of a probe.
const (
	serviceName = "xdslb.probe.v1.Probe"
	Method      = "/" + serviceName + "/Load"
)

// A Load is the load of a server, whose RPCs it observes (see ServerOption). A Load is safe for concurrent use, and several servers of a process that share
// resources should share one. It must not be copied.
type Load struct {
	start     time.Time // times are nanoseconds since start
	inFlight  atomic.Int64
	latencies latencies
	outcomes  outcomes
	weight    atomic.Uint64 // bits of a float64
	goingAway atomic.Bool
}

// NewLoad returns a Load without RPCs.
func NewLoad() *Load { return &Load{start: time.Now()} }

// ServerOption returns the option with which a server reports its RPCs to the Load.
func (l *Load) ServerOption() grpc.ServerOption { return grpc.StatsHandler(observer{l}) }

// An observer passes the RPCs of a server to its Load.
type observer struct{ *Load }

// SetWeight sets the relative capacity of the server: a server with weight 2 is as busy with 6
// RPCs in flight as one with weight 1 is with 3. A value that is not positive and finite counts
// as 1, the default.
func (l *Load) SetWeight(w float64) {
	if !(w > 0) || math.IsInf(w, 1) {
		w = 0
	}
	l.weight.Store(math.Float64bits(w))
}

// SetGoingAway sets whether the server is about to stop. Clients then pick other servers if
// possible, and keep probing occasionally.
func (l *Load) SetGoingAway(away bool) { l.goingAway.Store(away) }

// report returns the current report. O(1); the report is its only allocation.
func (l *Load) report() *proberpc.Report {
	now := l.now()
	n := max(0, l.inFlight.Load())
	return &proberpc.Report{
		InFlight:   uint32(min(n, math.MaxUint32)),
		LatencyNs:  uint64(l.latencies.at(n, now)),
		FailingPPM: l.outcomes.failing(now),
		Weight:     math.Float64frombits(l.weight.Load()),
		GoingAway:  l.goingAway.Load(),
	}
}

func (l *Load) now() int64 { return int64(time.Since(l.start)) }

// A counted is the context of a counted RPC. It is one allocation, whereas a context.WithValue
// would be two.
type counted struct {
	context.Context
	load  *Load
	found int64 // RPCs in flight at its start; -1 before
}

// A countedKey is the key of a Load's own value.
type countedKey struct{ load *Load }

func (c *counted) Value(key any) any {
	if key == any(countedKey{c.load}) {
		return c
	}
	return c.Context.Value(key)
}

// uncounted are the services whose RPCs do not count.
var uncounted = []string{"/" + serviceName + "/", "/grpc.health.", "/grpc.reflection."}

// TagRPC implements stats.Handler.
func (l observer) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	for _, prefix := range uncounted {
		if strings.HasPrefix(info.FullMethodName, prefix) {
			return ctx
		}
	}
	return &counted{ctx, l.Load, -1}
}

// HandleRPC implements stats.Handler.
func (l observer) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.Begin:
		if s.IsClientStream || s.IsServerStream || s.Client {
			return
		}
		if c, ok := ctx.Value(countedKey{l.Load}).(*counted); ok {
			c.found = l.inFlight.Add(1) - 1
		}
	case *stats.End:
		if c, ok := ctx.Value(countedKey{l.Load}).(*counted); ok && c.found >= 0 {
			l.inFlight.Add(-1)
			l.ended(c.found, s)
		}
	}
}

// ended records an RPC that found this many in flight.
func (l *Load) ended(found int64, s *stats.End) {
	now := int64(s.EndTime.Sub(l.start))
	switch status.Code(s.Error) {
	case codes.OK:
		l.outcomes.count(now, true)
		l.latencies.add(found, now, s.EndTime.Sub(s.BeginTime))
	case codes.Canceled, codes.DeadlineExceeded:
		// This is a lower bound, which is useful information about a server that hangs. The
		// actual latency is unknown.
		if took := s.EndTime.Sub(s.BeginTime); int64(took) > l.latencies.at(found, now) {
			l.latencies.add(found, now, took)
		}
	default:
		l.outcomes.count(now, false)
	}
}

// TagConn implements stats.Handler.
func (l observer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (l observer) HandleConn(context.Context, stats.ConnStats) {}

// Register registers a service that answers probes with the Load.
func Register(s grpc.ServiceRegistrar, l *Load) { s.RegisterService(&serviceDesc, l) }

// serviceDesc is equivalent to the output of protoc-gen-go-grpc.
var serviceDesc = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*reporter)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Load", Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(emptypb.Empty)
		if err := dec(in); err != nil {
			return nil, err
		}
		if interceptor == nil {
			return srv.(reporter).report(), nil
		}
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: Method}, func(context.Context, any) (any, error) {
			return srv.(reporter).report(), nil
		})
	}}},
}

type reporter interface{ report() *proberpc.Report }
