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
	"time"

	"google.golang.org/grpc"
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
