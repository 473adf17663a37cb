// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errTryTimeout is the error of an attempt that exceeded the per_try_timeout.
var errTryTimeout = status.Error(codes.DeadlineExceeded, "xdslb: attempt canceled: per_try_timeout exceeded")

// A tryTimer cancels an attempt that exceeds the per_try_timeout of its retry policy. As in Envoy,
// the time begins when the attempt has a connection and the request is complete: with the pick of a
// unary RPC, and when a stream is closed for sending. It ends with the response headers of a
// stream, and with the response of a unary RPC, whose headers cannot be observed.
//
// Hedged RPCs have no tryTimer: the attempt continues, and another one is started.
//
// Any number of goroutines may use it. A nil tryTimer does nothing.
type tryTimer struct {
	after  time.Duration
	ctx    context.Context // of the attempt
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer // nil before start
	ended bool        // the time has ended, or was exceeded
}

// tryTimerKey is the context key of the *tryTimer of an attempt at a unary RPC.
type tryTimerKey struct{ of *Call }

// timed returns the context of an attempt, and its tryTimer, which is nil if attempts have no limit.
func (p *plan) timed(ctx context.Context) (context.Context, *tryTimer) {
	if p.hedge || p.retry.PerTryTimeout <= 0 {
		return ctx, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &tryTimer{after: p.retry.PerTryTimeout, ctx: ctx, cancel: cancel}
}

// start starts the time, once.
func (t *tryTimer) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil && !t.ended {
		t.timer = time.AfterFunc(t.after, t.exceed)
	}
}

// exceed cancels the attempt, unless its time has ended.
func (t *tryTimer) exceed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		t.cancel(errTryTimeout)
	}
}

// stop ends the time. The attempt may continue.
func (t *tryTimer) stop() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// release ends the time, and releases the context of an attempt that has ended.
func (t *tryTimer) release() {
	if t != nil {
		t.stop()
		t.cancel(nil)
	}
}

// cause returns errTryTimeout if err is the result of exceed, and otherwise err.
func (t *tryTimer) cause(err error) error {
	if t == nil {
		return err
	}
	return causeOf(t.ctx, err)
}

// timedAttempt makes one attempt with a limited time. The pick starts the time, or the attempt itself if
// picks do not find the RPC.
func (r unaryRPC) timedAttempt() error {
	ctx, timer := r.call.plan.timed(r.ctx)
	if timer == nil {
		return r.attempt()
	}
	defer timer.release()
	if !r.call.foundByPicks(ctx) {
		timer.start()
	}
	r.ctx = context.WithValue(ctx, tryTimerKey{r.call}, timer)
	return timer.cause(r.attempt())
}

// foundByPicks reports whether picks find the RPC: no filter has replaced the context of its attempt,
// and the latest configuration has Plans.
func (c *Call) foundByPicks(ctx context.Context) bool {
	if callIn(ctx) != c {
		return false
	}
	if ch := c.channel(); ch != nil {
		t := ch.Current()
		return t == nil || t.Plans != nil
	}
	return true
}

// startTime starts the time of the attempt with this context, if it is limited.
func (c *Call) startTime(ctx context.Context) {
	if timer, ok := ctx.Value(tryTimerKey{c}).(*tryTimer); ok {
		timer.start()
	}
}

// A timedStream is the stream of an attempt with a limited time.
type timedStream struct {
	grpc.ClientStream
	attempt *streamAttempt
}

// CloseSend starts the time, and watches for response headers.
func (s timedStream) CloseSend() error {
	err := s.ClientStream.CloseSend()
	s.attempt.timer.start()
	go func() {
		if header, _ := s.attempt.header(); len(header) > 0 {
			s.attempt.timer.stop()
		}
	}()
	return err
}

// RecvMsg returns errTryTimeout if the attempt exceeded its time.
func (s timedStream) RecvMsg(m any) error { return s.attempt.timer.cause(s.ClientStream.RecvMsg(m)) }
