// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// slowToken is a call credential. gRPC calls it after the pick, and before it creates the stream
// on the transport.
type slowToken struct{ called, proceed chan struct{} }

func (s slowToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	close(s.called)
	<-s.proceed
	return nil, nil
}

func (slowToken) RequireTransportSecurity() bool { return false }

// TestRemovedAfterPick checks that an RPC does not hang if its endpoint is removed between the
// pick and the creation of the stream, while another stream keeps the connection open.
func TestRemovedAfterPick(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, control := b.backends(2), b.control()
		serve := func(i int) {
			set(t, control, service(backends[i]))
		}
		serve(0)
		cc := b.dial(b.config(control))
		client := testgrpc.NewTestServiceClient(cc)
		stream, err := client.FullDuplexCall(t.Context(), grpc.WaitForReady(true))
		if err == nil {
			err = stream.Send(new(testgrpc.StreamingOutputCallRequest))
		}
		kit.Must(t, err)
		token, result := slowToken{make(chan struct{}), make(chan struct{})}, make(chan error, 1)
		ctx := minute(t)
		go func() {
			_, err := client.EmptyCall(ctx, new(testgrpc.Empty), grpc.PerRPCCredentials(token))
			result <- err
		}()
		<-token.called
		serve(1)
		for backends[1].Calls() == 0 { // until the new snapshot is in force
			succeed(t, cc)
			time.Sleep(time.Millisecond)
		}
		close(token.proceed)
		if err := <-result; err != nil {
			t.Errorf("the RPC that picked the removed endpoint: %v", err)
		}
	})
}

var removals = flag.Int("removals", 10, "how many times TestRemovedUnderLoad replaces the endpoint")

// TestRemovedUnderLoad checks that no RPC hangs or fails while updates replace the endpoint again and
// again under 64 callers, and streams keep the transports of removed endpoints open. It uses TCP and
// real time: the defect depends on how picks and shutdowns interleave.
func TestRemovedUnderLoad(t *testing.T) {
	const callers, openStreams = 64, 100
	backends, control := start(t, 2)
	serve := func(i int) {
		set(t, control, service(backends[i]))
	}
	serve(0)
	cc := dial(t, control.Bootstrap("n"))
	client := testgrpc.NewTestServiceClient(cc)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var rpcs, failed atomic.Int64
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				rpcs.Add(1)
				if _, err := client.EmptyCall(ctx, new(testgrpc.Empty), grpc.WaitForReady(true)); err != nil {
					failed.Add(1)
					t.Errorf("EmptyCall: %v", err)
					return
				}
			}
		})
	}
	var closers [openStreams]context.CancelFunc
	for i := range *removals {
		streamCtx, end := context.WithCancel(ctx)
		if old := closers[i%openStreams]; old != nil {
			old()
		}
		closers[i%openStreams] = end
		stream, err := client.FullDuplexCall(streamCtx, grpc.WaitForReady(true))
		if err == nil {
			err = stream.Send(new(testgrpc.StreamingOutputCallRequest))
		}
		if err != nil {
			t.Errorf("change %d: FullDuplexCall: %v", i, err)
			break
		}
		next := backends[(i+1)%2]
		before := next.Calls()
		serve((i + 1) % 2)
		for next.Calls() == before && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	time.AfterFunc(time.Minute, cancel) // RPCs that hang fail
	running.Wait()
	t.Logf("%d changes, %d RPCs, %d of them failed", *removals, rpcs.Load(), failed.Load())
	for _, end := range closers {
		if end != nil {
			end()
		}
	}
}
