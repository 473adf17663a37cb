// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build inside

package bench

import (
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer/ringhash"
	"google.golang.org/grpc/door"
)

func init() {
	stock.pick = grpc.SelectAndPick
	stock.ring = ringhash.NewRing
	stock.edf = door.NewEDF
	stock.decode = door.DecodeEndpoints
}

// BenchmarkSelect is DESIGN.md's first figure in full: config select, pick and
// Done inside gRPC's channel. impl=round_robin has no xDS and is the floor.
func BenchmarkSelect(b *testing.B) {
	for _, sc := range append(pickScenarios, ringScenario) {
		for _, impl := range impls {
			cc := sync.OnceValue(func() *grpc.ClientConn { return dial(b, impl, sc, startControl(b, sc)) })
			b.Run("impl="+impl+"/case="+sc.name, func(b *testing.B) {
				cc, ctxs := cc(), sessions()
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						_ = stock.pick(ctxs[i%len(ctxs)], cc, method) // one in a million is dropped
					}
				})
			})
		}
	}
}
