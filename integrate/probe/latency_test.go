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
	best, result := buckets, int64(0)
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
		if d := abs(bucketOf(n) - k); ns != 0 && now-at <= int64(expiry) && d < best {
			best, result = d, ns
		}
	}
	return result
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
