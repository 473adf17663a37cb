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

// This file is RPCs as the interceptor makes them, attempt by attempt.

// A flight is an RPC as the interceptor makes it. It stays in flight through updates, and
// while it makes further attempts.
type flight struct {
	cluster string
	cancel  context.CancelFunc
	asked   int // attempts that got as far as their pick
	ended   bool
	err     error
	trip    *trip         // nil if its route is that of its cluster
	nested  bool          // made with the context of an attempt
	cancels bool          // its interceptor may cancel attempts
	timed   bool          // its attempts end after tryTimeout
	panics  bool          // in each attempt, because of the application
	own     metadata.MD   // before its route's mutations
	sends   []metadata.MD // that attempts may have sent, by those so far
	header  metadata.MD   // of its response
}

// leg is an attempt of a flight.
type leg struct {
	of     *flight
	ctx    context.Context
	method string
	rpc    *modelRPC // nil until it has picked
	since  time.Time // when its time began
	ended  time.Time // when it was canceled
	timed  bool      // its time is limited
	blind  bool      // there were no Plans when it began, so that its time began then
	over   bool
	end    chan error
	id     string

	// Of a trip: what the endpoint is in a cookie, or "" if it cannot be, and whether the model
	// is sure that the cookie says so.
	upstream string
	sure     bool
}

// sky is the flights under way. What their goroutines say is taken in by trial.control.
type sky struct {
	flights []*flight
	aloft   []*leg      // have picked
	held    []*leg      // take their time before they pick
	plans   func() bool // whether the balancer has Plans

	mu       sync.Mutex // guards what follows, and the asked, ended and err of flights
	arriving []*leg
	legs     int // made so far
	left     []*leg
	landed   []*flight
}

// takeOff begins some flights.
func (t *trial) takeOff() {
	c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
	if !c.routed || len(t.sky.flights) > 20 {
		return
	}
	t.rest()
	n := 1 + t.Rand.IntN(6)
	t.Logf("%d flights to %s", n, c.name)
	for range n {
		t.launch(c.name)
	}
}

// launch begins a flight, and checks that it makes one attempt.
func (t *trial) launch(cluster string) {
	f := &flight{cluster: cluster, timed: t.plane.attempts && t.plane.tries, sends: []metadata.MD{mutated(nil, t.plane.headers)}}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	var reply any
	if t.Rand.IntN(2) == 0 {
		reply = &emptypb.Empty{} // may be hedged
	}
	table := t.lb.Table()
	go t.sky.fly(ctx, f, table, reply)
	synctest.Wait()
	t.sky.mu.Lock()
	defer t.sky.mu.Unlock()
	if f.ended || f.asked != 1 && !t.clusterNamed(cluster).asks() {
		t.Fatalf("a flight to %s made %d attempts and ended %v: %v", cluster, f.asked, f.ended, f.err)
	}
	t.sky.flights = append(t.sky.flights, f)
}

// panicInAttempt has the application panic in an attempt, which reaches the caller of the RPC.
func (t *trial) panicInAttempt() {
	c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
	if !c.routed {
		return
	}
	t.Logf("the application panics in an attempt at an RPC to %s", c.name)
	f, table := &flight{cluster: c.name, panics: true}, t.lb.Table()
	var reply any
	if t.Rand.IntN(2) == 0 {
		reply = &emptypb.Empty{} // may be hedged
	}
	go t.sky.fly(context.Background(), f, table, reply)
	if synctest.Wait(); c.asks() {
		kit.Pass(time.Second)
	}
	t.sky.mu.Lock()
	defer t.sky.mu.Unlock()
	if !f.ended || f.err != errPanic {
		t.Fatalf("an RPC to %s in which the application panics has ended: %v, with %v", c.name, f.ended, f.err)
	}
}

// asks reports whether RPCs of the cluster ask endpoints for their load before they pick.
func (c *planeCluster) asks() bool {
	return slices.ContainsFunc(c.leaves, func(l *planeLeaf) bool { return l.sent.Prequal != nil && l.sent.Prequal.Synchronous > 0 })
}

// fly makes the RPC.
func (s *sky) fly(ctx context.Context, f *flight, table *rpc.Table, reply any) {
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
	s.landed = append(s.landed, f)
}

// attempt is one attempt, which control has pick, and end unless it is canceled.
func (s *sky) attempt(ctx context.Context, method string, f *flight, opts []grpc.CallOption) error {
	if f.panics {
		panic(errPanic)
	}
	l := &leg{of: f, ctx: ctx, method: method, end: make(chan error, 1), since: time.Now(), blind: !s.plans()}
	s.mu.Lock()
	f.asked++
	s.legs++
	l.id = strconv.Itoa(s.legs)
	s.arriving = append(s.arriving, l)
	s.mu.Unlock()
	select {
	case err := <-l.end:
		for _, o := range opts {
			if o, ok := o.(grpc.HeaderCallOption); ok && err == nil {
				*o.HeaderAddr = metadata.Pairs("leg", l.id)
			}
		}
		return err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		l.ended = time.Now()
		s.left = append(s.left, l)
		return status.FromContextError(ctx.Err()).Err()
	}
}

