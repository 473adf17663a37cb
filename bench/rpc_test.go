// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// BenchmarkRPC measures a whole unary RPC, with 64 in flight, over in-memory connections and
// over loopback. Its allocations are the relevant figure; its time is mostly gRPC's own.
func BenchmarkRPC(b *testing.B) {
	for _, network := range []string{"mem", "tcp"} {
		sc := scenario{localities: 3, perLocality: 10, loadReports: true, drops: true, tcp: network == "tcp"}
		for _, impl := range impls {
			channel := sync.OnceValue(func() *grpc.ClientConn { return dial(b, impl, sc, startControl(b, sc)) })
			b.Run("impl="+impl+"/net="+network, func(b *testing.B) {
				client := testgrpc.NewTestServiceClient(channel())
				b.ReportAllocs()
				b.SetParallelism(64 / runtime.GOMAXPROCS(0))
				b.ResetTimer()
				defer charge(b)()
				b.RunParallel(func(pb *testing.PB) {
					ctx := context.Background()
					for pb.Next() {
						_, _ = client.EmptyCall(ctx, &testgrpc.Empty{}) // one in a million is dropped
					}
				})
			})
		}
	}
}
