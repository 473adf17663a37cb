// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"container/heap"
	"slices"
	"sync"
	"sync/atomic"
)

// The peers are common implementations for comparison in benchmarks.

// A mutexHeap is the textbook EDF scheduler: a priority queue of floating-point deadlines
// behind a lock.
type mutexHeap struct {
	mu    sync.Mutex
	queue floatQueue
}

type floatQueue []floatEntry

type floatEntry struct {
	deadline, weight float64
	index            int
}

func newMutexHeap(weights []uint32) *mutexHeap {
	h := new(mutexHeap)
	for i, w := range weights {
		h.queue = append(h.queue, floatEntry{1 / float64(w), float64(w), i})
	}
	heap.Init(&h.queue)
	return h
}

func (h *mutexHeap) Next() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	top := &h.queue[0]
	index := top.index
	top.deadline += 1 / top.weight
	heap.Fix(&h.queue, 0)
	return index
}

func (q floatQueue) Len() int      { return len(q) }
func (q floatQueue) Swap(i, k int) { q[i], q[k] = q[k], q[i] }
func (q *floatQueue) Push(x any)   { *q = append(*q, x.(floatEntry)) }
func (q floatQueue) Less(i, k int) bool {
	if q[i].deadline != q[k].deadline {
		return q[i].deadline < q[k].deadline
	}
	return q[i].index < q[k].index
}

func (q *floatQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

// A stride is the static stride scheduler of gRFC A58: weights are scaled to 16 bits, a
// counter steps through all endpoints round after round, and an endpoint is skipped in the
// rounds in which a running sum of its weight does not overflow 16 bits.
type stride struct {
	counter atomic.Uint64
	weights []uint16
}

func newStride(weights []uint32) *stride {
	s := new(stride)
	most := uint64(slices.Max(weights))
	for _, w := range weights {
		s.weights = append(s.weights, uint16((uint64(w)*65535+most/2)/most))
	}
	return s
}

func (s *stride) Next() int {
	n := uint64(len(s.weights))
	for {
		sequence := s.counter.Add(1) - 1
		index, round := sequence%n, sequence/n
		w := uint64(s.weights[index])
		if (w*round+index*(65535/2))%65535 >= 65535-w {
			return int(index)
		}
	}
}

// A roundRobin is the least that a scheduler for many goroutines can do.
type roundRobin struct {
	counter atomic.Uint64
	n       uint64
}

func (r *roundRobin) Next() int { return int((r.counter.Add(1) - 1) % r.n) }
