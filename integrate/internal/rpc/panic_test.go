// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file tests panics in code of the application that runs within attempts, such as credentials, codecs
// and later interceptors. Servers recover them.

// recovered returns the value that f panics with, or nil.
func recovered(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// budgetedCall returns a Call whose cluster allows three active retries, and the number of these.
func budgetedCall(t *testing.T) (*Call, *atomic.Int64) {
	active := new(atomic.Int64)
	ch := NewChannel(link.Options{}, ChannelOptions{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(ch.Close)
	table := &Table{
		Channel: ch, Config: &picker.Config{Clusters: []*picker.Cluster{{Name: "c"}}},
		Budgets: []*Budget{{Limit: &picker.RetryLimit{Min: 3}, InFlight: new(picker.Breaker), Active: active}},
	}
	ch.Publish(func() *Table { return table })
	call := settledCall(ch)
	call.matched.name = "c"
	return call, active
}

// TestPanicReleasesRetry checks that a retry that panics does not remain active.
func TestPanicReleasesRetry(t *testing.T) {
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 3, BaseBackoff: 1, MaxBackoff: 1}
	unavailable := status.Error(codes.Unavailable, "x")
	attempts := 0
	// attempt fails at first, and then panics.
	attempt := func() error {
		if attempts++; attempts == 2 {
			panic("application")
		}
		return unavailable
	}
	creates := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		return nil, attempt()
	}
	replays := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		return &failingStream{ctx: ctx, send: attempt}, nil
	}
	for name, rpc := range map[string]func(ctx context.Context, call *Call){
		"unary": func(ctx context.Context, call *Call) {
			invoker := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return attempt() }
			_ = unaryRPC{call: call, invoker: invoker, ctx: ctx, req: new(emptypb.Empty)}.retry()
		},
		"creation of a stream": func(ctx context.Context, call *Call) {
			_, _ = streamRPC{call, creates, ctx, bothWays, nil, "/s/m", nil}.retry()
		},
		"message of a stream": func(ctx context.Context, call *Call) {
			s, err := streamRPC{call, replays, ctx, bothWays, nil, "/s/m", nil}.retry()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { // the stream can be used
				_ = s.Context()
			}()
			attempts = -1
			_ = s.SendMsg(new(emptypb.Empty))
			attempts = 0
			_ = s.RecvMsg(new(emptypb.Empty))
		},
	} {
		call, active := budgetedCall(t)
		call.plan = &plan{retry: policy}
		attempts = 0
		ctx, cancel := context.WithCancel(t.Context())
		if v := recovered(func() { rpc(ctx, call) }); v != "application" {
			t.Errorf("%s: recovered %v, want the panic of the application", name, v)
		}
		if n := active.Load(); n != 0 {
			t.Errorf("%s: %d retries are active after a panic was recovered", name, n)
		}
		cancel()
	}
}

// A failingStream accepts the first message, and fails then.
type failingStream struct {
	grpc.ClientStream
	ctx  context.Context
	send func() error
}

func (s *failingStream) Context() context.Context     { return s.ctx }
func (s *failingStream) SendMsg(any) error            { _ = s.send(); return nil }
func (s *failingStream) RecvMsg(any) error            { return status.Error(codes.Unavailable, "x") }
func (s *failingStream) Header() (metadata.MD, error) { return nil, nil }
func (s *failingStream) Trailer() metadata.MD         { return nil }

// TestPanicInHedgedRPC checks that a panic of an attempt reaches the goroutine of the application, after the
// attempt that uses its messages has ended.
func TestPanicInHedgedRPC(t *testing.T) {
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 3, BaseBackoff: 1, MaxBackoff: 1, PerTryTimeout: 100 * time.Millisecond}
	for name, panics := range map[string]int{"the first attempt": 1, "a hedge": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				call, active := budgetedCall(t)
				ctx := context.WithValue(t.Context(), callKey{}, call)
				var started, running atomic.Int32
				v := recovered(func() {
					_ = hedge(ctx, policy, new(emptypb.Empty), new(wrapperspb.Int32Value), nil, func(ctx context.Context, _, _ proto.Message, _ []grpc.CallOption) error {
						n := int(started.Add(1))
						if n == 1 {
							running.Add(1)
							defer running.Add(-1)
						}
						if n == panics {
							panic("application")
						}
						<-ctx.Done()
						time.Sleep(time.Second)
						return status.FromContextError(ctx.Err()).Err()
					})
				})
				if v != "application" {
					t.Errorf("recovered %v, want the panic of the application", v)
				}
				if n := running.Load(); n != 0 {
					t.Error("the first attempt is running after the RPC")
				}
				time.Sleep(time.Minute)
				if n := active.Load(); n != 0 {
					t.Errorf("%d retries are active after a panic was recovered", n)
				}
			})
		})
	}
}

// TestPanicReleasesFault checks that a panic during the creation of a stream ends its fault.
func TestPanicReleasesFault(t *testing.T) {
	f := &resource.Fault{MaxActive: math.MaxUint32, Delay: &resource.FaultDelay{Chance: resource.Percentage{PerMillion: 1e6}}}
	before := activeFaults.Load()
	panics := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		panic("application")
	}
	if v := recovered(func() { _, _ = faultInterceptor(f).stream(t.Context(), bothWays, nil, "/s/m", panics) }); v != "application" {
		t.Errorf("recovered %v, want the panic of the application", v)
	}
	if n := activeFaults.Load() - before; n != 0 {
		t.Errorf("%d faults are active after a panic was recovered", n)
	}
}
