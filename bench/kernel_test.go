// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// kernel is a target with one cluster, in the hands of package picker alone:
// impl=ours without gRPC around it.
type kernel struct {
	cfg       *picker.Config
	states    []picker.ClusterState
	env       picker.Env
	snapshot  *picker.Snapshot
	endpoints []*picker.EndpointState // as Result.Index counts them
	timed     bool                    // latencies count
}

// newKernel has n endpoints in localities of equal size, all READY, with
// weights of the skew.
func newKernel(tb testing.TB, localities, n int, skew string, policy picker.Policy) *kernel {
	tb.Helper()
	leaf := picker.Leaf{Name: service, Service: service, Policy: policy, MaxRequests: 1_000_000, Priorities: []picker.Priority{{}}}
	load, breaker := &picker.ClusterLoad{}, &picker.Breaker{}
	state := picker.ClusterState{Version: 1, Breaker: breaker, Overload: load.Overload()}
	k := &kernel{timed: policy.TimesRPCs()}
	begin := time.Now()
	clock := picker.NewClock(func() int64 { return int64(time.Hour + time.Since(begin)) })
	weights := skewed(n, skew)
	for l := range localities {
		locality := picker.Locality{ID: picker.LocalityID{Zone: string(rune('a' + l))}, Weight: uint32(l + 1)}
		ls := picker.LocalityState{Load: load.Locality(locality.ID)}
		binding := picker.NewBinding(ls.Load, breaker, policy.CountsInFlight())
		if k.timed {
			binding = picker.NewTimedBinding(ls.Load, breaker, clock)
		}
		var list []picker.Endpoint
		for i := l * n / localities; i < (l+1)*n/localities; i++ {
			list = append(list, picker.Endpoint{Addr: endpointAddr(i), Weight: weights[i]})
			e := &picker.EndpointState{Connectivity: picker.Ready}
			e.Bind(binding)
			e.SetWeight(float64(weights[i]))
			k.endpoints = append(k.endpoints, e)
		}
		locality.Endpoints = picker.ListOf(list...)
		leaf.Priorities[0].Localities = append(leaf.Priorities[0].Localities, locality)
		ls.Endpoints = picker.StateSlice(k.endpoints[l*n/localities:])
		state.Localities = append(state.Localities, ls)
	}
	k.cfg = &picker.Config{
		Routes: []picker.Route{{
			Clusters: []picker.WeightedCluster{{Name: service, Weight: 1}},
			Hash:     []picker.HashPolicy{{Header: hashHeader}},
		}},
		Clusters: []*picker.Cluster{{Name: service, Leaves: []picker.Leaf{leaf}}},
	}
	k.states = []picker.ClusterState{state}
	k.env = picker.Env{Header: metadata.ValueFromOutgoingContext, RingCap: 8 << 20, Now: int64(time.Hour)}
	k.build(tb)
	return k
}

// build compiles the present state into the next snapshot.
func (k *kernel) build(tb testing.TB) {
	s, err := picker.Build(k.snapshot, k.cfg, k.states, k.env)
	if err == nil {
		err = s.ClusterErr(0)
	}
	kit.Must(tb, err)
	k.snapshot = s
}

// finish ends an RPC to an endpoint as a channel does.
func (k *kernel) finish(index int32) {
	if k.timed {
		k.endpoints[index].FinishTimed(picker.CallOK)
	} else {
		k.endpoints[index].Finish(picker.CallOK)
	}
}

// answers are for how many picks, in three localities of ten endpoints, one call of answer is
// enough: by default an answer is good for at most 64 of them.
const answers = 1000

// answer answers all pending probes with an idle endpoint. It expects that answers have been
// used since its last call.
func (k *kernel) answer() {
	for _, g := range k.snapshot.ProbeGroups(0) {
		g.Adopt(k.env.Now)
		g.Pool.Demand(g.Len())
		for i := range g.Len() {
			e, _ := g.Endpoint(i)
			g.Pool.Answer(e, picker.ProbeReport{Latency: time.Millisecond}, k.env.Now)
		}
	}
}

// flip takes the first endpoint down, or up again, and builds.
func (k *kernel) flip(tb testing.TB) {
	k.endpoints[0].Connectivity ^= picker.Ready ^ picker.TransientFailure
	k.states[0].Version++
	k.build(tb)
}

// skewed returns n weights: equal, drawn from 1 to 1000, or a thousand times as large for the
// first.
func skewed(n int, skew string) []uint32 {
	rng := newRand()
	weights := make([]uint32, n)
	for i := range weights {
		switch {
		case skew == "random":
			weights[i] = 1 + rng.Uint32N(1000)
		case skew == "one" && i == 0:
			weights[i] = 1000
		default:
			weights[i] = 1
		}
	}
	return weights
}

// newRand returns the generator of all inputs: they are the same in each run.
func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// sizes skips the sizes with a slow setup if -short is set.
func sizes(list ...int) []int {
	if !testing.Short() {
		return list
	}
	short := list[:0:0]
	for _, n := range list {
		if n <= 1000 {
			short = append(short, n)
		}
	}
	return short
}
