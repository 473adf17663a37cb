// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"testing"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// BenchmarkRPC is a whole unary RPC over in-memory connections, 64 at a time.
// Its allocations are what binds; its time is mostly gRPC's own.
func BenchmarkRPC(b *testing.B) {
	sc := scenario{localities: 3, perLocality: 10, loadReports: true, drops: true}
	for _, impl := range []string{"roundrobin", "stock", "ours"} {
		b.Run("impl="+impl, func(b *testing.B) {
			client := testgrpc.NewTestServiceClient(dial(b, impl, sc, startControl(b, sc)))
			b.ReportAllocs()
			b.SetParallelism(32)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				ctx := context.Background()
				for pb.Next() {
					_, _ = client.EmptyCall(ctx, &testgrpc.Empty{}) // one in a million is dropped
				}
			})
		})
	}
}
