// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/bench/stage"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkEDSUpdate is an EDS update that changes the weight of one endpoint,
// from the control plane's Set to the client's ACK, and for impl=ours, which
// publishes before it acknowledges, to the picks: processor time and bytes of the
// process, so the control plane's share is in both; impl=none has a client that
// accepts everything unseen, and is what to take off. change=none sends the same bytes once more.
//
// The clients run on a stage, without connections to backends.
func BenchmarkEDSUpdate(b *testing.B) {
	for _, n := range sizes(1000, 5000) {
		sc := scenario{localities: 5, perLocality: n / 5, weighted: true}
		for _, change := range []string{"weight", "none"} {
			for _, impl := range []string{"none", "stock", "ours"} {
				if impl == "stock" && testing.Short() {
					continue
				}
				world := sync.OnceValues(func() (*xdstest.Server, *stage.Stage) {
					control := startControl(b, sc)
					if impl == "none" {
						startNull(b, control)
						return control, nil
					}
					s := start(b, impl, sc, control)
					b.Cleanup(s.Close)
					return control, s
				})
				b.Run(fmt.Sprintf("impl=%s/n=%d/change=%s", impl, n, change), func(b *testing.B) {
					control, s := world()
					measureUpdates(b, control, s, sc, change)
				})
			}
		}
	}
}

func measureUpdates(b *testing.B, control *xdstest.Server, s *stage.Stage, sc scenario, change string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	b.ResetTimer()
	for range b.N {
		revision++
		var err error
		if change == "none" {
			err = control.Resend(xdstest.EDS, service)
		} else {
			err = control.Set(sc.resources(revision))
		}
		if err == nil {
			err = control.WaitACK(ctx, xdstest.EDS)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	settle(s)
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/1e3, "cpu-µs/op")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/1024, "KiB/op")
}

// revision makes each update differ from the one before.
var revision uint32

// charge reports the processor time for an operation, from its call to that of
// its result. On a shared machine that is the better measure: it does not count
// the time for which somebody else has the processor. What the runtime does
// beside the benchmark is in it.
func charge(b *testing.B) (stop func()) {
	from := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-from)/float64(b.N), "cpu-ns/op") }
}

// cpuTime is the processor time of the process so far, in nanoseconds.
func cpuTime() int64 { return cputime.Process().Nanoseconds() }
