// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
)

// This file has RPCs that are sent through the interceptors, attempt by attempt.

// An interceptedRPC is an RPC sent through the interceptors. It may outlive updates and make
// several attempts.
type interceptedRPC struct {
	cluster    string
	cancel     context.CancelFunc
	picked     int // attempts that have started to pick
	ended      bool
	err        error
	routed     *routedRPC    // nil if the RPC uses the route of its cluster
	nested     bool          // made with the context of another RPC's attempt
	cancels    bool          // its interceptor may cancel attempts
	timed      bool          // its attempts end after tryTimeout
	panics     bool          // in each attempt
	ownHeaders metadata.MD   // before its route's mutations
	sends      []metadata.MD // that attempts may send, as far as the model knows
	header     metadata.MD   // of its response
}

// attempt is an attempt of an interceptedRPC.
type attempt struct {
	of      *interceptedRPC
	ctx     context.Context
	method  string
	rpc     *modelRPC // nil until it has picked
	since   time.Time // when its time began
	ended   time.Time // when it was canceled
	timed   bool      // its time is limited
	noPlans bool      // the balancer had no Plans when it began, so its time began then
	over    bool
	end     chan error
	id      string

	// For a routedRPC: the endpoint as a cookie names it, or "" if there can be no cookie, and
	// whether the cookie must be this one.
	upstream string
	sure     bool
}

// tracker has the RPCs in flight. history.handleEvents handles the events of their goroutines.
type tracker struct {
	intercepted []*interceptedRPC
	picked      []*attempt  // have picked
	held        []*attempt  // will pick later
	plans       func() bool // whether the balancer has Plans

	mu       sync.Mutex // guards the fields below, and the fields picked, ended and err of RPCs
	starting []*attempt
	attempts int // made so far
	canceled []*attempt
	ended    []*interceptedRPC
}

// startIntercepted starts some RPCs.
func (t *history) startIntercepted() {
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	if !c.routed || len(t.tracker.intercepted) > 20 {
		return
	}
	t.drainEvents()
	n := 1 + t.Rand.IntN(6)
	t.Logf("%d intercepted RPCs to %s", n, c.name)
	for range n {
		t.startInterceptedRPC(c.name)
	}
}

// startInterceptedRPC starts an RPC, and checks that it makes one attempt.
func (t *history) startInterceptedRPC(cluster string) {
	f := &interceptedRPC{cluster: cluster, timed: t.controlPlane.attempts && t.controlPlane.perTryTimeout, sends: []metadata.MD{mutated(nil, t.controlPlane.headers)}}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	var reply any
	if t.Rand.IntN(2) == 0 {
		reply = &emptypb.Empty{} // may be hedged
	}
	table := t.lb.Table()
	go t.tracker.run(ctx, f, table, reply)
	synctest.Wait()
	t.tracker.mu.Lock()
	defer t.tracker.mu.Unlock()
	if f.ended || f.picked != 1 && !t.clusterNamed(cluster).probesFirst() {
		t.Fatalf("an RPC to %s made %d attempts (ended: %v, error %v), want 1 attempt in flight", cluster, f.picked, f.ended, f.err)
	}
	t.tracker.intercepted = append(t.tracker.intercepted, f)
}

// panicInAttempt has the application panic in an attempt. The panic must reach the caller of the
// RPC.
func (t *history) panicInAttempt() {
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	if !c.routed {
		return
	}
	t.Logf("the application panics in an attempt at an RPC to %s", c.name)
	f, table := &interceptedRPC{cluster: c.name, panics: true}, t.lb.Table()
	var reply any
	if t.Rand.IntN(2) == 0 {
		reply = &emptypb.Empty{} // may be hedged
	}
	go t.tracker.run(context.Background(), f, table, reply)
	if synctest.Wait(); c.probesFirst() {
		kit.Pass(time.Second)
	}
	t.tracker.mu.Lock()
	defer t.tracker.mu.Unlock()
	if !f.ended || f.err != errPanic {
		t.Fatalf("an RPC to %s whose attempt panics: ended %v, error %v, want the panic in its caller", c.name, f.ended, f.err)
	}
}

