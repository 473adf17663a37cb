// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
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
