// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// latencies are latencies of RPCs by the number of RPCs that they found in flight. There are no
// locks: of two RPCs that end at the same moment one may be lost, which hardly affects an
// average.
type latencies struct{ buckets [buckets]bucket }

// A bucket is for one number in flight, or a few.
type bucket struct {
	ns atomic.Int64 // moving average; 0 if empty
	at atomic.Int64 // time of the last update
}

const (
	exact   = 16               // smaller numbers have their own buckets
	buckets = exact + 4*(20-4) // followed by four for each power of two, up to a million
	expiry  = 10 * time.Second // of an average
	share   = 10               // an RPC has a weight of a tenth in the average
	longest = int64(time.Hour) // longer latencies are capped
)

// bucketOf returns the index of the bucket for n RPCs in flight.
func bucketOf(n int64) int {
	if n < exact {
		return int(max(0, n))
	}
	p := bits.Len64(uint64(n)) - 1 // 4 or more
	return min(exact+4*(p-4)+int(n>>(p-2))&3, buckets-1)
}

// add records an RPC that found n others. O(1); does not allocate.
func (l *latencies) add(n, now int64, took time.Duration) {
	b := &l.buckets[bucketOf(n)]
	ns, was := max(1, min(int64(took), longest)), b.ns.Load()
	if was != 0 && now-b.at.Load() <= int64(expiry) {
		ns = max(1, was+(ns-was)/share)
	}
	b.ns.Store(ns)
	b.at.Store(now)
}

// topOf returns the largest number of a bucket.
func topOf(k int) int64 {
	if k < exact {
		return int64(k)
	}
	return int64(5+(k-exact)%4)<<(2+(k-exact)/4) - 1
}

// at returns the latency in nanoseconds of RPCs that found about n others, or 0 if it is
// unknown: the average of the nearest bucket that has one, the lower of two. If no RPC has
// found as many yet, as at a server that has just recovered, the latency is scaled up by the
// length of the queue: the latency without waiting does not apply to the tenth RPC in the
// queue. O(buckets); does not allocate.
func (l *latencies) at(n, now int64) int64 {
	k := bucketOf(n)
	below, above := k, k+1
	for below >= 0 && l.recent(below, now) == 0 {
		below--
	}
	for above < buckets && l.recent(above, now) == 0 {
		above++
	}
	switch {
	case below == k || above < buckets && below >= 0 && k-below <= above-k:
		return l.recent(below, now)
	case above < buckets:
		return l.recent(above, now)
	case below < 0:
		return 0
	}
	return int64(min(float64(l.recent(below, now))*float64(n+1)/float64(topOf(below)+1), float64(longest)))
}

func (l *latencies) recent(i int, now int64) int64 {
	if i < 0 || i >= buckets || now-l.buckets[i].at.Load() > int64(expiry) {
		return 0
	}
	return l.buckets[i].ns.Load()
}

// outcomes counts the results of the RPCs of about the last two seconds, in time slots.
type outcomes struct{ slots [outcomeSlots]outcomeSlot }

type outcomeSlot struct{ epoch, ok, failed atomic.Int64 }

const (
	outcomeSlots = 5
	outcomeSpan  = int64(500 * time.Millisecond)
)

// count records an RPC. O(1); does not allocate.
func (o *outcomes) count(now int64, ok bool) {
	epoch := now/outcomeSpan + 1 // 0 is an unused slot
	s := &o.slots[epoch%outcomeSlots]
	if was := s.epoch.Load(); was < epoch && s.epoch.CompareAndSwap(was, epoch) {
		s.ok.Store(0)
		s.failed.Store(0)
	}
	if ok {
		s.ok.Add(1)
	} else {
		s.failed.Add(1)
	}
}

// failing returns the fraction of failed RPCs, in millionths. It adds one successful RPC, so that
// the fraction is 0 without RPCs, and one half after a single RPC that failed.
func (o *outcomes) failing(now int64) uint32 {
	epoch := now/outcomeSpan + 1
	ok, failed := int64(1), int64(0)
	for i := range o.slots {
		if s := &o.slots[i]; epoch-s.epoch.Load() < outcomeSlots {
			ok += s.ok.Load()
			failed += s.failed.Load()
		}
	}
	return uint32(failed * 1e6 / (ok + failed))
}
