// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkContended measures RPCs through the snapshot by threads that do nothing else, at the same
// time. Each has a goroutine. They make bursts of 10,000 operations, and only bursts count in which all
// threads were running: on a busy machine, wall time would otherwise include the time in which a thread
// did not run, and no contention meanwhile. The result is the median of the bursts, per operation and thread.
// impl=addition is one atomic addition to a shared word, impl=round_robin is that and an index.
// With the build tag purego, counters have no stripes.
func BenchmarkContended(b *testing.B) {
	type op func(n int)
	states := make([]*EndpointState, 10)
	var next atomic.Uint64
	list := []struct {
		name string
		op   op
	}{
		{"impl=addition", func(n int) {
			for range n {
				next.Add(1)
			}
		}},
		{"impl=round_robin", func(n int) {
			var e *EndpointState
			for range n {
				e = states[next.Add(1)%uint64(len(states))]
			}
			if e != nil {
				panic("the endpoints are nil")
			}
		}},
	}
	for _, localities := range []int{1, 3} {
		for _, limited := range []bool{true, false} {
			w := benchWorld(localities, 10*localities, 0, false)
			if !limited {
				w.unlimit()
			}
			s, states := w.build(b), w.flat(0)
			list = append(list, struct {
				name string
				op   op
			}{fmt.Sprintf("impl=ours/localities=%d/limited=%v", localities, limited), func(n int) {
				for range n {
					var r uint64
					if s.NeedsRandom() {
						r = rand.Uint64()
					}
					if result := s.Pick(bg, "/package.Service/Method", r); result.Outcome == Picked {
						states[result.Index].Finish(CallOK)
					}
				}
			}})
		}
	}
	for _, test := range list {
		for threads := 1; threads <= min(2, runtime.NumCPU()); threads++ {
			b.Run(fmt.Sprintf("%s/threads=%d", test.name, threads), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
				found := contend(threads, max(20, b.N/burst), test.op)
				b.ReportMetric(float64(found.Nanoseconds())/burst, "ns/op")
			})
		}
	}
}

const burst = 10_000

// contend makes bursts on so many threads until that many are valid, or for fifty times as many, and
// returns their median, or 0 if none is valid.
func contend(threads, bursts int, op func(n int)) time.Duration {
	var (
		arrived = make([]atomic.Int64, threads) // the round that a thread has begun to wait for
		begun   = make([]time.Duration, threads)
		ended   = make([]time.Duration, threads)
		origin  = time.Now()
		enough  atomic.Bool
		wg      sync.WaitGroup
		valid   []time.Duration
	)
	// meet waits until all threads have arrived.
	meet := func(me int, round int64) {
		arrived[me].Store(round)
		for i := range arrived {
			for spins := 0; arrived[i].Load() < round; spins++ {
				if spins > 1<<14 {
					runtime.Gosched()
				}
			}
		}
	}
	for me := range threads {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for round := range 50 * int64(bursts) {
				if meet(me, 2*round+1); enough.Load() {
					return
				}
				begun[me] = time.Since(origin)
				op(burst)
				ended[me] = time.Since(origin)
				meet(me, 2*round+2)
				if me > 0 {
					continue
				}
				first, last := slices.Min(begun), slices.Max(ended)
				if together := slices.Min(ended) - slices.Max(begun); together > (last-first)*3/4 {
					for i := range begun {
						valid = append(valid, ended[i]-begun[i])
					}
					enough.Store(len(valid) >= bursts*threads)
				}
			}
		})
	}
	wg.Wait()
	if len(valid) == 0 {
		return 0
	}
	slices.Sort(valid)
	return valid[len(valid)/2]
}
