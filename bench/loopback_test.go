// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// BenchmarkLoopback is what a whole unary RPC over loopback TCP costs, so what
// xDS is of it: the processor time of the process, with the client, the server
// and what the kernel does for both.
//
// The implementations differ by less than a machine does from one second to the
// next. So they are not run one after the other: the first to ask has all of
// them measured, by turns in many short rounds, and each reports the median of
// its own. b.N has no part in it.
func BenchmarkLoopback(b *testing.B) {
	for _, inflight := range []int{1, 64} {
		measured := sync.OnceValue(func() map[string]whole { return measureWhole(b, inflight) })
		for _, impl := range impls {
			b.Run(fmt.Sprintf("impl=%s/inflight=%d", impl, inflight), func(b *testing.B) {
				cost := measured()[impl]
				b.ReportMetric(0, "ns/op") // there is none
				b.ReportMetric(cost.cpu, "cpu-ns/op")
				b.ReportMetric(cost.bytes, "B/op")
				b.ReportMetric(cost.allocs, "allocs/op")
			})
		}
	}
}

// whole is the cost of one RPC.
type whole struct{ cpu, bytes, allocs float64 }

// measureWhole returns each implementation's cost, with so many RPCs at a time.
func measureWhole(b *testing.B, inflight int) map[string]whole {
	rounds, each := 41, 1500
	if testing.Short() {
		rounds, each = 1, 64
	}
	sc := scenario{localities: 3, perLocality: 10, loadReports: true, drops: true, tcp: true}
	channels := make(map[string]*grpc.ClientConn)
	for _, impl := range impls {
		channels[impl] = dial(b, impl, sc, startControl(b, sc))
	}
	all := make(map[string][]whole)
	for round := range rounds + 1 {
		for i := range impls {
			impl := impls[(round+i)%len(impls)]
			cost := callWhole(channels[impl], inflight, each)
			if round > 0 { // the first warms up
				all[impl] = append(all[impl], cost)
			}
		}
	}
	median := func(list []whole, of func(whole) float64) float64 {
		var values []float64
		for _, w := range list {
			values = append(values, of(w))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	result := make(map[string]whole)
	for impl, list := range all {
		result[impl] = whole{
			cpu:    median(list, func(w whole) float64 { return w.cpu }),
			bytes:  median(list, func(w whole) float64 { return w.bytes }),
			allocs: median(list, func(w whole) float64 { return w.allocs }),
		}
	}
	return result
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
