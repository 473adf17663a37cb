// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// BenchmarkSize measures the cost of a channel of very many endpoints, including that of its fake
// ClientConn: up is a start until all are READY, steady is the remaining heap, churn is one minute
// in which 1 % of the endpoints are replaced, by an update each second. Run it with -benchtime 1x.
func BenchmarkSize(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		for _, subset := range []uint32{0, 100} {
			b.Run(fmt.Sprintf("endpoints=%d/subset=%d", n, subset), func(b *testing.B) {
				for b.Loop() {
					measureSize(b, n, subset)
				}
			})
		}
	}
}

func measureSize(b *testing.B, n int, subset uint32) {
	numbers := upTo(0, n)
	config := func() *picker.Config {
		c := clusterOf("c", prio(eps(numbers...)))
		c.Leaves[0].Policy.Subset = subset
		return configOf(c)
	}
	lb, cc := newTestLB(b, Config{})
	rise := func() {
		cc.mu.Lock()
		var fresh []*fakeConn
		for _, sc := range cc.conns {
			if sc.connects == 1 {
				sc.connects++
				fresh = append(fresh, sc)
			}
		}
		cc.mu.Unlock()
		for _, sc := range fresh {
			sc.to(connecting)
			sc.to(ready)
		}
	}
	first := config()
	heap, goroutines, total, begin := live(), runtime.NumGoroutine(), allocated(), time.Now()
	lb.Update(first)
	rise()
	lb.flush()
	b.ReportMetric(float64(time.Since(begin).Microseconds())/float64(n), "up-µs/endpoint")
	b.ReportMetric(float64(allocated()-total)/float64(n), "up-B/endpoint")
	b.ReportMetric((float64(live())-float64(heap))/float64(n), "steady-B/endpoint")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")

	const minute = 60
	var cpu time.Duration
	var bytes uint64
	next := n
	for s := range minute {
		numbers = slices.Clone(numbers)
		for k := s * n / 100 / minute; k < (s+1)*n/100/minute; k++ {
			numbers[(k*7919)%n] = next
			next++
		}
		cfg := config()
		begin, total := time.Now(), allocated()
		lb.Update(cfg)
		rise()
		lb.flush()
		cpu, bytes = cpu+time.Since(begin), bytes+allocated()-total
	}
	b.ReportMetric(float64(cpu.Milliseconds()), "churn-ms/min")
	b.ReportMetric(float64(bytes)/minute/float64(n), "churn-B/update/endpoint")
	if _, err := lb.pick(); err != nil {
		b.Fatal(err)
	}
}
