// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/picker"
)

// A flap is one connection of many that is lost and comes back: two changes of
// state and two snapshots.
func BenchmarkFlap(b *testing.B) {
	for _, policy := range []struct {
		name string
		make func(*picker.Cluster) *picker.Cluster
	}{
		{"edf", func(c *picker.Cluster) *picker.Cluster { return c }},
		{"ring_hash", ring},
	} {
		for _, n := range []int{10, 1000, 10_000} {
			b.Run(fmt.Sprintf("policy=%s/n=%d", policy.name, n), func(b *testing.B) {
				lb, cc := newTestLB(b, Config{})
				endpoints := eps(series(0, n)...)
				for i := range endpoints {
					endpoints[i].Weight = uint32(1 + i%100)
				}
				eager := clusterOf("c", prio(endpoints))
				lb.Update(configOf(eager)) // connects them all
				for i := range n {
					cc.conn(b, i).to(ready)
				}
				lb.Update(configOf(policy.make(clusterOf("c", prio(endpoints)))))
				lb.flush()
				sc := cc.conn(b, n/2)
				b.ReportAllocs()
				for b.Loop() {
					sc.to(failure)
					lb.flush()
					sc.to(ready)
					lb.flush()
				}
			})
		}
	}
}

// BenchmarkPick measures Pick and Done of one RPC in a cluster of ten endpoints, for RPCs of a
// plain route, and for RPCs that an interceptor has bound.
func BenchmarkPick(b *testing.B) {
	for _, bound := range []bool{false, true} {
		name := "plain"
		if bound {
			name = "bound"
		}
		b.Run(name, func(b *testing.B) {
			lb, cc := newTestLB(b, Config{})
			cfg := configOf(clusterOf("c", prio(eps(series(0, 10)...))))
			if bound {
				limit := time.Minute
				cfg.Routes[0].Headers = []picker.HeaderMatch{{Name: "x", Kind: picker.HeaderPresent}}
				cfg.Routes[0].Timeout = &limit
			}
			lb.take(cfg)
			for i := range 10 {
				cc.conn(b, i).to(ready)
			}
			lb.flush()
			info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: lb.bind(context.Background())}
			done := balancer.DoneInfo{BytesReceived: true}
			b.ReportAllocs()
			for b.Loop() {
				res, err := lb.picker.Pick(info)
				if err != nil {
					b.Fatal(err)
				}
				res.Done(done)
			}
		})
	}
}

// BenchmarkOneClusterChanges is an update that changes the circuit breaker of one cluster of
// many. publish-ns/op is the part of it that builds and publishes the snapshot, and
// update-min-ns the shortest from the configuration to the end of that.
func BenchmarkOneClusterChanges(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			lb, _, cfg, _ := startClusters(b, n)
			var publishing time.Duration
			shortest := time.Hour
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				cfg = changeOne(cfg, n/2, uint32(100+i%2))
				begin := time.Now()
				lb.Update(cfg)
				lb.lock()
				lb.publish()
				publishing += lb.publishTime
				lb.unlock()
				shortest = min(shortest, time.Since(begin))
			}
			b.ReportMetric(float64(publishing)/float64(b.N), "publish-ns/op")
			b.ReportMetric(float64(shortest), "update-min-ns")
		})
	}
}
