// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package gradient

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// latencies are how long RPCs took, in buckets that are a 32nd part of their time wide, from
// a microsecond to 18 minutes. Any number of goroutines may add. The zero value is empty; it
// takes 4 KB.
//
// What is added while take looks counts then or the next time.
type latencies struct {
	count   atomic.Uint32
	buckets [buckets]atomic.Uint32
}

const (
	perDouble = 32 // buckets for times of which none is twice another
	leastLog  = 10 // of the shortest time that has a bucket of its own, in nanoseconds
	mostLog   = 40 // and of the longest
	buckets   = (mostLog-leastLog)*perDouble + 1
	forever   = buckets - 1
)

// bucket is the one of a time.
func bucket(d time.Duration) int {
	switch {
	case d == Forever:
		return forever
	case d < 1<<leastLog:
		return 0
	case d >= 1<<mostLog:
		return forever - 1
	}
	log := bits.Len64(uint64(d)) - 1
	return (log-leastLog)*perDouble + int(d>>(log-5))&(perDouble-1)
}

// shortest is the shortest time of a bucket.
func shortest(bucket int) time.Duration {
	if bucket == forever {
		return Forever
	}
	log := leastLog + bucket/perDouble
	return 1<<log + time.Duration(bucket%perDouble)<<(log-5)
}

// add adds a time, and returns how many there are.
func (l *latencies) add(d time.Duration) uint32 {
	l.buckets[bucket(d)].Add(1)
	return l.count.Add(1)
}

// take takes all times out and returns the one that a share of them is no longer than, as
// its bucket has it; 0 if there is none.
func (l *latencies) take(share float64) time.Duration {
	n := l.count.Swap(0)
	if n == 0 {
		return 0
	}
	rank, seen, rtt := max(uint32(math.Ceil(share*float64(n))), 1), uint32(0), time.Duration(0)
	for i := range l.buckets {
		if l.buckets[i].Load() == 0 {
			continue
		}
		if seen < rank {
			rtt = shortest(i)
		}
		seen += l.buckets[i].Swap(0)
	}
	return rtt
}
