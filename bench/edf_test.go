// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"container/heap"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/balancer/weightedtarget"

	"github.com/xdslb/xdslb/edf"
)

// BenchmarkEDF measures the EDF pick: the next index of a weighted sequence, for any number of
// goroutines. impl=heap is the textbook EDF, a binary heap under a mutex with floating-point
// deadlines, and impl=stock is gRPC's version of it, available with package overlay only.
// impl=random is weightedtarget's random WRR, which gRPC uses instead and which has no order.
func BenchmarkEDF(b *testing.B) {
	for _, n := range sizes(10, 1000, 100_000) {
		for _, skew := range []string{"equal", "random", "one"} {
			weights := skewed(n, skew)
			name := fmt.Sprintf("/n=%d/skew=%s", n, skew)
			b.Run("impl=ours"+name, func(b *testing.B) {
				s := must(b, edf.Config{Weights: weights, Start: 1 << 40}.Schedule)
				var issued atomic.Uint64
				spin(b, func() { s.At(issued.Add(1)) })
			})
			b.Run("impl=heap"+name, func(b *testing.B) {
				h := newDeadlines(weights)
				spin(b, func() { h.next() })
			})
			if stock.edf != nil {
				b.Run("impl=stock"+name, func(b *testing.B) {
					next := stock.edf(weights)
					spin(b, func() { next() })
				})
			}
			b.Run("impl=random"+name, func(b *testing.B) {
				w := weightedtarget.NewRandomWRR()
				for i, weight := range weights {
					w.Add(i, int64(weight))
				}
				spin(b, func() { w.Next() })
			})
		}
	}
}

// BenchmarkEDFLife measures an EDF pick of a sequence that is replaced after a number of picks, as
// client-side WRR does every second, including its share of making the sequence.
func BenchmarkEDFLife(b *testing.B) {
	for _, n := range sizes(10, 1000) {
		weights := skewed(n, "random")
		for _, picks := range []int{1000, 10_000, 100_000} {
			name := fmt.Sprintf("/n=%d/picks=%d", n, picks)
			b.Run("impl=ours"+name, func(b *testing.B) {
				var s *edf.Schedule
				b.ReportAllocs()
				defer charge(b)()
				for i := 0; b.Loop(); i++ {
					if i%picks == 0 {
						s = must(b, edf.Config{Weights: weights, Start: uint64(i), Base: uint64(i)}.Schedule)
					}
					sink += s.At(uint64(i))
				}
			})
			b.Run("impl=heap"+name, func(b *testing.B) {
				var h *deadlines
				b.ReportAllocs()
				defer charge(b)()
				for i := 0; b.Loop(); i++ {
					if i%picks == 0 {
						h = newDeadlines(weights)
					}
					sink += h.next()
				}
			})
		}
	}
}

// spin calls do on as many goroutines as there are processors.
func spin(b *testing.B, do func()) {
	b.ReportAllocs()
	b.ResetTimer()
	defer charge(b)()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			do()
		}
	})
}

// deadlines is EDF as textbooks have it.
type deadlines struct {
	mu    sync.Mutex
	items []deadline
}

type deadline struct {
	at, step float64
	index    int
}

func newDeadlines(weights []uint32) *deadlines {
	d := &deadlines{items: make([]deadline, len(weights))}
	for i, w := range weights {
		d.items[i] = deadline{1 / float64(w), 1 / float64(w), i}
	}
	heap.Init(d)
	return d
}

func (d *deadlines) next() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := &d.items[0]
	index := first.index
	first.at += first.step
	heap.Fix(d, 0)
	return index
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (d *deadlines) Len() int { return len(d.items) }
func (d *deadlines) Less(i, k int) bool {
	a, b := &d.items[i], &d.items[k]
	return a.at < b.at || a.at == b.at && a.index < b.index
}
func (d *deadlines) Swap(i, k int) { d.items[i], d.items[k] = d.items[k], d.items[i] }
func (d *deadlines) Push(any)      {}
func (d *deadlines) Pop() any      { return nil }
