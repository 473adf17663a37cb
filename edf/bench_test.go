// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// skews are sets of weights for n endpoints: drawn from 1 to 1000, or one of 1000 and the rest
// 1.
var skews = []struct {
	name    string
	weights func(n int) []uint32
}{
	{"uniform", func(n int) []uint32 {
		r := rand.New(rand.NewPCG(uint64(n), 1000))
		weights := make([]uint32, n)
		for i := range weights {
			weights[i] = 1 + r.Uint32N(1000)
		}
		return weights
	}},
	{"1000to1", func(n int) []uint32 {
		weights := make([]uint32, n)
		for i := range weights {
			weights[i] = 1
		}
		weights[n/2] = 1000
		return weights
	}},
}

// forEachInput runs a benchmark for all sizes and skews.
func forEachInput(b *testing.B, impl string, f func(b *testing.B, weights []uint32)) {
	for _, n := range []int{10, 1000, 100_000} {
		for _, skew := range skews {
			weights := skew.weights(n)
			b.Run(fmt.Sprintf("impl=%s/n=%d/skew=%s", impl, n, skew.name), func(b *testing.B) {
				b.ReportAllocs()
				f(b, weights)
			})
		}
	}
}

func mustQueue(b *testing.B, c Config) *queue {
	h, err := c.queue()
	if err != nil {
		b.Fatal(err)
	}
	return h
}

func mustSchedule(b *testing.B, c Config) *drawn {
	s, err := c.Schedule()
	if err != nil {
		b.Fatal(err)
	}
	return draw(s)
}

// mustWindow returns a Schedule that does not hold a period, however short.
func mustWindow(b *testing.B, c Config) *drawn {
	s, err := c.schedule(0, window)
	if err != nil {
		b.Fatal(err)
	}
	return draw(s)
}

// One goroutine. The loops are written out so that each calls its Next directly.
func BenchmarkNext(b *testing.B) {
	forEachInput(b, "baseline", func(b *testing.B, weights []uint32) {
		r := &roundRobin{n: uint64(len(weights))}
		for b.Loop() {
			r.Next()
		}
	})
	forEachInput(b, "queue", func(b *testing.B, weights []uint32) {
		h := mustQueue(b, Config{Weights: weights})
		for b.Loop() {
			h.next()
		}
	})
	forEachInput(b, "schedule", func(b *testing.B, weights []uint32) {
		s := mustSchedule(b, Config{Weights: weights})
		for b.Loop() {
			s.next()
		}
	})
	forEachInput(b, "window", func(b *testing.B, weights []uint32) {
		s := mustWindow(b, Config{Weights: weights})
		for b.Loop() {
			s.next()
		}
	})
	forEachInput(b, "mutexheap", func(b *testing.B, weights []uint32) {
		h := newMutexHeap(weights)
		for b.Loop() {
			h.Next()
		}
	})
	forEachInput(b, "stride", func(b *testing.B, weights []uint32) {
		s := newStride(weights)
		for b.Loop() {
			s.Next()
		}
	})
}

// Uses -cpu goroutines. The time of one pick for one goroutine is ns/op times their number:
// ns/op is that of all together.
func BenchmarkNextParallel(b *testing.B) {
	forEachInput(b, "baseline", func(b *testing.B, weights []uint32) {
		r := &roundRobin{n: uint64(len(weights))}
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r.Next()
			}
		})
	})
	forEachInput(b, "schedule", func(b *testing.B, weights []uint32) {
		s := mustSchedule(b, Config{Weights: weights})
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				s.next()
			}
		})
		reportFallbacks(b, s)
	})
	forEachInput(b, "batches", func(b *testing.B, weights []uint32) {
		s := mustSchedule(b, Config{Weights: weights})
		var issued atomic.Uint64
		b.RunParallel(func(pb *testing.PB) { drawBatches(s.Schedule, &issued, pb) })
		reportFallbacks(b, s)
	})
	forEachInput(b, "window", func(b *testing.B, weights []uint32) {
		s := mustWindow(b, Config{Weights: weights})
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				s.next()
			}
		})
		reportFallbacks(b, s)
	})
	forEachInput(b, "mutexheap", func(b *testing.B, weights []uint32) {
		h := newMutexHeap(weights)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				h.Next()
			}
		})
	})
	forEachInput(b, "stride", func(b *testing.B, weights []uint32) {
		s := newStride(weights)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				s.Next()
			}
		})
	})
}

// drawBatches takes 32 tickets at a time from a counter shared with other goroutines.
func drawBatches(s *Schedule, issued *atomic.Uint64, pb *testing.PB) {
	for {
		first := issued.Add(32) - 32
		for ticket := first; ticket < first+32; ticket++ {
			if !pb.Next() {
				return
			}
			s.At(ticket)
		}
	}
}

func reportFallbacks(b *testing.B, s *drawn) {
	b.ReportMetric(float64(s.fallbacks())/float64(b.N), "fallbacks/op")
}

// BenchmarkNew measures a rebuild.
func BenchmarkNew(b *testing.B) {
	forEachInput(b, "queue", func(b *testing.B, weights []uint32) {
		for b.Loop() {
			mustQueue(b, Config{Weights: weights, Start: 1 << 40})
		}
	})
	forEachInput(b, "schedule", func(b *testing.B, weights []uint32) {
		for b.Loop() {
			mustSchedule(b, Config{Weights: weights, Start: 1 << 40})
		}
	})
	forEachInput(b, "window", func(b *testing.B, weights []uint32) {
		for b.Loop() {
			mustWindow(b, Config{Weights: weights, Start: 1 << 40})
		}
	})
}

func BenchmarkSeek(b *testing.B) {
	forEachInput(b, "queue", func(b *testing.B, weights []uint32) {
		h := mustQueue(b, Config{Weights: weights})
		r := rand.New(rand.NewPCG(1, 1))
		for b.Loop() {
			h.seek(r.Uint64())
		}
	})
}

// BenchmarkReweigh measures a change of one weight with a continued sequence, from all weights
// or from the change.
func BenchmarkReweigh(b *testing.B) {
	for _, n := range []int{30, 2000, 10_000} {
		for _, skew := range []struct {
			name string
			of   func(i int) uint32
		}{
			{"1to7", func(i int) uint32 { return 1 + uint32(i%7) }},
			{"one", func(i int) uint32 { return 100 + uint32(1-min(i, 1)) }},
			{"uniform", func(i int) uint32 { return 1 + uint32(i)*7919%1000 }},
		} {
			weights := make([]uint32, n)
			for i := range weights {
				weights[i] = skew.of(i)
			}
			for _, impl := range []string{"all", "some"} {
				b.Run(fmt.Sprintf("impl=%s/n=%d/skew=%s", impl, n, skew.name), func(b *testing.B) {
					s := mustSchedule(b, Config{Weights: weights, Start: 1 << 40}).Schedule
					r := rand.New(rand.NewPCG(1, 1))
					b.ReportAllocs()
					for i := uint32(0); b.Loop(); i++ {
						var err error
						ticket := s.base + r.Uint64N(1<<20)
						if weights[n/2] = 1 + i%100; impl == "all" {
							s, err = s.Reweigh(weights, ticket)
						} else {
							s, err = s.ReweighSome([]Change{{n / 2, weights[n/2]}}, ticket)
						}
						if err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
