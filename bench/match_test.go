// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// BenchmarkMatch finds the route of an RPC among n, one for each method, in random order.
// impl=scan tries one route after the other, like gRPC, but without gRPC's allocations: see
// BenchmarkSelect for these.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1, 20, 100, 1000} {
		k := newKernel(b, 1, 10, "equal", picker.Policy{})
		methods := make([]string, n)
		k.cfg.Routes = nil
		for i := range methods {
			methods[i] = fmt.Sprintf("/some.package.v1.Service%d/Method%d", i/10, i%10)
			k.cfg.Routes = append(k.cfg.Routes, picker.Route{
				Path:     picker.StringMatch{Kind: picker.MatchExact, Value: methods[i]},
				Clusters: []picker.WeightedCluster{{Name: service, Weight: 1}},
			})
		}
		k.build(b)
		calls := make([]string, 4096)
		rng := newRand()
		for i := range calls {
			calls[i] = methods[rng.IntN(n)]
		}
		ctx := b.Context()
		b.Run(fmt.Sprintf("impl=ours/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer charge(b)()
			for i := 0; b.Loop(); i++ {
				route, _, _ := k.snapshot.Match(ctx, calls[i%len(calls)], 0)
				sink += int(route)
			}
		})
		b.Run(fmt.Sprintf("impl=scan/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer charge(b)()
			for i := 0; b.Loop(); i++ {
				for r := range methods {
					if strings.Compare(methods[r], calls[i%len(calls)]) == 0 {
						sink += r
						break
					}
				}
			}
		})
	}
}
