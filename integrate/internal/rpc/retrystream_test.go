// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// retriedChannel is a channel to a server, whose streams are retried.
func retriedChannel(t *testing.T, handler grpc.StreamHandler) *grpc.ClientConn {
	lis := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.UnknownServiceHandler(handler), grpc.WaitForHandlers(true))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 5, BaseBackoff: time.Millisecond, MaxBackoff: time.Millisecond}
	cc, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamRPC{planned(ctx, plan{retry: policy}), streamer, ctx, desc, cc, method, opts}.retry()
		}))
	kit.Must(t, err)
	t.Cleanup(func() {
		_ = cc.Close()
		server.Stop()
		serving.Wait()
	})
	return cc
}

var bothWays = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// TestRetriedStreamIsOne: whenever attempts fail, while the application sends in one
// goroutine and receives in another, the attempt that lasts gets each message once and in
// order, and the RPC ends once.
func TestRetriedStreamIsOne(t *testing.T) {
	const messages = 50
	var failures atomic.Int32
	cc := retriedChannel(t, func(_ any, s grpc.ServerStream) error {
		after := rand.IntN(messages)
		fails := failures.Add(-1) >= 0
		var all []string
		for i := 0; ; i++ {
			if fails && i == after {
				return status.Error(codes.Unavailable, "x")
			}
			var m wrapperspb.StringValue
			if err := s.RecvMsg(&m); err != nil {
				break
			}
			all = append(all, m.Value)
		}
		for _, v := range all {
			if err := s.SendMsg(wrapperspb.String(v)); err != nil {
				return err
			}
		}
		return nil
	})
	for range 200 {
		failures.Store(rand.Int32N(5))
		var ends atomic.Int32
		s, err := cc.NewStream(t.Context(), bothWays, "/s/m", grpc.OnFinish(func(err error) {
			if ends.Add(1); err != nil {
				t.Errorf("OnFinish got %v", err)
			}
		}))
		kit.Must(t, err)
		var sending sync.WaitGroup
		sending.Go(func() {
			for i := range messages {
				if err := s.SendMsg(wrapperspb.String(string(rune('a' + i)))); err != nil {
					t.Errorf("message %d: %v", i, err)
				}
			}
			_ = s.CloseSend()
		})
		if rand.IntN(2) == 0 {
			sending.Go(func() {
				if _, err := s.Header(); err != nil {
					t.Errorf("Header: %v", err)
				}
			})
		}
		for i := 0; ; i++ {
			var m wrapperspb.StringValue
			err := s.RecvMsg(&m)
			if err == io.EOF && i == messages {
				break
			}
			if err != nil || m.Value != string(rune('a'+i)) {
				t.Fatalf("message %d is %q and %v", i, m.Value, err)
			}
		}
		sending.Wait()
		if ends.Load() != 1 {
			t.Fatalf("OnFinish was called %d times", ends.Load())
		}
	}
}

// TestRetriedStreamsEndOnClose: whatever an application has done to its streams, and whatever
// has become of their attempts, all end once when the channel is closed, though the application does not read them.
func TestRetriedStreamsEndOnClose(t *testing.T) {
	for range 50 {
		cc := retriedChannel(t, func(_ any, s grpc.ServerStream) error {
			if rand.IntN(2) == 0 {
				_ = s.RecvMsg(new(wrapperspb.StringValue))
			}
			switch rand.IntN(4) {
			case 0:
				return status.Error(codes.Unavailable, "retried")
			case 1:
				return status.Error(codes.NotFound, "final")
			case 2:
				_ = s.SendHeader(metadata.Pairs("k", "v"))
			}
			<-s.Context().Done()
			return s.Context().Err()
		})
		ends, streams := make(chan int, 100), 0
		var sending sync.WaitGroup
		for i := range 20 {
			s, err := cc.NewStream(t.Context(), bothWays, "/s/m", grpc.OnFinish(func(error) { ends <- i }))
			kit.Must(t, err)
			streams++
			sending.Go(func() {
				for range rand.IntN(4) {
					if s.SendMsg(wrapperspb.String("x")) != nil {
						return
					}
					runtime.Gosched()
				}
				if rand.IntN(3) == 0 {
					_ = s.CloseSend()
				}
			})
		}
		if rand.IntN(2) == 0 {
			sending.Wait()
		}
		_ = cc.Close()
		sending.Wait()
		ended := map[int]bool{}
		for range streams {
			i := <-ends
			if ended[i] {
				t.Fatalf("stream %d ends twice", i)
			}
			ended[i] = true
		}
	}
}

