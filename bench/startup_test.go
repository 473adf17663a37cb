// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/balancer/roundrobin"

	"github.com/xdslb/xdslb/bench/fakegrpc"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkStartup measures the start of a target, from nothing to n endpoints READY, including
// xDS. Connections are free here, so the processor time is the policy's. All connect at once,
// which favors stock, which then handles many of them at a time. impl=round_robin, which is
// gRPC's, makes a picker for each endpoint that connects, so its time grows with the square of
// n.
//
// B/endpoint is the live heap per endpoint that is freed when the channel is closed: without
// connections and SubConns, which belong to gRPC or to the fake channel, and with the memory of
// the XdsClient.
func BenchmarkStartup(b *testing.B) {
	for _, n := range sizes(100, 1000, 3000, 10_000) {
		sc := scenario{localities: 5, perLocality: n / 5, weighted: true}
		for _, impl := range impls {
			if impl == "round_robin" && n > 3000 {
				continue
			}
			b.Run(fmt.Sprintf("impl=%s/n=%d", impl, n), func(b *testing.B) {
				control := startControl(b, sc)
				var cpu, allocated, held int64
				for range b.N {
					var before, after runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&before)
					from := cpuTime()
					s := start(b, impl, sc, control)
					settle(s)
					cpu += cpuTime() - from
					runtime.ReadMemStats(&after)
					allocated += int64(after.TotalAlloc - before.TotalAlloc)
					held += liveHeap()
					s.Close()
					settle(nil)
					held -= liveHeap()
				}
				b.ReportMetric(0, "ns/op") // it would have the settling
				b.ReportMetric(float64(cpu)/float64(b.N)/1e6, "cpu-ms/op")
				b.ReportMetric(float64(allocated)/float64(b.N)/1024, "KiB/op")
				// Memory of earlier runs that is freed meanwhile can exceed what a few endpoints hold: no figure then.
				if each := float64(held)/float64(b.N)/float64(n) - fakegrpc.SubConnSize; each > 0 {
					b.ReportMetric(each, "B/endpoint")
				}
			})
		}
	}
}

// settle returns when the channel, if any, has been idle for a while,
// and the process has been at rest.
func settle(s *fakegrpc.Channel) {
	const while, rest = 20 * time.Millisecond, 4 * time.Millisecond
	for {
		var pulse uint64
		if s != nil {
			pulse = s.Activity()
		}
		cpu := cpuTime()
		time.Sleep(while)
		if (s == nil || s.Activity() == pulse) && cpuTime()-cpu < int64(rest) {
			return
		}
	}
}

// start runs the implementation's policy on a fake channel until all endpoints are READY. The
// caller closes the channel.
func start(b *testing.B, impl string, sc scenario, control *xdstest.Server) *fakegrpc.Channel {
	s := fakegrpc.New(nil)
	var err error
	if impl == "round_robin" {
		err = s.Start(roundrobin.Name, "{}", addresses(sc.endpoints()))
	} else {
		err = s.Resolve(newBuilder(b, impl, control), "xds:///"+service)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err == nil {
		_, err = s.Wait(ctx, sc.endpoints(), 0)
	}
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// liveHeap returns the bytes that are in use.
func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // memory freed by finalizers
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
