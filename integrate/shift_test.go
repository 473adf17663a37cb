// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"sync/atomic"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestTrafficShift shifts all traffic back and forth between two subsets, 16
// times, under load: no RPC fails, also none that an interceptor had sent to the
// subset that is left (A31, T-WATCH-1, T-WATCH-6).
func TestTrafficShift(t *testing.T) {
	bothWays(t, func(t *testing.T, _ bool, open func([]byte) *grpc.ClientConn) {
		backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
		control := xdstest.New(t, xdstest.Options{})
		route := func(to string) []*routev3.Route {
			return []*routev3.Route{header(retrying(xdstest.Route("", to)), "never", "sent"), limited(xdstest.Route("", to), 30*time.Second)}
		}
		shift := func(i int) {
			set(t, control, clusters(backends, nil, route([]string{"a", "b"}[i%2])...))
		}
		shift(0)
		client := testgrpc.NewTestServiceClient(open(control.Bootstrap(t.Name())))
		var calls, stop atomic.Int64
		failures := make(chan error, 100)
		done := make(chan struct{})
		const workers, shifts, atLeast = 8, 16, 2000
		for range workers {
			go func() {
				defer func() { done <- struct{}{} }()
				for stop.Load() == 0 {
					if _, err := client.EmptyCall(t.Context(), &testgrpc.Empty{}); err != nil {
						select {
						case failures <- err:
						default:
						}
					}
					calls.Add(1)
				}
			}()
		}
		for i := 1; i <= shifts; i++ {
			there, before := backends[i%2], backends[i%2].Calls()
			shift(i)
			waitFor(t, func() bool { return there.Calls() > before && calls.Load() >= int64(i*atLeast/shifts) })
		}
		stop.Store(1)
		for range workers {
			<-done
		}
		close(failures)
		for err := range failures {
			t.Errorf("an RPC failed: %v", err)
		}
		t.Logf("%d RPCs over %d shifts", calls.Load(), shifts)
	})
}
