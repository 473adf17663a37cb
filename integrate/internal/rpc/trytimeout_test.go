// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

const tryLimit = 100 * time.Millisecond

// triedOnce is a plan with one attempt, whose time is limited.
func triedOnce() plan {
	return plan{retry: &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 1, PerTryTimeout: tryLimit}}
}

// TestTryTimerOfPicks checks that the time of an attempt is limited while it has a connection. gRPC reports
// a connection that was lost before the request was sent by an empty DoneInfo, and picks again.
func TestTryTimerOfPicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := planned(t.Context(), triedOnce())
		ctx := context.WithValue(t.Context(), callKey{}, call)
		var reported []error
		pick := func(ctx context.Context) balancer.PickResult {
			result := balancer.PickResult{Done: func(info balancer.DoneInfo) { reported = append(reported, info.Err) }}
			call.Picked(ctx, "c", nil, &result)
			return result
		}
		err := unaryRPC{call: call, ctx: ctx, method: "/s/m", invoker: func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			time.Sleep(5 * tryLimit) // the first pick waits
			for range 3 {
				result := pick(ctx)
				time.Sleep(tryLimit / 2)
				result.Done(balancer.DoneInfo{})
				time.Sleep(5 * tryLimit) // the next pick waits
			}
			if ctx.Err() != nil {
				t.Error("the attempt is canceled while it has no connection")
			}
			result, picked := pick(ctx), time.Now()
			<-ctx.Done()
			if took := time.Since(picked); took != tryLimit {
				t.Errorf("the attempt is canceled %v after its last pick, want %v", took, tryLimit)
			}
			result.Done(balancer.DoneInfo{Err: status.FromContextError(ctx.Err()).Err()})
			return status.FromContextError(ctx.Err()).Err()
		}}.retry()
		if err != errTryTimeout || len(reported) != 4 || reported[0] != nil || reported[3] != errTryTimeout {
			t.Errorf("the RPC ends with %v, and Done reports %v", err, reported)
		}
	})
}

// A slowStream is a stream with response headers after a while, and no message. Like gRPC's with a binary
// log, it must not be in Header and RecvMsg at the same time before Header has returned.
type slowStream struct {
	grpc.ClientStream
	t       *testing.T
	ctx     context.Context
	after   time.Duration // of the headers; 0 means never
	busy    atomic.Int32  // calls that read the headers
	headers atomic.Bool
}

func (s *slowStream) Header() (metadata.MD, error) {
	if s.busy.Add(1) > 1 && !s.headers.Load() {
		s.t.Error("Header is called while another call waits for headers")
	}
	defer s.busy.Add(-1)
	var timer <-chan time.Time
	if s.after > 0 {
		timer = time.After(s.after)
	}
	select {
	case <-timer:
		s.headers.Store(true)
		return metadata.Pairs("a", "b"), nil
	case <-s.ctx.Done():
		return nil, nil
	}
}

func (s *slowStream) RecvMsg(any) error {
	_, _ = s.Header()
	<-s.ctx.Done()
	return status.FromContextError(s.ctx.Err()).Err()
}

func (s *slowStream) SendMsg(any) error        { return nil }
func (s *slowStream) CloseSend() error         { return nil }
func (s *slowStream) Trailer() metadata.MD     { return nil }
func (s *slowStream) Context() context.Context { return s.ctx }
func (s *slowStream) streamer() grpc.Streamer {
	return func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		s.ctx = ctx
		return s, nil
	}
}

// TestTryTimerOfStreams checks that the time of a stream's attempt begins with the end of its request,
// whatever else the application calls, and ends with the response headers. Header and RecvMsg of gRPC
// are not called at the same time.
func TestTryTimerOfStreams(t *testing.T) {
	serverStreams := &grpc.StreamDesc{ServerStreams: true}
	receive := func(s grpc.ClientStream) error { return s.RecvMsg(nil) }
	for _, tt := range []struct {
		name    string
		desc    *grpc.StreamDesc
		headers time.Duration
		use     func(grpc.ClientStream) error
		limited bool
	}{
		{"closed", bothWays, 0, func(s grpc.ClientStream) error { _ = s.CloseSend(); return receive(s) }, true},
		{"closed while it receives", bothWays, 0, func(s grpc.ClientStream) error {
			time.AfterFunc(1, func() { _ = s.CloseSend() })
			return receive(s)
		}, true},
		{"not closed", bothWays, 0, receive, false},
		{"large", bothWays, 0, func(s grpc.ClientStream) error {
			_ = s.SendMsg(nil) // of unknown size: not kept
			_ = s.CloseSend()
			return receive(s)
		}, true},
		{"Context", bothWays, 0, func(s grpc.ClientStream) error { _ = s.Context(); _ = s.CloseSend(); return receive(s) }, true},
		{"Trailer", bothWays, 0, func(s grpc.ClientStream) error { _ = s.CloseSend(); _ = s.Trailer(); return receive(s) }, true},
		{"one message", serverStreams, 0, func(s grpc.ClientStream) error { _ = s.SendMsg(nil); return receive(s) }, true},
		{"one message, closed", serverStreams, 0, func(s grpc.ClientStream) error { _ = s.SendMsg(nil); _ = s.CloseSend(); return receive(s) }, true},
		{"headers in time", bothWays, tryLimit / 2, func(s grpc.ClientStream) error { _ = s.CloseSend(); return receive(s) }, false},
		{"headers in time, not read", serverStreams, tryLimit / 2, func(s grpc.ClientStream) error {
			_ = s.SendMsg(nil)
			time.Sleep(2 * tryLimit)
			return receive(s)
		}, false},
		{"headers before the end of the request", bothWays, tryLimit / 2, func(s grpc.ClientStream) error {
			time.AfterFunc(tryLimit, func() { _ = s.CloseSend() })
			return receive(s)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*tryLimit)
				defer cancel()
				call := planned(ctx, triedOnce())
				ctx = context.WithValue(ctx, callKey{}, call)
				slow := &slowStream{t: t, after: tt.headers}
				s, err := streamRPC{call, slow.streamer(), ctx, tt.desc, nil, "/s/m", nil}.retry()
				kit.Must(t, err)
				begin := time.Now()
				err = tt.use(s)
				took := time.Since(begin)
				if limited := err == errTryTimeout && took <= tryLimit+1; limited != tt.limited || err == nil || err == io.EOF {
					t.Errorf("the stream ends after %v with %v, limited to %v: want %v", took, err, tryLimit, tt.limited)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}
