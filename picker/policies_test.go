// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// policies are one of each kind, with everything on.
var policies = []Policy{
	{Kind: PolicyEDF},
	{Kind: PolicyRoundRobin},
	{Kind: PolicyRingHash, Ring: &RingPolicy{MinSize: 100, MaxSize: 200, BalanceFactor: 120}},
	{Kind: PolicyMaglev, Ring: &RingPolicy{MinSize: 101, XXH64: true, BalanceFactor: 120}},
	{Kind: PolicyLeastRequest, Least: &LeastRequest{Choices: 3}, SlowStart: &SlowStart{Window: time.Hour, Aggression: 1}},
	{Kind: PolicyClientWRR, SlowStart: &SlowStart{Window: time.Hour, Aggression: 1}},
	{Kind: PolicyPickFirst},
	{Kind: PolicyCustom},
}

// eachPolicy runs a test for each policy in both arrangements.
func eachPolicy(t *testing.T, test func(t *testing.T, policy Policy)) {
	for _, policy := range policies {
		for _, flat := range []bool{true, false} {
			policy.Flat = flat
			t.Run(fmt.Sprintf("kind=%d/flat=%t", policy.Kind, flat), func(t *testing.T) { test(t, policy) })
		}
	}
}

// A50: an endpoint that is ejected gets no RPC though its connection is READY, and if
// all READY ones are ejected RPCs fail rather than wait.
func TestEjected(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		w := newWorld(zone("a", 1, endpoints(0, 1, 1)), zone("b", 1, endpoints(2, 1, 1)))
		w.leaf(0).Policy = policy
		w.leaf(0).MaxRequests = 1e9
		w.renew(0)
		rng := newRand(1)
		outcomes := func() (seen [Delegate + 1]int, picked [4]int) {
			w.states[0].Version++
			s := w.build(t)
			for range 200 {
				got := s.Pick(bg, "/s/m", rng.Uint64())
				seen[got.Outcome]++
				if got.Outcome == Picked {
					picked[got.Index]++
				}
			}
			return seen, picked
		}
		list := w.flat(0)
		for i, e := range list {
			e.Connectivity, e.Ejected = Ready, i != 2
		}
		seen, picked := outcomes()
		if policy.Kind == PolicyCustom {
			if seen[Delegate] != 200 {
				t.Errorf("outcomes %v with one READY, want Delegate", seen)
			}
		} else if picked[2] != 200 {
			t.Errorf("outcomes %v, picks %v, want all at endpoint 2", seen, picked)
		}
		list[2].Ejected = true
		if seen, _ := outcomes(); seen[Failed] != 200 {
			t.Errorf("outcomes %v with all ejected, want Failed", seen)
		}
		list[1].Connectivity = Connecting // of which being ejected says nothing
		if seen, _ := outcomes(); seen[Queue] != 200 {
			t.Errorf("outcomes %v with all ejected but one that is CONNECTING, want Queue", seen)
		}
	})
}

// T-CB-1, T-LRS-3: with every policy counts are exact when all is quiet, though
// snapshots were replaced all the time, and no RPC goes where it cannot.
func TestPoliciesConcurrent(t *testing.T) {
	type published struct {
		*Snapshot
		endpoints []*EndpointState
		states    []Connectivity
	}
	eachPolicy(t, func(t *testing.T, policy Policy) {
		const goroutines, limit = 4, 3
		rounds := 3000
		if testing.Short() || raceEnabled {
			rounds = 500
		}
		w := newWorld(zone("a", 1, endpoints(0, 1, 2, 3)), zone("b", 2, endpoints(3, 1, 1)), zone("c", 3, endpoints(5, 7)))
		w.leaf(0).Policy = policy
		w.leaf(0).MaxRequests = limit
		w.leaf(0).Drops = []Drop{{"x", 50000}}
		w.renew(0)
		for _, e := range w.flat(0) {
			e.Connectivity = Ready
		}
		w.cfg.Routes[0].Hash = []HashPolicy{{Header: "h"}}
		w.env.Header = func(ctx context.Context, _ string) []string {
			if h, _ := ctx.Value(t).(string); h != "" {
				return []string{h}
			}
			return nil
		}
		w.builder.start = rand.Uint64
		var (
			current         atomic.Pointer[published]
			counts          [Delegate + 1]atomic.Uint64
			issued, wrong   atomic.Uint64
			inFlight, over  atomic.Int64
			pickers, writer sync.WaitGroup
			stop            atomic.Bool
		)
		publish := func() {
			p := &published{w.build(t), w.flat(0), nil}
			for _, e := range p.endpoints {
				p.states = append(p.states, e.Connectivity)
			}
			current.Store(p)
		}
		publish()
		for g := range goroutines {
			pickers.Go(func() {
				rng := newRand(uint64(g))
				keys := []context.Context{bg}
				for i := range 8 {
					keys = append(keys, context.WithValue(bg, t, fmt.Sprint("key", i)))
				}
				for range rounds {
					p := current.Load()
					result := p.Pick(keys[rng.IntN(len(keys))], "/s/m", rng.Uint64())
					counts[result.Outcome].Add(1)
					switch result.Outcome {
					case Delegate:
						if rng.IntN(2) == 0 {
							p.Undo(result)
							continue
						}
						result.Index = int32(rng.IntN(len(p.endpoints)))
						p.endpoints[result.Index].Begin()
					case Picked, PickedWake:
						if p.states[result.Index] != Ready {
							wrong.Add(1)
						}
					default:
						continue
					}
					issued.Add(1)
					if inFlight.Add(1) > limit {
						over.Add(1)
					}
					inFlight.Add(-1)
					p.endpoints[result.Index].Finish(CallOK)
				}
			})
		}
		writer.Go(func() {
			for i := int64(0); !stop.Load(); i++ {
				for k, e := range w.flat(0) {
					e.Connectivity = []Connectivity{Ready, Ready, Connecting, Ready, Idle}[(int(i)+k)%5]
					e.Ejected = (int(i)*3+k)%17 == 0
					if e.Ejected && e.Connectivity == Ready {
						e.Connectivity = TransientFailure // to tell pickers
					}
					e.ReadySince = i
					e.SetWeight(float64(k + 1))
				}
				w.env.Now = i + int64(time.Minute)
				w.states[0].Version++
				publish()
			}
		})
		pickers.Wait()
		stop.Store(true)
		writer.Wait()
		if wrong.Load() > 0 || over.Load() > 0 {
			t.Errorf("%d RPCs went to endpoints that were not READY, %d were above the limit", wrong.Load(), over.Load())
		}
		var got uint64
		for _, l := range w.loads[0].Localities() {
			s := l.Snapshot()
			if got += s.OK; s.Issued != s.OK {
				t.Errorf("a locality counted %+v at the end", s)
			}
		}
		if got != issued.Load() || got == 0 {
			t.Errorf("%d RPCs were counted, want %d", got, issued.Load())
		}
		for i, e := range w.flat(0) {
			if n := e.inFlight.Load(); n != 0 {
				t.Errorf("endpoint %d has %d RPCs in flight at the end", i, n)
			}
		}
		if n := w.breakers[0].InFlight(); n != 0 {
			t.Errorf("%d RPCs are in flight at the end", n)
		}
		if n := w.loads[0].Drop("x").Load(); n != counts[Dropped].Load() {
			t.Errorf("%d drops were counted, want %d", n, counts[Dropped].Load())
		}
	})
}
