// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	last := -1
	for n := range int64(1 << 21) {
		k := bucketOf(n)
		if last >= 0 && k != last && topOf(last) != n-1 {
			t.Fatalf("bucket %d ends at %d, not at %d", last, topOf(last), n-1)
		}
		if k != last && k != last+1 || k >= buckets || n < exact && k != int(n) {
			t.Fatalf("bucketOf(%d) = %d after %d", n, k, last)
		}
		last = k
	}
	if last != buckets-1 || bucketOf(-1) != 0 {
		t.Errorf("the last bucket is %d of %d", last, buckets)
	}
}

// slowLatencies is latencies as a list.
type slowLatencies []struct {
	n, at int64
	ns    int64
}

func (s *slowLatencies) add(n, now int64, took time.Duration) {
	*s = append(*s, struct{ n, at, ns int64 }{n, now, int64(took)})
}

// at replays all RPCs of each bucket.
func (s slowLatencies) at(n, now int64) int64 {
	best, nearest, result := buckets, 0, int64(0)
	above := false
	for k := range buckets {
		ns, at := int64(0), int64(0)
		for _, r := range s {
			switch {
			case bucketOf(r.n) != k:
			case ns == 0 || r.at-at > int64(expiry):
				ns, at = r.ns, r.at
			default:
				ns, at = ns+(r.ns-ns)/share, r.at
			}
		}
		if ns == 0 || now-at > int64(expiry) {
			continue
		}
		above = above || k >= bucketOf(n)
		if d := abs(bucketOf(n) - k); d < best {
			best, nearest, result = d, k, ns
		}
	}
	if result == 0 || above {
		return result
	}
	top := int64(0)
	for bucketOf(top+1) <= nearest {
		top++
	}
	return int64(min(float64(result)*float64(n+1)/float64(top+1), float64(longest)))
}

func abs(n int) int { return max(n, -n) }

func TestLatenciesOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var fast latencies
		var slow slowLatencies
		now := int64(0)
		for range 100 {
			now += rng.Int64N(int64(expiry) / 8)
			n := rng.Int64N(1 << rng.IntN(8))
			if rng.IntN(2) == 0 {
				took := time.Duration(1000 + rng.Int64N(1e9))
				fast.add(n, now, took)
				slow.add(n, now, took)
			}
			if got, want := fast.at(n, now), slow.at(n, now); got != want {
				t.Fatalf("at(%d, %d) = %d, want %d", n, now, got, want)
			}
		}
	}
}

// TestLatencyOfQueue checks that the latency without a queue predicts the latency with one.
func TestLatencyOfQueue(t *testing.T) {
	var l latencies
	l.add(0, 0, 40*time.Millisecond)
	for n, want := range map[int64]time.Duration{0: 40 * time.Millisecond, 1: 80 * time.Millisecond, 4: 200 * time.Millisecond, 99: 4 * time.Second, 1 << 40: time.Hour} {
		if got := time.Duration(l.at(n, 0)); got != want {
			t.Errorf("with %d in flight it is %v, want %v", n, got, want)
		}
	}
	l.add(8, 0, 50*time.Millisecond) // eight workers: more in flight take hardly longer
	for n, want := range map[int64]time.Duration{4: 40 * time.Millisecond, 5: 50 * time.Millisecond, 8: 50 * time.Millisecond} {
		if got := time.Duration(l.at(n, 0)); got != want {
			t.Errorf("between two that are known, with %d in flight, it is %v, want %v", n, got, want)
		}
	}
}

func TestOutcomesOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var o outcomes
	type end struct {
		epoch int64
		ok    bool
	}
	var all []end
	now := int64(0)
	for range 2000 {
		now += rng.Int64N(outcomeSpan / 4)
		ok := rng.IntN(3) > 0
		o.count(now, ok)
		all = append(all, end{now / outcomeSpan, ok})
		good, bad := int64(1), int64(0)
		for _, e := range all {
			if now/outcomeSpan-e.epoch < outcomeSlots {
				if e.ok {
					good++
				} else {
					bad++
				}
			}
		}
		if got, want := o.failing(now), uint32(bad*1e6/(good+bad)); got != want {
			t.Fatalf("failing(%d) = %d, want %d", now, got, want)
		}
	}
	if got := o.failing(now + outcomeSpan*outcomeSlots); got != 0 {
		t.Errorf("long after it is %d", got)
	}
}

func TestCountingAllocates(t *testing.T) {
	l := NewLoad()
	now := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		now += 1e6
		l.outcomes.count(now, now%3 == 0)
		l.latencies.add(now%40, now, time.Millisecond)
		_, _ = l.latencies.at(now%40, now), l.outcomes.failing(now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
