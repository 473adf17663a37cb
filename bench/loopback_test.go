// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// BenchmarkLoopback measures a whole unary RPC over loopback TCP, to show the part of xDS in
// it: the processor time of the process, with the client, the server and the kernel.
//
// The implementations alternate.
func BenchmarkLoopback(b *testing.B) {
	for _, inflight := range []int{1, 64} {
		measured := newSeries(func() map[string]whole { return measureWhole(b, inflight) })
		for _, impl := range impls {
			b.Run(fmt.Sprintf("impl=%s/inflight=%d", impl, inflight), func(b *testing.B) {
				if b.N == 1 {
					measured.begin(impl)
				}
				measured.of(impl).report(b)
			})
		}
	}
}

// measureWhole returns each implementation's cost, with so many RPCs at a time.
func measureWhole(b *testing.B, inflight int) map[string]whole {
	each := 1500
	if testing.Short() {
		each = 64
	}
	sc := scenario{localities: 3, perLocality: 10, loadReports: true, drops: true, tcp: true}
	channels := make(map[string]*grpc.ClientConn)
	for _, impl := range impls {
		channels[impl] = dial(b, impl, sc, startControl(b, sc))
	}
	return costs(turns(channels, 41, func(cc *grpc.ClientConn) whole { return callWhole(cc, inflight, each) }), median)
}

// callWhole makes n RPCs, so many at a time.
func callWhole(cc *grpc.ClientConn, inflight, n int) whole {
	client := testgrpc.NewTestServiceClient(cc)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	from := cpuTime()
	var wg sync.WaitGroup
	for w := range inflight {
		wg.Go(func() {
			ctx := context.Background()
			for i := w; i < n; i += inflight {
				_, _ = client.EmptyCall(ctx, &testgrpc.Empty{}) // one in a million is dropped
			}
		})
	}
	wg.Wait()
	cpu := cpuTime() - from
	runtime.ReadMemStats(&after)
	return whole{
		cpu:    float64(cpu) / float64(n),
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
		allocs: float64(after.Mallocs-before.Mallocs) / float64(n),
	}
}
