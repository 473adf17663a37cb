// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkEDSUpdate is an EDS update that changes the weight of one endpoint,
// from the control plane's Set to the client's ACK: processor time and bytes of
// the process, so the control plane's share is in both; impl=none has a client
// less and is what to take off.
func BenchmarkEDSUpdate(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		sc := scenario{localities: 5, perLocality: n / 5, weighted: true}
		for _, impl := range []string{"none", "stock", "ours"} {
			b.Run(fmt.Sprintf("impl=%s/n=%d", impl, n), func(b *testing.B) {
				control := startControl(b, sc)
				if impl != "none" {
					dial(b, impl, sc, control)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
				defer cancel()
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				cpu := cpuTime()
				b.ResetTimer()
				for i := range b.N {
					if err := control.Set(sc.resources(uint32(i + 1))); err != nil {
						b.Fatal(err)
					}
					if impl == "none" {
						continue
					}
					if err := control.WaitACK(ctx, xdstest.EDS); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/1e3, "cpu-µs/op")
				b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/1024, "KiB/op")
			})
		}
	}
}

// cpuTime is the processor time of the process so far, in nanoseconds.
func cpuTime() int64 {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return ru.Utime.Nano() + ru.Stime.Nano()
}
