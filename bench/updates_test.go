// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"

	"github.com/xdslb/xdslb/bench/fakegrpc"
	"github.com/xdslb/xdslb/picker"
)

// BenchmarkPickUpdates is a mix of picks and updates, with the given number of updates in 100
// operations: 30 endpoints, one of which is added and removed. A pick must not wait for an
// update, so the time of an operation is the sum of both, evenly distributed over processors,
// and grows with the fraction of updates only by their cost.
func BenchmarkPickUpdates(b *testing.B) {
	const n = 30
	for _, percent := range []uint32{0, 1, 10} {
		b.Run(fmt.Sprintf("impl=ours/updates=%d", percent), func(b *testing.B) {
			k := newKernel(b, 3, n, "random", picker.Policy{})
			var current atomic.Pointer[picker.Snapshot]
			current.Store(k.snapshot)
			var mu sync.Mutex
			mix(b, percent, func() {
				s := current.Load()
				if res := s.Pick(context.Background(), method, rand.Uint64()); res.Outcome == picker.Picked {
					k.endpoints[res.Index].Finish(picker.CallOK)
				}
			}, func() {
				mu.Lock()
				defer mu.Unlock()
				k.flip(b)
				current.Store(k.snapshot)
			})
		})
		b.Run(fmt.Sprintf("impl=stock_round_robin/updates=%d", percent), func(b *testing.B) {
			s := fakegrpc.New(nil)
			defer s.Close()
			lists := [][]string{addresses(n), addresses(n - 1)}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			info := balancer.PickInfo{Ctx: context.Background(), FullMethodName: method}
			var mu sync.Mutex
			i := 0
			update := func() {
				mu.Lock()
				defer mu.Unlock()
				err := s.Start(roundrobin.Name, "{}", lists[i%2])
				if i++; err == nil {
					_, err = s.Wait(ctx, n-1, 0)
				}
				if err != nil {
					b.Error(err)
				}
			}
			update()
			mix(b, percent, func() {
				if res, err := s.Picker().Pick(info); err == nil && res.Done != nil {
					res.Done(balancer.DoneInfo{})
				}
			}, update)
		})
	}
}

// mix calls update in so many of 100 times, else pick.
func mix(b *testing.B, percent uint32, pick, update func()) {
	b.ReportAllocs()
	b.ResetTimer()
	defer charge(b)()
	b.RunParallel(func(pb *testing.PB) {
		rng := newRand()
		for pb.Next() {
			if percent > 0 && rng.Uint32N(100) < percent {
				update()
			} else {
				pick()
			}
		}
	})
}
