// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker"
)

// An attempt is one attempt at an RPC that is retried or hedged:
//
//	retries.begin ──▶ gRPC picks and sends ──▶ retries.next or hedgedCall.end ──▶ the RPC's options
//	                  (call.go, Done)                                       (store)
//
// gRPC fills in header, trailer and peer when the attempt ends, unless it never had a stream.
type attempt struct {
	number  int // from 1
	header  metadata.MD
	trailer metadata.MD
	peer    peer.Peer
	budget  *Budget // nil if the attempt does not count as an active retry
	// set for hedged RPCs only
	reply    proto.Message
	err      error
	panicked any                      // the value of a panic
	exited   bool                     // by runtime.Goexit
	picked   atomic.Pointer[upstream] // if the RPC has a session
}

// untouched is the trailer of an attempt that gRPC has not filled in. No trailer has its key.
var untouched = metadata.MD{"": nil}

// options returns the call options of the attempt: the application's, except that the results
// go to the attempt. OnFinish is omitted, since an RPC ends once.
func (a *attempt) options(opts []grpc.CallOption) []grpc.CallOption {
	a.trailer = untouched
	opts = append(slices.DeleteFunc(slices.Clone(opts), perRPC), grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.Peer(&a.peer))
	if a.number == 1 {
		return opts
	}
	return withPreviousAttempts(opts, a.number-1)
}

// perRPC reports whether an option is about the RPC, or about the attempt that decides it.
func perRPC(o grpc.CallOption) bool {
	switch o.(type) {
	case grpc.HeaderCallOption, *grpc.HeaderCallOption, grpc.TrailerCallOption, *grpc.TrailerCallOption,
		grpc.PeerCallOption, *grpc.PeerCallOption, grpc.OnFinishCallOption:
		return true
	}
	return false
}

// release releases the attempt's place in the retry budget, if it has one. It is called when the
// attempt is no longer an active retry. It does nothing on a nil attempt.
func (a *attempt) release() {
	if a != nil {
		a.budget.release()
		a.budget = nil
	}
}

// hasStream reports whether the attempt had a stream.
func (a *attempt) hasStream() bool {
	_, not := a.trailer[""]
	return !not
}

// store copies the results of the last attempt that had a stream to the application's options.
// If a is nil, no attempt had a stream and the options stay unchanged, as in gRPC.
func (a *attempt) store(opts []grpc.CallOption) {
	if a == nil || !a.hasStream() {
		return
	}
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = a.header
		case *grpc.HeaderCallOption:
			*o.HeaderAddr = a.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = a.trailer
		case *grpc.TrailerCallOption:
			*o.TrailerAddr = a.trailer
		case grpc.PeerCallOption:
			*o.PeerAddr = a.peer
		case *grpc.PeerCallOption:
			*o.PeerAddr = a.peer
		}
	}
}

// ErrHedgeSuperseded is the error of an attempt that was canceled because another attempt has decided the
// RPC.
var ErrHedgeSuperseded = status.Error(codes.Canceled, "xdslb: attempt canceled: another attempt decided the hedged RPC")

// causeOf returns the error of an attempt with this context: ErrHedgeSuperseded or errTryTimeout if
// interceptors canceled it, and otherwise err.
func causeOf(ctx context.Context, err error) error {
	if status.Code(err) == codes.Canceled {
		if cause := context.Cause(ctx); cause == ErrHedgeSuperseded || cause == errTryTimeout {
			return cause
		}
	}
	return err
}

// withCause returns a done that disconnects the attempt's timer, which may be nil, and reports the error
// of causeOf.
func withCause(ctx context.Context, timer *tryTimer, done func(balancer.DoneInfo)) func(balancer.DoneInfo) {
	return func(info balancer.DoneInfo) {
		timer.disconnect()
		info.Err = causeOf(ctx, info.Err)
		done(info)
	}
}

// Result returns the result of an attempt for the statistics of its endpoint. gRPC reports a
// pick whose connection was closed before its use with an empty DoneInfo, and an RPC whose
// connection was closed before its message was sent without the error. An RPC without an answer
// has not succeeded, though. Attempts that lost are neither successes nor failures, as in
// Envoy.
func Result(info *balancer.DoneInfo) picker.CallResult {
	switch {
	case info.Err == ErrHedgeSuperseded:
		return picker.CallCanceled
	case info.Err != nil:
		return picker.CallFailed
	case info.BytesReceived:
		return picker.CallOK
	case info.BytesSent:
		return picker.CallFailed
	}
	return picker.CallNotSent
}

// Tried contains the connections that an RPC's attempts were given. Any number of goroutines
// may use it. The zero value is empty, and must not be copied.
type Tried struct {
	mu    sync.Mutex
	conns []balancer.SubConn
	room  [2]balancer.SubConn // for the first ones
}

// Add adds the connection of a pick.
func (t *Tried) Add(sc balancer.SubConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		t.conns = t.room[:0]
	}
	t.conns = append(t.conns, sc)
}

// Has reports whether an attempt was given a connection.
func (t *Tried) Has(sc balancer.SubConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.conns, sc)
}

// previousAttemptsKey is the header with the number of previous attempts (A6).
const previousAttemptsKey = "grpc-previous-rpc-attempts"

// attemptCreds add the header to an attempt only. Metadata of the attempt's context would also be
// sent with RPCs that are made with that context, for instance by credentials.
type attemptCreds struct {
	theirs   credentials.PerRPCCredentials // the application's; may be nil
	previous int                           // attempts
}

// withPreviousAttempts adds the header to an attempt's options, which it may change. gRPC uses the
// last option for credentials, which is the application's if it has a type of its own.
func withPreviousAttempts(opts []grpc.CallOption, previous int) []grpc.CallOption {
	c := attemptCreds{previous: previous}
	opts = slices.DeleteFunc(opts, func(o grpc.CallOption) bool {
		switch o := o.(type) {
		case grpc.PerRPCCredsCallOption:
			c.theirs = o.Creds
		case *grpc.PerRPCCredsCallOption:
			c.theirs = o.Creds
		default:
			return false
		}
		return true
	})
	return slices.Insert(opts, 0, grpc.PerRPCCredentials(c))
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c attemptCreds) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	headers := map[string]string{previousAttemptsKey: strconv.Itoa(c.previous)}
	if c.theirs == nil {
		return headers, nil
	}
	theirs, err := c.theirs.GetRequestMetadata(ctx, uri...)
	maps.Copy(headers, theirs)
	return headers, err
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (c attemptCreds) RequireTransportSecurity() bool {
	return c.theirs != nil && c.theirs.RequireTransportSecurity()
}

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
