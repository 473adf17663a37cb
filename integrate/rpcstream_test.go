// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// retriedByUs are services whose streams are retried by interceptors: because of their
// route, and because of their cluster, which allows one retry at a time.
func retriedByUs(backends []*xdstest.Backend) map[string]xdstest.Resources {
	byHeader := clusters(backends, nil, retried(absent(xdstest.Route("", "a"), "nobody"), 2))
	limited := clusters(backends, nil, retried(xdstest.Route("", "a"), 2))
	limited.Clusters[0].CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRetries: wrapperspb.UInt32(1)}}}
	return map[string]xdstest.Resources{"route by header": byHeader, "cluster with max_retries": limited}
}

// TestHeaderWhileReceiving: Header returns when the server has sent headers, while another
// goroutine waits for a message that the server does not send before it has got one.
func TestHeaderWhileReceiving(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, control := b.backends(1), b.control()
		for name, r := range retriedByUs(backends) {
			set(t, control, r)
			cc := b.dial(b.config(control))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx, grpc.WaitForReady(true))
			kit.Must(t, err)
			got := make(chan error, 1)
			go func() {
				_, err := s.Recv()
				got <- err
			}()
			synctest.Wait() // for Recv to wait
			begin := time.Now()
			header, err := s.Header()
			if took := time.Since(begin); took > 0 || err != nil || len(header.Get("xdstest-backend")) == 0 {
				t.Errorf("%s: Header returns %v and %v after %v, want the backend's headers at once", name, header, err, took)
			}
			if err := s.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
				t.Errorf("%s: Send: %v", name, err)
			}
			if err := <-got; err != nil {
				t.Errorf("%s: Recv: %v", name, err)
			}
			cancel()
			_ = cc.Close()
		}
	})
}

// TestCloseEndsAbandonedStream: a stream without headers that the application does not read ends
// with its channel, at its first attempt and at a retry, whose place in the cluster's max_retries
// another channel can have then.
func TestCloseEndsAbandonedStream(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, control := b.backends(1), b.control()
		for name, r := range retriedByUs(backends) {
			for _, retry := range []bool{false, true} {
				set(t, control, r)
				cc, other := b.dial(b.config(control)), b.dial(b.config(control))
				for _, cc := range []*grpc.ClientConn{cc, other} {
					if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
						t.Fatal(err)
					}
				}
				ended := make(chan error, 2)
				if retry {
					backends[0].Fail(codes.Unavailable)
				} else {
					backends[0].SetDelay(time.Hour)
				}
				s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(t.Context(), grpc.OnFinish(func(err error) { ended <- err }))
				kit.Must(t, err)
				if retry {
					synctest.Wait()
					backends[0].Fail(codes.OK)
					backends[0].SetDelay(time.Hour)
					kit.Must(t, s.Send(&testgrpc.StreamingOutputCallRequest{}))
				}
				synctest.Wait()
				_ = cc.Close()
				synctest.Wait()
				select {
				case err := <-ended:
					if status.Code(err) != codes.Canceled {
						t.Errorf("%s, retry %t: OnFinish is called with %v, want CANCELED", name, retry, err)
					}
				default:
					t.Errorf("%s, retry %t: OnFinish is not called after Close", name, retry)
				}
				backends[0].SetDelay(0)
				backends[0].Fail(codes.Unavailable)
				before := backends[0].Calls()
				_, _ = call(t, other)
				if n := backends[0].Calls() - before; n != 3 {
					t.Errorf("%s, retry %t: %d attempts at an RPC of another channel, want 3", name, retry, n)
				}
				backends[0].Fail(codes.OK)
				_ = other.Close()
			}
		}
	})
}
