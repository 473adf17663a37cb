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
// unary RPC, and when a stream has sent its last message. It ends with the response headers of a
// stream, and with the response of a unary RPC, whose headers cannot be observed. If gRPC finds the
// connection lost before it sends the request, the time begins again with the next pick.
//
// Hedged RPCs have no tryTimer: the attempt continues, and another one is started.
//
// Any number of goroutines may use it. A nil tryTimer does nothing.
type tryTimer struct {
	after  time.Duration
	ctx    context.Context // of the attempt
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	connected bool
	complete  bool        // the request
	timer     *time.Timer // nil unless both are true
	ended     bool        // the time has ended, or was exceeded
}

// tryTimerKey is the context key of the *tryTimer of an attempt.
type tryTimerKey struct{ of *Call }

// timed returns the context of an attempt, and its tryTimer, which is nil if attempts have no limit. Picks
// find the tryTimer in the context. An attempt that picks do not find counts as connected.
func (c *Call) timed(ctx context.Context) (context.Context, *tryTimer) {
	if c.plan.hedge || c.plan.retry.PerTryTimeout <= 0 {
		return ctx, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t := &tryTimer{after: c.plan.retry.PerTryTimeout, ctx: ctx, cancel: cancel, connected: !c.foundByPicks(ctx)}
	return context.WithValue(ctx, tryTimerKey{c}, t), t
}

// connect records that the attempt has a connection.
func (t *tryTimer) connect() {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.connected = true
		t.startLocked()
	}
}

// disconnect records that the attempt has lost its connection: it has ended, or waits for another pick.
func (t *tryTimer) disconnect() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.connected = false
	if t.timer != nil && !t.ended && t.timer.Stop() {
		t.timer = nil
	}
}

// finishRequest records that the request is complete. It returns whether that was unknown.
func (t *tryTimer) finishRequest() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.complete
	t.complete = true
	t.startLocked()
	return !was
}

// startLocked starts the time if it is due.
func (t *tryTimer) startLocked() {
	if t.connected && t.complete && t.timer == nil && !t.ended {
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

// timedAttempt makes one attempt with a limited time.
func (r unaryRPC) timedAttempt() error {
	ctx, timer := r.call.timed(r.ctx)
	if timer == nil {
		return r.attempt()
	}
	defer timer.release()
	timer.finishRequest()
	r.ctx = ctx
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

// A timedStream is the stream of an attempt with a limited time.
type timedStream struct {
	grpc.ClientStream
	attempt       *streamAttempt
	clientStreams bool // the request may have several messages
}

// SendMsg completes the request if it has one message: gRPC needs no CloseSend then.
func (s timedStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err == nil && !s.clientStreams {
		s.finishRequest()
	}
	return err
}

// CloseSend completes the request.
func (s timedStream) CloseSend() error {
	err := s.ClientStream.CloseSend()
	s.finishRequest()
	return err
}

// finishRequest starts the time, and watches for response headers, which end it.
func (s timedStream) finishRequest() {
	if s.attempt.timer.finishRequest() {
		go func() { _, _ = s.attempt.header() }()
	}
}

// RecvMsg returns errTryTimeout if the attempt exceeded its time. It waits for the response headers
// first, since finishRequest must not call Header while gRPC's RecvMsg does, for the binary log.
func (s timedStream) RecvMsg(m any) error {
	_, _ = s.attempt.header()
	return s.attempt.timer.cause(s.ClientStream.RecvMsg(m))
}