// control takes in what flights have done, and reports whether there was anything.
func (t *trial) control() bool {
	s := &t.sky
	s.mu.Lock()
	arriving, left, landed := s.arriving, s.left, s.landed
	s.arriving, s.left, s.landed = nil, nil, nil
	s.mu.Unlock()
	for _, l := range left {
		t.checkTimeout(l)
		if l.rpc != nil && !l.over {
			l.rpc.lost = l.rpc.hedged && context.Cause(l.ctx) == rpc.ErrHedgeSuperseded && (!l.of.nested || l.of.cancels)
			l.rpc.timedOut = timedOut(l.ctx)
			t.release(l.rpc, balancer.DoneInfo{Err: status.FromContextError(l.ctx.Err()).Err(), BytesSent: true})
		}
		l.over = true
	}
	for _, l := range arriving {
		switch {
		case l.over:
		case l.of.trip != nil && t.Rand.IntN(2) == 0:
			s.held = append(s.held, l)
		default:
			t.pickLeg(l)
		}
	}
	for _, f := range landed {
		i := slices.Index(s.flights, f)
		if i < 0 {
			continue
		}
		s.flights = slices.Delete(s.flights, i, i+1)
		if f.trip != nil {
			t.checkTrip(f)
		}
	}
	s.aloft = slices.DeleteFunc(s.aloft, func(l *leg) bool { return l.over })
	return len(arriving)+len(left)+len(landed) > 0
}

// pickLeg has an attempt pick. It does not wait.
func (t *trial) pickLeg(l *leg) {
	p, _ := t.grpc.seen()
	if l.of.trip != nil {
		l.of.trip.legs[l.id] = l
	}
	t.checkSent(l)
	res, err := p.Pick(balancer.PickInfo{FullMethodName: l.method, Ctx: l.ctx})
	if err != nil && l.of.trip != nil {
		t.follow(l, nil, err)
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
	l.rpc, l.timed = r, l.of.timed && (l.blind || t.lb.Table().Plans != nil)
	if !l.blind {
		l.since = time.Now()
	}
	if l.of.trip != nil {
		t.follow(l, r.conn, nil)
	}
	if t.admit(r); r.conn.takesRPCs() {
		t.sky.aloft = append(t.sky.aloft, l)
		return
	}
	t.release(r, balancer.DoneInfo{})
	l.over = true
	l.end <- status.Error(codes.Unavailable, "the connection is gone")
}

// landSome ends some attempts, and has some flights canceled.
func (t *trial) landSome() {
	t.Logf("some of %d attempts of %d flights end", len(t.sky.aloft), len(t.sky.flights))
	held := t.sky.held
	t.sky.held = nil
	for _, l := range held {
		if !l.over {
			t.pickLeg(l)
		}
	}
	t.rest()
	for _, l := range t.sky.aloft {
		switch t.Rand.IntN(8) {
		case 0, 1:
		case 2:
			l.of.cancel()
		case 3:
			t.land(l, status.Error(codes.Unavailable, "failed"))
		case 4:
			t.land(l, status.Error(codes.DeadlineExceeded, "failed"))
		default:
			t.land(l, nil)
		}
	}
}

// land ends an attempt.
func (t *trial) land(l *leg, err error) {
	t.end(l.rpc, err)
	l.over = true
	l.end <- err
}

// checkTimeout checks that an attempt that was canceled has not exceeded the time of an attempt, and
// not less than that if it was canceled for this.
func (t *trial) checkTimeout(l *leg) {
	if l.rpc == nil || l.of.nested {
		return
	}
	age, cause := l.ended.Sub(l.since), context.Cause(l.ctx)
	if exceeded := timedOut(l.ctx); exceeded && (age != tryTimeout || !l.timed && (l.of.trip == nil || !l.of.trip.unserved)) || l.timed && age > tryTimeout {
		t.Fatalf("attempt %s of %s, limited: %v, is canceled after %v: %v", l.id, l.of.cluster, l.timed, age, cause)
	}
}

// timedOut reports whether the time of an attempt is exceeded.
func timedOut(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && strings.Contains(cause.Error(), "per_try_timeout")
}

// checkTries checks that no attempt in flight has exceeded its time.
func (t *trial) checkTries() {
	for _, l := range t.sky.aloft {
		if l.timed && time.Since(l.since) >= tryTimeout {
			t.Fatalf("attempt %s of %s is in flight after %v", l.id, l.of.cluster, time.Since(l.since))
		}
	}
}

// landAll has all flights canceled, after which no place is taken.
func (t *trial) landAll() {
	t.sky.cancel()
	t.rest()
	if n := len(t.sky.flights); n > 0 {
		t.Fatalf("%d flights do not end with their contexts", n)
	}
}

func (s *sky) cancel() {
	for _, f := range s.flights {
		f.cancel()
	}
}