// TestRetriedStreamBuffer: an attempt is the last once more was sent than the buffer
// holds, and the buffer is released.
func TestRetriedStreamBuffer(t *testing.T) {
	var attempts atomic.Int32
	cc := retriedChannel(t, func(_ any, s grpc.ServerStream) error {
		attempts.Add(1)
		for range 3 {
			if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
				return err
			}
		}
		return status.Error(codes.Unavailable, "x")
	})
	size := wireSize(wrapperspb.String("hello"), nil)
	for _, tt := range []struct{ limit, attempts int }{{3 * size, 5}, {3*size - 1, 1}, {0, 1}} {
		attempts.Store(0)
		s, err := cc.NewStream(t.Context(), bothWays, "/s/m", grpc.MaxRetryRPCBufferSize(tt.limit))
		kit.Must(t, err)
		for range 3 {
			kit.Must(t, s.SendMsg(wrapperspb.String("hello")))
		}
		if err := s.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ends with %v, want UNAVAILABLE", err)
		}
		if n := int(attempts.Load()); n != tt.attempts {
			t.Errorf("with a buffer of %d bytes: %d attempts, want %d", tt.limit, n, tt.attempts)
		}
		if r := s.(*retriedStream); r.sent != nil {
			t.Errorf("%d messages are kept", len(r.sent))
		}
	}
}

// rawCodec sends texts as they are, which are no messages of protobuf.
type rawCodec struct{}

func (rawCodec) Name() string                    { return "raw" }
func (rawCodec) Marshal(v any) ([]byte, error)   { return []byte(*v.(*string)), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*string) = string(b); return nil }

func init() { encoding.RegisterCodec(rawCodec{}) }

// TestRetriedStreamBufferOfCodecs: what is kept of a stream is limited, and sent again,
// whatever codec its messages have. Messages of unknown size are not kept.
func TestRetriedStreamBufferOfCodecs(t *testing.T) {
	cc := retriedChannel(t, func(_ any, s grpc.ServerStream) error {
		<-s.Context().Done()
		return nil
	})
	text := strings.Repeat("x", 1000)
	for name, tt := range map[string]struct {
		message any
		opts    []grpc.CallOption
		kept    int // messages
	}{
		"ForceCodec":          {&text, []grpc.CallOption{grpc.ForceCodec(rawCodec{})}, 9},
		"CallContentSubtype":  {&text, []grpc.CallOption{grpc.CallContentSubtype("raw")}, 9},
		"the last codec":      {&text, []grpc.CallOption{grpc.ForceCodecV2(encoding.GetCodecV2("proto")), grpc.ForceCodec(rawCodec{})}, 9},
		"protobuf":            {wrapperspb.String(text), nil, 9},
		"protobuf by subtype": {wrapperspb.String(text), []grpc.CallOption{grpc.CallContentSubtype("proto")}, 9},
		"unknown":             {new(grpc.PreparedMsg), nil, 0},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := cc.NewStream(ctx, bothWays, "/s/m", append(tt.opts, grpc.MaxRetryRPCBufferSize(9999))...)
		kit.Must(t, err)
		r, kept := s.(*retriedStream), 0
		for range 20 {
			if err := r.SendMsg(tt.message); err != nil && tt.kept > 0 {
				t.Errorf("%s: %v", name, err)
			}
			kept = max(kept, len(r.sent))
		}
		if kept != tt.kept || r.committed.Load() == nil {
			t.Errorf("%s: %d of 20 messages are kept, want %d until the stream is committed", name, kept, tt.kept)
		}
		cancel()
	}
}

// TestRetriedStreamEnds: a stream that is not read ends with its context, whether an
// attempt has failed or not.
func TestRetriedStreamEnds(t *testing.T) {
	failed := make(chan struct{}, 1)
	cc := retriedChannel(t, func(_ any, s grpc.ServerStream) error {
		if md, _ := metadata.FromIncomingContext(s.Context()); len(md.Get("fail")) > 0 {
			failed <- struct{}{}
			return status.Error(codes.Unavailable, "x")
		}
		<-s.Context().Done()
		return nil
	})
	for _, headers := range [][]string{nil, {"fail", "yes"}} {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), headers...))
		end := make(chan error, 2)
		if _, err := cc.NewStream(ctx, bothWays, "/s/m", grpc.OnFinish(func(err error) { end <- err })); err != nil {
			t.Fatal(err)
		}
		if headers != nil {
			<-failed
		}
		cancel()
		if err := <-end; status.Code(err) != codes.Canceled {
			t.Errorf("OnFinish got %v, want CANCELED", err)
		}
	}
}

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
