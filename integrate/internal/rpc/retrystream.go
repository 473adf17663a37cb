// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A retriedStream is a stream that is retried until an attempt is committed (A6). Messages of the
// application are kept until then, and are sent again on each new attempt:
//
//	             an attempt fails: backoff, replay
//	                     ┌──────┐
//	streamRPC.retry ──▶ open ◀──┘
//	                     │  response headers, a full buffer, no further attempt, or a
//	                     ▼  call of Context or Trailer
//	                 committed ──▶ finished
//
// A committed stream is the attempt's own stream, at the cost of an atomic load for each message. Its
// per_try_timeout continues to apply.
// As with any stream, one goroutine may send while another receives.
//
// gRPC has the same states, and keeps encoded messages. Here messages are kept as they are, since
// an application must not change a message that it has sent.
type retriedStream struct {
	rpc   streamRPC
	limit int // of size

	committed atomic.Pointer[streamAttempt] // nil before
	stored    sync.Once                     // the RPC's options have the results of its last attempt
	finished  atomic.Bool                   // OnFinish of the RPC's options was called
	// unwatch stops watching the context. It is set before the stream is returned.
	unwatch func() bool

	mu      sync.Mutex // also held during a back-off
	retries retries
	current *streamAttempt
	sent    []func(grpc.ClientStream) error // to be repeated
	size    int                             // of sent, in bytes
}

// A streamAttempt is an attempt at a retriedStream.
type streamAttempt struct {
	grpc.ClientStream
	attempt
	timer     *tryTimer     // nil if its time is not limited
	receiving sync.Mutex    // held by calls of RecvMsg until the stream is committed
	heading   atomic.Bool   // Header was called, which returns before RecvMsg if the response has headers and no message
	headed    chan struct{} // closed when Header has returned
	head      metadata.MD   // result of Header; set before headed is closed
	headErr   error
	end       atomic.Pointer[error] // error of the RPC, if the attempt was the last and failed; nil once it was returned
	over      atomic.Bool
	overErr   error // gRPC's error at the end; set before over
}

// retry makes attempts until one is committed.
func (r streamRPC) retry() (grpc.ClientStream, error) {
	s := &retriedStream{rpc: r, limit: bufferSize(r.opts), retries: newRetries(r.call)}
	if err := s.open(); err != nil { // of the last attempt; next has released the budget
		s.finish(nil, err)
		return nil, err
	}
	return s, nil
}

// open makes the first attempts.
func (s *retriedStream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock() // also if an attempt panics
	err := s.openLocked()
	if err == nil {
		ctx := s.rpc.ctx
		s.unwatch = context.AfterFunc(ctx, func() { s.end(status.FromContextError(ctx.Err()).Err()) })
	}
	return err
}

// openLocked makes attempts until an attempt has accepted all messages so far, or no further
// attempt is allowed.
func (s *retriedStream) openLocked() error {
	for {
		a := &streamAttempt{headed: make(chan struct{})}
		err := s.attemptLocked(a)
		if err == nil {
			return nil
		}
		headers, trailer := a.outcome()
		a.timer.release()
		if err := s.retries.next(s.rpc.ctx, &a.attempt, err, headers, trailer); err != nil {
			return err
		}
	}
}

// attemptLocked makes an attempt, and repeats the operations so far.
func (s *retriedStream) attemptLocked(a *streamAttempt) (err error) {
	panics := true
	defer func() {
		if panics { // the RPC ends
			a.release()
			a.timer.release()
		}
	}()
	rpc := s.rpc
	rpc.ctx, a.timer = rpc.call.timed(rpc.ctx)
	rpc.opts = append(s.retries.begin(&a.attempt, rpc.opts), grpc.OnFinish(func(err error) { s.onAttemptFinished(a, err) }))
	if a.ClientStream, err = rpc.attempt(); err == nil {
		if a.timer != nil {
			a.timer.connect()
			a.ClientStream = timedStream{a.ClientStream, a, rpc.desc.ClientStreams}
		}
		s.current = a
		err = s.replayLocked(a)
	}
	panics = false
	return err
}