// probesFirst reports whether RPCs of the cluster probe endpoints before they pick.
func (c *modelCluster) probesFirst() bool {
	return slices.ContainsFunc(c.leaves, func(l *modelLeaf) bool { return l.sent.Prequal != nil && l.sent.Prequal.Synchronous > 0 })
}

// run makes the RPC.
func (s *tracker) run(ctx context.Context, f *interceptedRPC, table *rpc.Table, reply any) {
	invoker := func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		return s.attempt(ctx, method, f, opts)
	}
	var err error
	if method := "/" + f.cluster + "/m"; table.Plans == nil {
		err = recovered(func() error { return s.attempt(ctx, method, f, nil) })
	} else {
		err = recovered(func() error {
			return rpc.Unary(ctx, table, method, &emptypb.Empty{}, reply, nil, invoker, grpc.Header(&f.header))
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.ended, f.err = true, err
	s.ended = append(s.ended, f)
}

// attempt is one attempt. handleEvents has it pick and ends it, unless it is canceled.
func (s *tracker) attempt(ctx context.Context, method string, f *interceptedRPC, opts []grpc.CallOption) error {
	if f.panics {
		panic(errPanic)
	}
	l := &attempt{of: f, ctx: ctx, method: method, end: make(chan error, 1), since: time.Now(), noPlans: !s.plans()}
	s.mu.Lock()
	f.picked++
	s.attempts++
	l.id = strconv.Itoa(s.attempts)
	s.starting = append(s.starting, l)
	s.mu.Unlock()
	select {
	case err := <-l.end:
		for _, o := range opts {
			if o, ok := o.(grpc.HeaderCallOption); ok && err == nil {
				*o.HeaderAddr = metadata.Pairs("attempt", l.id)
			}
		}
		return err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		l.ended = time.Now()
		s.canceled = append(s.canceled, l)
		return status.FromContextError(ctx.Err()).Err()
	}
}

// handleEvents handles the events of RPCs, and reports whether there were any.
func (t *history) handleEvents() bool {
	s := &t.tracker
	s.mu.Lock()
	starting, canceled, ended := s.starting, s.canceled, s.ended
	s.starting, s.canceled, s.ended = nil, nil, nil
	s.mu.Unlock()
	for _, l := range canceled {
		t.checkTimeout(l)
		if l.rpc != nil && !l.over {
			l.rpc.lost = l.rpc.hedged && context.Cause(l.ctx) == rpc.ErrHedgeSuperseded && (!l.of.nested || l.of.cancels)
			l.rpc.timedOut = timedOut(l.ctx)
			t.release(l.rpc, balancer.DoneInfo{Err: status.FromContextError(l.ctx.Err()).Err(), BytesSent: true})
		}
		l.over = true
	}
	for _, l := range starting {
		switch {
		case l.over:
		case l.of.routed != nil && t.Rand.IntN(2) == 0:
			s.held = append(s.held, l)
		default:
			t.pickAttempt(l)
		}
	}
	for _, f := range ended {
		i := slices.Index(s.intercepted, f)
		if i < 0 {
			continue
		}
		s.intercepted = slices.Delete(s.intercepted, i, i+1)
		if f.routed != nil {
			t.checkCookie(f)
		}
	}
	s.picked = slices.DeleteFunc(s.picked, func(l *attempt) bool { return l.over })
	return len(starting)+len(canceled)+len(ended) > 0
}

// pickAttempt has an attempt pick. It does not wait.
func (t *history) pickAttempt(l *attempt) {
	p, _ := t.grpc.Seen()
	if l.of.routed != nil {
		l.of.routed.attempts[l.id] = l
	}
	t.checkSent(l)
	res, err := p.Pick(balancer.PickInfo{FullMethodName: l.method, Ctx: l.ctx})
	if err != nil && l.of.routed != nil {
		t.checkRoutedPick(l, nil, err)
	}
	if err != nil {
		if _, final := status.FromError(err); !final {
			err = status.Error(codes.Unavailable, err.Error())
		}
		l.over = true
		l.end <- err
		return
	}
	r := t.newRPC(l.of.cluster, 0, false)
	if r.conn, r.done, r.hedged = res.SubConn.(*modelConn), res.Done, t.lb.Table().Plans != nil; r.done == nil {
		r.done = func(balancer.DoneInfo) {}
	}
	r.authority = strings.Join(res.Metadata[":authority"], ",")
	l.rpc, l.timed = r, l.of.timed && (l.noPlans || t.lb.Table().Plans != nil)
	if !l.noPlans {
		l.since = time.Now()
	}
	if l.of.routed != nil {
		t.checkRoutedPick(l, r.conn, nil)
	}
	if t.admit(r); r.conn.TakesRPCs() {
		t.tracker.picked = append(t.tracker.picked, l)
		return
	}
	t.release(r, balancer.DoneInfo{})
	l.over = true
	l.end <- status.Error(codes.Unavailable, "the connection was lost")
}

// endSomeAttempts ends some attempts, and cancels some RPCs.
func (t *history) endSomeAttempts() {
	t.Logf("some of %d attempts of %d RPCs end", len(t.tracker.picked), len(t.tracker.intercepted))
	held := t.tracker.held
	t.tracker.held = nil
	for _, l := range held {
		if !l.over {
			t.pickAttempt(l)
		}
	}
	t.drainEvents()
	for _, l := range t.tracker.picked {
		switch t.Rand.IntN(8) {
		case 0, 1:
		case 2:
			l.of.cancel()
		case 3:
			t.endAttempt(l, status.Error(codes.Unavailable, "failed"))
		case 4:
			t.endAttempt(l, status.Error(codes.DeadlineExceeded, "failed"))
		default:
			t.endAttempt(l, nil)
		}
	}
}

// endAttempt ends an attempt.
func (t *history) endAttempt(l *attempt, err error) {
	t.end(l.rpc, err)
	l.over = true
	l.end <- err
}

// checkTimeout checks that a canceled attempt has not exceeded per_try_timeout, and has reached it
// if that was the reason.
func (t *history) checkTimeout(l *attempt) {
	if l.rpc == nil || l.of.nested {
		return
	}
	age, cause := l.ended.Sub(l.since), context.Cause(l.ctx)
	if exceeded := timedOut(l.ctx); exceeded && (age != tryTimeout || !l.timed && (l.of.routed == nil || !l.of.routed.unserved)) || l.timed && age > tryTimeout {
		t.Fatalf("attempt %s of %s is canceled after %v (%v), want per_try_timeout after %v: %v", l.id, l.of.cluster, age, cause, tryTimeout, l.timed)
	}
}

// timedOut reports whether an attempt has exceeded per_try_timeout.
func timedOut(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && strings.Contains(cause.Error(), "per_try_timeout")
}

// checkTimeouts checks that no attempt in flight has exceeded per_try_timeout.
func (t *history) checkTimeouts() {
	for _, l := range t.tracker.picked {
		if l.timed && time.Since(l.since) >= tryTimeout {
			t.Fatalf("attempt %s of %s is in flight after %v, want per_try_timeout after %v", l.id, l.of.cluster, time.Since(l.since), tryTimeout)
		}
	}
}

// cancelIntercepted cancels all RPCs, after which none is in flight.
func (t *history) cancelIntercepted() {
	t.tracker.cancel()
	t.drainEvents()
	if n := len(t.tracker.intercepted); n > 0 {
		t.Fatalf("%d RPCs are in flight after their contexts were canceled, want 0", n)
	}
}

func (s *tracker) cancel() {
	for _, f := range s.intercepted {
		f.cancel()
	}
}
