// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/smallnest/weighted"

	"github.com/xdslb/xdslb/edf"
)

// BenchmarkWeightedPick makes weighted sequences of n endpoints, with weights of 1 to 1000, and picks
// on one goroutine. The other library's are not safe for more than one. smooth is the order of nginx,
// rr that of LVS.
func BenchmarkWeightedPick(b *testing.B) {
	for _, n := range []int{10, 1000} {
		rng := rand.New(rand.NewPCG(1, 2))
		weights := make([]uint32, n)
		for i := range weights {
			weights[i] = 1 + rng.Uint32N(1000)
		}
		b.Run(fmt.Sprintf("impl=ours/n=%d", n), func(b *testing.B) {
			s, err := edf.Config{Weights: weights, Start: rng.Uint64()}.Schedule()
			if err != nil {
				b.Fatal(err)
			}
			var issued atomic.Uint64
			b.ReportAllocs()
			for b.Loop() {
				sink += s.At(issued.Add(1))
			}
		})
		for impl, w := range map[string]weighted.W{"smooth": new(weighted.SW), "rr": new(weighted.RRW), "random": weighted.NewRandW()} {
			for i, weight := range weights {
				w.Add(i, int(weight))
			}
			b.Run(fmt.Sprintf("impl=weighted_%s/n=%d", impl, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					sink += w.Next().(int)
				}
			})
		}
	}
}
