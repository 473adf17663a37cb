// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"slices"
	"testing"
	"time"
)

// playCallers is play for callers that make one RPC after the other.
// ends has the endpoints of the RPCs in flight by the time at which they end; the first time it is empty.
func (w *world) playCallers(t *testing.T, callers int, d time.Duration, ends map[time.Duration][]int32, takes func(index int32) time.Duration) (shares []float64) {
	s, list, rng := w.build(t), w.flat(0), newRand(uint64(w.time))
	shares = make([]float64, len(list))
	begun := 0.
	begin := func() {
		i := s.Pick(bg, "/s/m", rng.Uint64()).Index
		shares[i]++
		begun++
		at := (w.time + takes(i) + time.Duration(rng.Int64N(int64(time.Millisecond)))).Truncate(100 * time.Microsecond)
		ends[at] = append(ends[at], i)
	}
	if len(ends) == 0 {
		for range callers {
			begin()
		}
	}
	for end := w.time + d; w.time < end; {
		w.time += 100 * time.Microsecond
		now := ends[w.time]
		delete(ends, w.time)
		for _, i := range now {
			list[i].FinishTimed(CallOK)
		}
		for range now {
			begin()
		}
	}
	for i := range shares {
		shares[i] /= begun
	}
	return shares
}

// In small fleets with many RPCs in flight, a client finds within two seconds that an endpoint has become
// 26 times slower, although it had thousands of fast RPCs before: after that the slow one is not
// even the 99.9th percentile, unless nearly all RPCs wait for the only other endpoint. It has its
// share again within 15 s of its recovery.
func TestLeastLatencySlowPodCallers(t *testing.T) {
	for _, x := range []struct {
		endpoints int
		limit     float64
	}{{2, .005}, {3, .002}, {5, .001}, {10, .001}} {
		w := latencyWorld(zone("a", 1, endpoints(0, slices.Repeat([]uint32{1}, x.endpoints)...)))
		ends := map[time.Duration][]int32{}
		healthy := func(int32) time.Duration { return 8 * time.Millisecond }
		slow := func(i int32) time.Duration {
			return 8*time.Millisecond + max(0, time.Duration(1-i))*200*time.Millisecond
		}
		w.playCallers(t, 32, 12*time.Second, ends, healthy)
		w.playCallers(t, 32, 2*time.Second, ends, slow)
		if share := w.playCallers(t, 32, 20*time.Second, ends, slow)[0]; share > x.limit {
			t.Errorf("%d endpoints: the slow one has a share of %.3f %%, want at most %.3f %%", x.endpoints, 100*share, 100*x.limit)
		}
		w.playCallers(t, 32, 15*time.Second, ends, healthy)
		want := 1 / float64(x.endpoints)
		if share := w.playCallers(t, 32, 5*time.Second, ends, healthy)[0]; share < .9*want || share > 1.1*want {
			t.Errorf("%d endpoints: 15 s after its recovery the slow one has a share of %.3f, want about %.3f", x.endpoints, share, want)
		}
	}
}
