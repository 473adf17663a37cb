// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// attemptLog has the attempts of a scenario as a stats handler sees them. The load reports are
// compared with it, and so are the budgets of retries.
type attemptLog struct {
	w *world

	mu       sync.Mutex
	sums     map[string]attemptCounts // by cluster; "" is of attempts that sent nothing
	retrying map[string]int           // retries under way that a budget has admitted, by cluster
	budgeted int                      // of them, ever
}

// attemptCounts counts attempts that have ended. Some of the lost ones may count as failed.
type attemptCounts struct{ ok, failed, lost, mayFail uint64 }

// loggedAttempt is one of them.
type loggedAttempt struct {
	ctx     context.Context
	mu      sync.Mutex
	begin   time.Time
	rpc     time.Time // when its RPC began; zero is unknown
	retry   bool      // a retry or hedge, not gRPC's transparent retry
	sent    time.Time // its headers were
	cluster string    // where they went; empty before
	stream  bool
	counted bool // in retrying
	ended   bool // as a retry, which the budget does not count any more
}

type attemptKey struct{}

// A loggedRPC is in the context of an RPC.
type loggedRPC struct {
	begin    time.Time
	attempts atomic.Int32
}

type rpcKey struct{}

func (a *attemptLog) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	at := &loggedAttempt{ctx: ctx, begin: time.Now()}
	if rpc, ok := ctx.Value(rpcKey{}).(*loggedRPC); ok {
		at.rpc, at.retry = rpc.begin, rpc.attempts.Add(1) > 1
	}
	return context.WithValue(ctx, attemptKey{}, at)
}

func (a *attemptLog) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (a *attemptLog) HandleConn(context.Context, stats.ConnStats)                       {}

func (a *attemptLog) HandleRPC(ctx context.Context, s stats.RPCStats) {
	at, ok := ctx.Value(attemptKey{}).(*loggedAttempt)
	if !ok {
		return // a watch of health
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	switch s := s.(type) {
	case *stats.OutHeader:
		at.cluster, at.sent = a.w.clusterAt(s.RemoteAddr.String()), time.Now()
		// gRPC may report response headers before it reports the sent headers.
		if !at.ended && at.retry {
			at.counted = a.beginRetry(at)
		}
	case *stats.Begin:
		at.stream = s.IsServerStream
		if s.IsTransparentRetryAttempt {
			at.retry = false
		}
	case *stats.InHeader:
		if at.stream { // its retry is made
			a.endRetry(at)
		}
	case *stats.End:
		a.endRetry(at)
		a.end(at, s.Error)
	}
}

// clusterAt returns the cluster of a backend.
func (w *world) clusterAt(addr string) string {
	for name, pool := range w.pools {
		for _, of := range pool {
			if of == addr {
				return name
			}
		}
	}
	return ""
}

// beginRetry counts a retry or hedge that a budget has certainly admitted, and checks that there are
// not more of them than the budgets allow.
func (a *attemptLog) beginRetry(at *loggedAttempt) bool {
	limit := a.w.oracle.retryLimit(at.begin)
	if limit == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.budgeted++
	if a.retrying[at.cluster]++; a.retrying[at.cluster] > limit {
		a.w.oracle.mu.Lock()
		defer a.w.oracle.mu.Unlock()
		a.w.oracle.accuse("%d retries of cluster %s are under way, and its budget is %d", a.retrying[at.cluster], at.cluster, limit)
	}
	return true
}

// endRetry ends a retry that beginRetry has counted.
func (a *attemptLog) endRetry(at *loggedAttempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at.ended = true
	if at.counted {
		at.counted = false
		a.retrying[at.cluster]--
	}
}

// end counts an attempt that has ended. The application cancels none that has not.
func (a *attemptLog) end(at *loggedAttempt, err error) {
	plain := a.w.oracle.mayBePlain(at.begin, at.sent)
	if !at.stream {
		a.w.oracle.checkTime(at)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := a.sums[at.cluster]
	switch status.Code(err) {
	case codes.OK:
		sum.ok++
	case codes.Canceled:
		if cause := context.Cause(at.ctx); cause != nil && strings.Contains(cause.Error(), "per_try_timeout") {
			sum.failed++
			break
		}
		sum.lost++
		if plain {
			sum.mayFail++
		}
	default:
		sum.failed++
	}
	a.sums[at.cluster] = sum
}

// mayBePlain reports whether a pick between two times may have found that no route asks for
// interceptors. An attempt that is lost counts as failed then: see rpc.Call.Picked.
func (o *oracle) mayBePlain(begin, sent time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if sent.IsZero() || o.first.IsZero() {
		return true
	}
	return slices.ContainsFunc(o.possible(begin, sent), func(p *plan) bool { return !p.retries() && !p.changesHeaders() })
}

// checkTime checks that a unary attempt has not exceeded its per_try_timeout, which begins with its
// pick. An update after which no route has interceptors ends the limit.
func (o *oracle) checkTime(at *loggedAttempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at.sent.IsZero() || at.rpc.IsZero() || o.first.IsZero() || o.first.After(at.rpc) {
		return
	}
	limit := time.Duration(0)
	for _, p := range o.possible(at.rpc, at.rpc) {
		if limit = max(limit, p.tryTimeout()); p.tryTimeout() == 0 {
			return
		}
	}
	if slices.ContainsFunc(o.possible(at.rpc, at.sent), func(p *plan) bool { return !p.retries() && !p.changesHeaders() }) {
		return
	}
	o.limited++
	if took := time.Since(at.sent); took > limit {
		o.accuse("an attempt took %v, and its per_try_timeout is %v", took, limit)
	}
}

// retryLimit is how many retries of a cluster may be under way that began at some time, by all
// configurations that may have been in effect when they were decided on; 0 is any number. It is
// the least concurrency of budgets, of which the percentage is less with so few RPCs.
func (o *oracle) retryLimit(begin time.Time) (limit int) {
	const longestBackoff = 300 * time.Millisecond
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first.IsZero() || o.first.After(begin.Add(-longestBackoff)) {
		return 0
	}
	for _, p := range o.possible(begin.Add(-longestBackoff), begin) {
		if p.retryLimit() == 0 {
			return 0
		}
		limit = max(limit, p.retryLimit())
	}
	return limit
}
