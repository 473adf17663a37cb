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

// T-CB-1, T-LRS-3: with every policy counts are exact at rest, though snapshots were
// replaced all the time, no RPC is above the limit, and none goes to an endpoint that is
// not READY.
func TestPickConcurrent(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		const goroutines = 4
		rounds := 4000
		if testing.Short() || raceEnabled {
			rounds = 500
		}
		tr := newTraffic(policy)
		tr.publish(t)
		var pickers, writer sync.WaitGroup
		for g := range goroutines {
			pickers.Go(func() { tr.pick(newRand(uint64(g)), rounds) })
		}
		var stop atomic.Bool
		writer.Go(func() {
			for i := int64(0); !stop.Load(); i++ {
				tr.change(i)
				tr.publish(t)
			}
		})
		pickers.Wait()
		stop.Store(true)
		writer.Wait()
		tr.check(t)
	})
}

// A traffic has goroutines that pick in a world while another one changes it.
type traffic struct {
	w       *world
	current atomic.Pointer[publishedWorld]

	outcomes       [Delegate + 1]atomic.Uint64
	results        [CallNotSent + 1]atomic.Uint64
	inFlight, over atomic.Int64
	notReady       atomic.Uint64 // picks of endpoints that are not READY
}

// A publishedWorld has a snapshot and the expected results of picks.
type publishedWorld struct {
	*Snapshot
	endpoints []*EndpointState
	states    []Connectivity
}

const trafficLimit = 3 // of the circuit breaker

// trafficKey is the context key of the header that is hashed.
type trafficKey struct{}

func newTraffic(policy Policy) *traffic {
	w := newWorld(zone("a", 1, endpoints(0, 1, 2, 3)), zone("b", 2, endpoints(3, 1, 1)), zone("c", 3, endpoints(5, 7)))
	w.leaf(0).Policy = policy
	w.leaf(0).MaxRequests = trafficLimit
	w.leaf(0).Drops = []Drop{{"x", 100000}}
	w.ready()
	w.cfg.Routes[0].Hash = []HashPolicy{{Header: "h"}}
	w.env.Header = func(ctx context.Context, _ string) []string {
		if h, _ := ctx.Value(trafficKey{}).(string); h != "" {
			return []string{h}
		}
		return nil
	}
	w.builder.start = rand.Uint64
	return &traffic{w: w}
}

// publish builds the world's next snapshot.
func (tr *traffic) publish(t *testing.T) {
	p := &publishedWorld{tr.w.build(t), tr.w.flat(0), nil}
	for _, e := range p.endpoints {
		s := e.Connectivity
		if e.Ejected && s == Ready {
			s = TransientFailure
		}
		p.states = append(p.states, s)
	}
	tr.current.Store(p)
}

// change changes all that can change without a new configuration.
func (tr *traffic) change(i int64) {
	for k, e := range tr.w.flat(0) {
		e.Connectivity = []Connectivity{Ready, Ready, Connecting, Ready, Idle}[(int(i)+k)%5]
		e.Ejected = (int(i)*3+k)%17 == 0
		e.StateSince = i
		e.SetWeight(float64(k + 1))
	}
	tr.w.env.Now = i + int64(time.Minute)
	tr.w.states[0].Version++
}

// pick makes RPCs, one after the other.
func (tr *traffic) pick(rng *rand.Rand, rounds int) {
	requests := []context.Context{bg} // one without a hash
	for i := range 8 {
		requests = append(requests, context.WithValue(bg, trafficKey{}, fmt.Sprint("key", i)))
	}
	for range rounds {
		p := tr.current.Load()
		result := p.Pick(requests[rng.IntN(len(requests))], "/s/m", rng.Uint64())
		tr.outcomes[result.Outcome].Add(1)
		switch result.Outcome {
		case Delegate:
			if rng.IntN(2) == 0 {
				p.Cancel(result)
				continue
			}
			result.Index = int32(rng.IntN(len(p.endpoints)))
			p.endpoints[result.Index].Begin()
		case Picked, PickedConnect:
			if p.states[result.Index] != Ready {
				tr.notReady.Add(1)
			}
		default:
			continue
		}
		if tr.inFlight.Add(1) > trafficLimit {
			tr.over.Add(1)
		}
		how := CallResult(rng.UintN(3))
		tr.results[how].Add(1)
		tr.inFlight.Add(-1)
		p.endpoints[result.Index].FinishTimed(how)
	}
}

// check compares all counters, at rest, with the recorded picks.
func (tr *traffic) check(t *testing.T) {
	if n := tr.notReady.Load(); n > 0 {
		t.Errorf("%d RPCs went to endpoints that were not READY", n)
	}
	if n := tr.over.Load(); n > 0 {
		t.Errorf("%d RPCs found more than %d in flight", n, trafficLimit)
	}
	var got LoadSnapshot
	for _, l := range tr.w.loads[0].Localities() {
		s := l.Snapshot()
		got = LoadSnapshot{got.Issued + s.Issued, got.OK + s.OK, got.Failed + s.Failed, got.InProgress + s.InProgress}
	}
	ok, failed := tr.results[CallOK].Load(), tr.results[CallFailed].Load()
	if want := (LoadSnapshot{ok + failed, ok, failed, 0}); got != want || ok == 0 {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if n := tr.w.loads[0].Drop("x").Load(); n != tr.outcomes[Dropped].Load() || n == 0 {
		t.Errorf("%d drops were counted, want %d", n, tr.outcomes[Dropped].Load())
	}
	if n := tr.w.loads[0].Overload().Load(); n != tr.outcomes[Overloaded].Load() {
		t.Errorf("%d refusals were counted, want %d", n, tr.outcomes[Overloaded].Load())
	}
	for i, e := range tr.w.flat(0) {
		if n := e.inFlight.Load(); n != 0 {
			t.Errorf("endpoint %d has %d RPCs in flight at rest", i, n)
		}
	}
	if n := tr.w.breakers[0].InFlight(); n != 0 {
		t.Errorf("the breaker has %d RPCs in flight at rest", n)
	}
}
