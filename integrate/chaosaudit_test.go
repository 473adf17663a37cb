// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// openConns counts the open connections of clients by address.
type openConns struct {
	mu   sync.Mutex
	open map[string]map[string]int
}

func (o *openConns) add(client, addr string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[string]map[string]int{}
	}
	if o.open[client] == nil {
		o.open[client] = map[string]int{}
	}
	o.open[client][addr] += n
	if o.open[client][addr] == 0 {
		delete(o.open[client], addr)
	}
}

// of returns the number of a client's open connections by address.
func (o *openConns) of(client string) map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.open[client])
}

// total returns the number of open connections of all clients.
func (o *openConns) total() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, byAddr := range o.open {
		for _, k := range byAddr {
			n += k
		}
	}
	return n
}

// audit checks the books of a scenario in which nothing is under way any more.
func (w *world) audit(cc *grpc.ClientConn) {
	w.t.Helper()
	w.await(w.inexact)
	for addr, n := range w.conns.of("steady") {
		if n != 1 || !slices.Contains(w.configured(), addr) {
			w.fail("%d connections to %s are open; configured are %v", n, addr, w.configured())
		}
	}
	w.subscriptions()
	w.breaker(cc)
	w.retries(cc)
	w.drops(cc)
}

// reported adds up the load reports of a cluster to both control planes.
func (w *world) reported(name string) (sum xdstest.LocalityCounts, dropped uint64) {
	for _, c := range w.controls {
		counts := c.Loads(w.service+name, w.service+name)
		one := counts.Total
		sum.Issued += one.Issued
		sum.OK += one.OK
		sum.Failed += one.Failed
		sum.InProgress += one.InProgress
		dropped += counts.Drops["chaos"]
	}
	return sum, dropped
}

// fellBack reports whether clients have used a control plane other than the first. The reporter of
// that control plane ended with the change back to the first, so that RPCs in progress then are
// never reported.
func (w *world) fellBack() bool {
	return slices.ContainsFunc(w.controls[1:], func(c *xdstest.Server) bool {
		_, streams := c.LoadStreams()
		return streams > 0
	})
}

// inexact returns the error in the load reports, if any: whatever was issued has ended
// (T-LRS-3), and all that succeeded and failed was reported once. Attempts at a hedged RPC that
// another one has decided are neither. Of attempts that nothing was sent of gRPC does not say
// whether they were picked for.
func (w *world) inexact() string {
	if w.lossy || w.fellBack() {
		return ""
	}
	served, _ := w.oracle.counts()
	w.attempts.mu.Lock()
	defer w.attempts.mu.Unlock()
	unsent := w.attempts.sums[""]
	for _, name := range []string{"a", "b"} {
		sum, _ := w.reported(name)
		ended := w.attempts.sums[name]
		lost := sum.Issued - sum.OK - sum.Failed
		if sum.InProgress != 0 || sum.OK != ended.ok || sum.OK < uint64(served[name]) || !w.plan.hedged && sum.OK != uint64(served[name]) ||
			sum.Failed < ended.failed || sum.Failed > ended.failed+ended.mayFail+unsent.failed || lost+ended.mayFail < ended.lost || lost > ended.lost+unsent.lost {
			return fmt.Sprintf("cluster %s: %+v are reported, %d RPCs succeeded, of the attempts were %+v, and not sent %+v", name, sum, served[name], ended, unsent)
		}
	}
	return ""
}

// retries checks that no retry of the scenario is still in the budget's count: of a budget
// of one retry, one is left.
func (w *world) retries(cc *grpc.ClientConn) {
	w.t.Helper()
	if w.real {
		return // where deadlines are the machine's
	}
	p := w.plan.clone()
	for !p.retries() {
		p.number++
	}
	p.oneRetry, p.routed = true, map[string]uint32{"a": 1}
	w.apply(p)
	before := uint64(0)
	for _, addr := range w.pools["a"] {
		w.backends[addr].Fail(codes.Unavailable)
		before += w.backends[addr].Calls()
	}
	if _, err := testgrpc.NewTestServiceClient(cc).UnaryCall(context.Background(), new(testgrpc.SimpleRequest)); status.Code(err) != codes.Unavailable {
		w.fail("an RPC to backends that fail ends with %v", err)
	}
	for _, addr := range w.pools["a"] {
		w.backends[addr].Fail(codes.OK)
		before -= w.backends[addr].Calls()
	}
	if made := -before; made != uint64(p.number%3+2) {
		w.fail("%d attempts at an RPC by %v, want %d", made, p, p.number%3+2)
	}
	p = p.clone()
	p.oneRetry = false
	w.apply(p)
}

// subscriptions checks that the client subscribes to the configured resources and to no others.
func (w *world) subscriptions() {
	w.t.Helper()
	w.await(func() string {
		for _, c := range w.controls {
			names := c.Stats(xdstest.EDS).Names
			if open, _ := c.Streams(); open > 0 && !slices.Equal(names, []string{w.service + "a", w.service + "b"}) {
				return fmt.Sprintf("subscriptions to %q", names)
			}
		}
		return ""
	})
}

// breaker checks that no RPC of the scenario is still in the breaker's count: of a
// limit of 3, 3 are left (T-CB-1).
func (w *world) breaker(cc *grpc.ClientConn) {
	w.t.Helper()
	p := w.plan.clone()
	p.routed = map[string]uint32{"a": 1}
	p.clusters["a"].breaker = 3
	w.apply(p)
	rng := rand.New(rand.NewPCG(1, 1))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := testgrpc.NewTestServiceClient(cc)
	for i := range 3 {
		s, err := client.FullDuplexCall(ctx)
		if err == nil {
			_, err = s.Header()
		}
		if err != nil {
			w.fail("RPC %d of 3 that the breaker allows: %v", i+1, err)
		}
	}
	_, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
	if status.Code(err) != codes.Unavailable || !strings.Contains(fmt.Sprint(err), "circuit breaker") {
		w.fail("the RPC beyond the breaker's limit: %v", err)
	}
	cancel()
	w.pass(deadline / w.haste())
	p = p.clone()
	p.clusters["a"].breaker = 1 << 20
	w.apply(p)
	for range 3 {
		if err := w.unary("audit", cc, rng); err != nil {
			w.fail("RPC after the breaker's limit: %v", err)
		}
	}
}

// drops checks that the number of dropped RPCs equals the reported number (A27-CLA-13).
func (w *world) drops(cc *grpc.ClientConn) {
	w.t.Helper()
	p := w.plan.clone()
	p.clusters["a"].drop = 300_000
	w.apply(p)
	client := testgrpc.NewTestServiceClient(cc)
	dropped := uint64(0)
	for range 100 {
		_, err := client.UnaryCall(context.Background(), new(testgrpc.SimpleRequest))
		switch {
		case err == nil:
		case status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "dropped"):
			dropped++
		default:
			w.fail("an RPC that may be dropped: %v", err)
		}
	}
	w.await(func() string {
		if _, got := w.reported("a"); got == dropped || w.lossy && got <= dropped {
			return ""
		}
		return "drops that are not reported"
	})
	if dropped == 0 || dropped == 100 {
		w.fail("%d of 100 RPCs were dropped, of 30 %%", dropped)
	}
}

// apply pushes a plan and waits until it is in effect.
func (w *world) apply(p *plan) {
	w.t.Helper()
	w.note("push %v", p)
	w.push(p, noDefect)
	w.await(w.unsettled)
	w.pass(deadline / w.haste())
}

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
