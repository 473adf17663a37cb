// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lateness refuses attempts at unary RPCs whose deadline comes sooner than the fastest few of
// their route take, before they are given a connection (integrate.Config.RefuseLate). Servers
// would work for nobody. Such attempts are those of callers that have little time left, and
// retries after a back-off.
//
// How long the fastest take is learnt as in tail, without keeping times: the estimate goes
// down by a factor with each RPC that is faster, and up by a smaller one with each that is
// not. It is at rest where one in 46 is faster. RPCs that fail say nothing. One in lateTry is
// let through, so that a route on which all RPCs are refused learns that it has become faster.
//
// gRPC has no rule for this. Deadlines that have passed it refuses itself, but after the pick.
//
// The zero value is ready and knows nothing. Any number of goroutines may use it.
type lateness struct {
	estimate atomic.Int64 // in nanoseconds
	late     atomic.Uint64
}

const (
	lateUp   = 1.005
	lateDown = .8
	lateTry  = 20
)

// refuses reports whether an attempt with so much time left is late.
func (l *lateness) refuses(left time.Duration) bool {
	if left <= 0 {
		return true
	}
	return int64(left) < l.estimate.Load() && l.late.Add(1)%lateTry != 0
}

// observe takes in an RPC that took so long, and succeeded.
func (l *lateness) observe(took time.Duration) {
	follow(&l.estimate, took/2, 1, func(was time.Duration) float64 {
		if took < was {
			return lateDown
		}
		return lateUp
	})
}

// follow moves an estimate of a quantile by a factor. The first that it takes in makes it
// first; it is never below least.
func follow(estimate *atomic.Int64, first, least time.Duration, factor func(was time.Duration) float64) {
	for {
		was := estimate.Load()
		now := first
		if was > 0 {
			now = time.Duration(float64(was) * factor(time.Duration(was)))
		}
		if estimate.CompareAndSwap(was, int64(max(now, least))) {
			return
		}
	}
}

// timely refuses attempts that are late, which ends the RPC.
func (c *Call) timely(next grpc.UnaryInvoker) grpc.UnaryInvoker {
	l := c.plan.late
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		begin := time.Now()
		if deadline, ok := ctx.Deadline(); ok && l.refuses(deadline.Sub(begin)) {
			c.ended.Store(true)
			if l := c.link(); l != nil {
				l.late.Add(1)
			}
			return status.Errorf(codes.DeadlineExceeded, "xds: RPC refused: its deadline is in %v, and RPCs of its route take at least %v",
				deadline.Sub(begin), time.Duration(l.estimate.Load()))
		}
		err := next(ctx, method, req, reply, cc, opts...)
		if err == nil {
			l.observe(time.Since(begin))
		}
		return err
	}
}

// Late returns how many attempts were refused because they were late.
func (l *Link) Late() uint64 { return l.late.Load() }
