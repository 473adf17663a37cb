// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package gradient

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// latencies is a histogram of RPC latencies. The width of a bucket is a 32nd of its time, from
// a microsecond to 18 minutes. It is safe to add concurrently. The zero value is empty; it
// takes 4 KB.
//
// Latencies added during take count in that or in the next call.
type latencies struct {
	count   atomic.Uint32
	buckets [buckets]atomic.Uint32
}

const (
	perDouble = 32 // buckets per doubling of the time
	leastLog  = 10 // log2 of the shortest time with its own bucket, in nanoseconds
	mostLog   = 40 // log2 of the longest
	buckets   = (mostLog-leastLog)*perDouble + 1
	forever   = buckets - 1
)

// bucket returns the bucket of a time.
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

// shortest returns the shortest time of a bucket.
func shortest(bucket int) time.Duration {
	if bucket == forever {
		return Forever
	}
	log := leastLog + bucket/perDouble
	return 1<<log + time.Duration(bucket%perDouble)<<(log-5)
}

// add adds a time, and returns the number of times.
func (l *latencies) add(d time.Duration) uint32 {
	l.buckets[bucket(d)].Add(1)
	return l.count.Add(1)
}

// take removes all times and returns the given quantile, rounded down to its bucket; 0 without
// times.
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
