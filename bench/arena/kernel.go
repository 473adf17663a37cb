// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/picker"
)

// A Kernel is a policy without channels: all clients' pickers. Kernels run only in fleets
// without connection changes. It is not safe for concurrent use.
type Kernel interface {
	// Pick returns the server for a client's next RPC, and an optional function to call when
	// the RPC ends.
	Pick(client int) (server int, done func(failed bool))
}

// A NewKernel makes the kernel of a policy. now returns the time of the run.
type NewKernel func(f *Fleet, servers []*Server, rng *rand.Rand, now func() time.Duration) (Kernel, error)

// simulate runs a fleet with a kernel against the same servers as channels do, as a list of
// events: about fifty times as fast.
func simulate(f *Fleet, p *Policy, seed uint64) (*Result, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if p.Kernel == nil {
		return nil, fmt.Errorf("arena: %s has no kernel", p)
	}
	clock := &simulation{}
	models := f.newServers(clock)
	reseed(seed)
	k, err := p.Kernel(f, models, rand.New(rand.NewPCG(seed, 4)), clock.now)
	if err != nil {
		return nil, err
	}
	if c, ok := k.(interface{ close() }); ok {
		defer c.close()
	}
	m := &machines{
		servers: models,
		stop:    func(i int, _ bool) { models[i].setDown(true) },
		start:   func(i int) { models[i].setDown(false) },
	}
	for _, e := range f.events(seed) {
		clock.after(e.At, func() { e.do(m) })
	}
	begin := cputime.Process()
	work := f.arrivals(seed)
	calls := make([]call, len(work))
	over := false
	for i := range work {
		calls[i].took = f.end() - work[i].at
	}
	var next func()
	i := 0
	next = func() {
		a, c := &work[i], &calls[i]
		c.attempts.Store(1)
		server, done := k.Pick(a.client)
		ended := false
		end := func(failed bool) {
			if ended || over {
				return
			}
			ended = true
			c.took, c.failed = clock.now()-a.at, failed
			if done != nil {
				done(failed)
			}
		}
		models[server].visit(a.zone)
		giveUp := models[server].submit(a.need, func(r refusal) { end(r != served) })
		if f.Timeout > 0 && !ended {
			clock.after(f.Timeout, func() {
				if !ended {
					giveUp()
					end(true)
				}
			})
		}
		if i++; i < len(work) {
			clock.after(work[i].at-clock.now(), next)
		}
	}
	if len(work) > 0 {
		clock.after(work[0].at, next)
	}
	clock.run(f.end())
	over = true
	r := score(f, seed, work, calls, models)
	r.Policy, r.Impl = p.Name, p.Impl
	r.CPU = float64((cputime.Process() - begin).Nanoseconds()) / 1e3 / float64(len(work))
	return r, nil
}

// randomKernel and oracleKernel are the anchors.
func randomKernel(f *Fleet, _ []*Server, rng *rand.Rand, _ func() time.Duration) (Kernel, error) {
	return kernelFunc(func(int) int { return rng.IntN(f.Servers) }), nil
}

func oracleKernel(f *Fleet, servers []*Server, rng *rand.Rand, _ func() time.Duration) (Kernel, error) {
	mean := f.mean()
	return kernelFunc(func(int) int {
		return shortest(len(servers), rng.IntN(len(servers)), func(i int) float64 { return servers[i].wait(mean) })
	}), nil
}

type kernelFunc func(client int) (server int)

// Pick implements Kernel.
func (k kernelFunc) Pick(client int) (int, func(bool)) { return k(client), nil }

// snapshots is the kernel of package picker's own policies, with a snapshot for each client.
// The weights of endpoints are the nominal speeds, or equal.
func snapshots(policy picker.Policy, weights bool) NewKernel {
	return func(f *Fleet, servers []*Server, rng *rand.Rand, now func() time.Duration) (Kernel, error) {
		k := &snapshotKernel{rng: rng}
		clock := picker.NewExactClock(func() int64 { return int64(now()) })
		for range f.Clients {
			c, err := newSnapshotClient(policy, servers, weights, clock)
			if err != nil {
				return nil, err
			}
			for range rng.IntN(len(servers)) { // clients start with different servers
				c.endpoints[c.snapshot.Pick(context.Background(), method, rng.Uint64()).Index].FinishTimed(picker.CallNotSent)
			}
			k.clients = append(k.clients, c)
		}
		return k, nil
	}
}

type snapshotKernel struct {
	rng     *rand.Rand
	clients []*snapshotClient
}

type snapshotClient struct {
	snapshot  *picker.Snapshot
	endpoints []*picker.EndpointState
	done      []func(failed bool) // by endpoint
}

// Pick implements Kernel.
func (k *snapshotKernel) Pick(client int) (int, func(bool)) {
	c := k.clients[client]
	r := c.snapshot.Pick(context.Background(), method, k.rng.Uint64())
	return int(r.Index), c.done[r.Index]
}

// newSnapshotClient returns a client with one locality of READY endpoints, the servers.
func newSnapshotClient(policy picker.Policy, servers []*Server, weights bool, clock *picker.Clock) (*snapshotClient, error) {
	c := &snapshotClient{}
	load, breaker := &picker.ClusterLoad{}, &picker.Breaker{}
	locality := picker.Locality{Weight: 1}
	state := picker.LocalityState{Load: load.Locality(locality.ID)}
	binding := picker.NewBinding(state.Load, breaker, policy.CountsInFlight())
	if policy.TimesRPCs() {
		binding = picker.NewTimedBinding(state.Load, breaker, clock)
	}
	var endpoints []picker.Endpoint
	for i, s := range servers {
		weight := uint32(1)
		if weights {
			weight = uint32(100 * s.Nominal)
		}
		endpoints = append(endpoints, picker.Endpoint{Addr: kernelAddr(i), Weight: weight})
		e := &picker.EndpointState{Connectivity: picker.Ready}
		e.Bind(binding)
		e.SetWeight(float64(weight))
		c.endpoints = append(c.endpoints, e)
		c.done = append(c.done, func(failed bool) {
			if failed {
				e.FinishTimed(picker.CallFailed)
			} else {
				e.FinishTimed(picker.CallOK)
			}
		})
	}
	state.Endpoints, locality.Endpoints = picker.StateSlice(c.endpoints), picker.ListOf(endpoints...)
	leaf := picker.Leaf{Name: target, Service: target, Policy: policy, MaxRequests: 1 << 30, Priorities: []picker.Priority{{Localities: []picker.Locality{locality}}}}
	cfg := &picker.Config{
		Routes:   []picker.Route{{Clusters: []picker.WeightedCluster{{Name: target, Weight: 1}}}},
		Clusters: []*picker.Cluster{{Name: target, Leaves: []picker.Leaf{leaf}}},
	}
	states := []picker.ClusterState{{Version: 1, Breaker: breaker, Overload: load.Overload(), Localities: []picker.LocalityState{state}}}
	var err error
	if c.snapshot, err = picker.Build(nil, cfg, states, picker.Env{Now: int64(time.Hour)}); err != nil {
		return nil, err
	}
	return c, c.snapshot.ClusterErr(0)
}
