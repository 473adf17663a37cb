// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/picker"
)

// TestFilterOnFinish: grpc.OnFinish of the application and of a filter are called once for each unary
// RPC, whether or not it may be retried.
func TestFilterOnFinish(t *testing.T) {
	for name, retry := range map[string]*picker.RetryPolicy{"one attempt": nil, "retries": {MaxAttempts: 2}} {
		application, filter := 0, 0
		add := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoker(ctx, method, req, reply, cc, append(opts, grpc.OnFinish(func(error) { filter++ }))...)
		}
		table := canary(t, "a", "b")
		plan := table.Plans.routes[1].all
		plan.filters, plan.retry = filterSet{listener: &listenerFilters{list: []interceptor{{unary: add}}}, active: 1}, retry
		err := Unary(t.Context(), table, "/s/m", nil, nil, nil, func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
			finish(opts, nil) // as gRPC
			return nil
		}, grpc.OnFinish(func(error) { application++ }))
		if err != nil || application != 1 || filter != 1 {
			t.Errorf("%s: error %v, and OnFinish is called %d times for the application and %d times for the filter, want once each", name, err, application, filter)
		}
	}
}
