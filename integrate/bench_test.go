// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"testing"

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