// replayLocked repeats the operations so far on an attempt.
func (s *retriedStream) replayLocked(a *streamAttempt) error {
	for _, send := range s.sent {
		err := send(a.ClientStream)
		if err == io.EOF {
			err = a.failure()
		}
		if err == io.EOF { // the server accepts no more messages, without an error
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// failure returns the error of an attempt that accepts no more messages. It is io.EOF with status
// OK, or with response headers; the application finds the error itself then.
func (a *streamAttempt) failure() error {
	a.receiving.Lock()
	defer a.receiving.Unlock()
	if header, _ := a.header(); len(header) > 0 {
		return io.EOF
	}
	return a.RecvMsg(new(emptypb.Empty)) // no message comes without headers
}

// receive calls RecvMsg for the application.
func (a *streamAttempt) receive(m any) error {
	a.receiving.Lock()
	defer a.receiving.Unlock() // also if the application's codec panics
	return a.RecvMsg(m)
}

// outcome returns the results of an attempt that has ended.
func (a *streamAttempt) outcome() (headers bool, trailer metadata.MD) {
	if a.ClientStream == nil {
		return false, nil
	}
	a.receiving.Lock()
	defer a.receiving.Unlock()
	header, _ := a.header()
	return len(header) > 0, a.Trailer()
}

// header waits for response headers, which end the time of the attempt, or for the end of the attempt.
// The first call calls Header, and the others wait for it: gRPC forbids to call Header and RecvMsg at
// the same time, for the binary log.
func (a *streamAttempt) header() (metadata.MD, error) {
	if a.heading.Swap(true) {
		<-a.headed
		return a.head, a.headErr
	}
	defer close(a.headed)
	a.head, a.headErr = a.Header()
	if len(a.head) > 0 {
		a.timer.stop()
	}
	return a.head, a.headErr
}

// copyOfHeader is header for the application, which may change the result.
func (a *streamAttempt) copyOfHeader() (metadata.MD, error) {
	header, err := a.header()
	if header == nil {
		return nil, err
	}
	return header.Copy(), err
}

// retry makes another attempt after a, which failed. It returns nil if there is one, even if
// another goroutine made it, and otherwise the error of the RPC.
func (s *retriedStream) retry(a *streamAttempt, err error) error {
	headers, trailer := a.outcome()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != a || s.committed.Load() != nil {
		return nil
	}
	if err = s.retries.next(s.rpc.ctx, &a.attempt, err, headers, trailer); err == nil {
		err = s.openLocked()
	}
	if err != nil {
		s.current.end.Store(&err)
		s.commitLocked()
	}
	return err
}

// latest returns the current attempt.
func (s *retriedStream) latest() *streamAttempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// commit commits the current attempt.
func (s *retriedStream) commit() *streamAttempt {
	s.mu.Lock()
	s.commitLocked()
	s.mu.Unlock()
	return s.afterCommit()
}

func (s *retriedStream) commitLocked() {
	if s.committed.CompareAndSwap(nil, s.current) {
		if s.current != nil {
			s.current.release()
		}
		s.sent = nil
	}
}

// afterCommit finishes the RPC if the attempt had ended before it was committed.
func (s *retriedStream) afterCommit() *streamAttempt {
	a := s.committed.Load()
	if a != nil && a.over.Load() {
		s.finish(a, a.overErr)
	}
	return a
}

// record keeps a message that was sent on attempt a. It returns false if there is a newer attempt,
// which lacks the message.
func (s *retriedStream) record(a *streamAttempt, size int, send func(grpc.ClientStream) error) bool {
	s.mu.Lock()
	defer s.afterCommit()
	defer s.mu.Unlock()
	switch {
	case s.committed.Load() != nil:
		return s.committed.Load() == a
	case s.current != a:
		return false
	}
	if size > s.limit-s.size {
		s.commitLocked()
		return true
	}
	s.size += size
	s.sent = append(s.sent, send)
	return true
}

// onAttemptFinished is called by gRPC when an attempt has ended, perhaps with s.mu held. The next
// operation of the application handles a failure, unless the channel is closed: there may be no
// further operation then.
func (s *retriedStream) onAttemptFinished(a *streamAttempt, err error) {
	err = a.timer.cause(err)
	a.overErr = err
	a.over.Store(true)
	a.timer.release()
	switch {
	case s.committed.Load() == a:
		s.finish(a, err)
	case s.rpc.cc.GetState() == connectivity.Shutdown:
		go s.end(err)
	}
}

// end ends an RPC whose context has ended, or whose channel is closed, between two attempts, or
// before an operation handled a failure.
func (s *retriedStream) end(err error) {
	s.mu.Lock()
	a := s.current
	s.commitLocked()
	s.mu.Unlock()
	if a != nil && a.over.Load() {
		s.finish(a, err)
	}
}

// store stores the results of the last attempt that had a stream in the RPC's options, once. It
// returns after they are stored.
func (s *retriedStream) store(a *streamAttempt) {
	s.stored.Do(func() {
		if a != nil {
			a.attempt.store(s.rpc.opts)
		}
	})
}

// ended returns the error of a call on the committed attempt. If the RPC has ended, the options
// have the results then, although another goroutine may be about to report the end.
func (s *retriedStream) ended(a *streamAttempt, err error) error {
	if err != nil {
		s.store(a)
	}
	return err
}

// endOf returns, once, the error of the RPC if a was the last attempt and failed before it was
// committed. Otherwise it returns nil.
func (s *retriedStream) endOf(a *streamAttempt) error {
	if a.end.Load() == nil {
		return nil
	}
	err := a.end.Swap(nil)
	if err == nil {
		return nil
	}
	s.finish(a, *err)
	return *err
}

// finish calls OnFinish of the RPC's options, once. a is the last attempt that had a stream.
func (s *retriedStream) finish(a *streamAttempt, err error) {
	s.store(a)
	if s.finished.Swap(true) {
		return
	}
	if s.unwatch != nil {
		s.unwatch()
	}
	if err == nil {
		s.retries.throttle().succeed()
	}
	finish(s.rpc.opts, err)
}

// SendMsg implements grpc.ClientStream.
func (s *retriedStream) SendMsg(m any) error {
	send := func(to grpc.ClientStream) error { return to.SendMsg(m) }
	for {
		if a := s.committed.Load(); a != nil {
			err := a.SendMsg(m)
			if err == io.EOF { // RecvMsg returns the status
				return err
			}
			return s.ended(a, err)
		}
		a := s.latest()
		err := a.SendMsg(m)
		switch {
		case err == nil:
			if s.record(a, wireSize(m, s.rpc.opts), send) {
				return nil
			}
		case err != io.EOF: // m cannot be sent
			s.commit()
			return err
		default:
			failure := a.failure()
			if failure == io.EOF {
				s.commit()
				return err
			}
			if end := s.retry(a, failure); end != nil {
				s.finish(s.committed.Load(), end) // there may be no operation after this one
				return err                        // RecvMsg returns end
			}
		}
	}
}

// CloseSend implements grpc.ClientStream.
func (s *retriedStream) CloseSend() error {
	for {
		if a := s.committed.Load(); a != nil {
			return a.CloseSend()
		}
		a := s.latest()
		if err := a.CloseSend(); err != nil || s.record(a, 0, grpc.ClientStream.CloseSend) {
			return err
		}
	}
}

// RecvMsg implements grpc.ClientStream.
func (s *retriedStream) RecvMsg(m any) error {
	for {
		if a := s.committed.Load(); a != nil {
			if err := s.endOf(a); err != nil {
				return err
			}
			return s.ended(a, a.RecvMsg(m))
		}
		a := s.latest()
		err := a.receive(m)
		if err == nil || err == io.EOF {
			return s.ended(s.commit(), err)
		}
		_ = s.retry(a, err) // on failure, a is committed
	}
}

// Header implements grpc.ClientStream.
func (s *retriedStream) Header() (metadata.MD, error) {
	for {
		if a := s.committed.Load(); a != nil {
			if s.endOf(a) != nil {
				return nil, nil // as in gRPC: RecvMsg returns the status
			}
			return a.copyOfHeader()
		}
		a := s.latest()
		header, err := a.copyOfHeader()
		if len(header) > 0 || err != nil {
			s.commit()
			return header, err
		}
		failure := a.failure()
		if failure == io.EOF {
			s.commit()
			return nil, nil
		}
		_ = s.retry(a, failure) // on failure, a is committed
	}
}

// Trailer implements grpc.ClientStream.
func (s *retriedStream) Trailer() metadata.MD { return s.commit().Trailer() }

// Context implements grpc.ClientStream.
func (s *retriedStream) Context() context.Context { return s.commit().Context() }
