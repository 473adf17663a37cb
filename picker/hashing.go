// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"math/bits"
	"slices"

	"github.com/xdslb/xdslb/ringhash"
)

// A hashing picks by the hash of the RPC (PolicyRingHash, PolicyMaglev): a
// placement, and what the endpoints' states make of it. Other than with any other
// policy, endpoints are not connected before they are needed, so an RPC may come
// to one that is IDLE, and must wait for it rather than go elsewhere (A61).
type hashing struct {
	*placement
	header string // to be hashed whatever the route says (A76)
	states []Connectivity
	load   *bounds // nil if there are none

	alive   *detour // hosts not in TRANSIENT_FAILURE
	ready   *detour // hosts that are READY
	prompt  *detour // hosts that are READY or IDLE
	waiting bool    // a host is CONNECTING
}

// hashing makes g a hashing of p. before is the group's last form, or nil.
func (b *builder) hashing(g *group, before *group, p *pool, policy *Policy) error {
	spec, err := policy.Ring.spec(policy.Kind, b.env.RingCap)
	if err != nil {
		return err
	}
	h := &hashing{header: policy.Ring.RequestHeader}
	var was *placement
	if before != nil && before.hashing != nil {
		was = before.hashing.placement
	}
	if h.placement, err = place(was, spec, p.localities); err != nil {
		return err
	}
	g.rule, g.endpoints = byHash, p.endpoints
	if before != nil && before.hashing != nil && h.sameHosts(before.hashing) && slices.Equal(before.hashing.states, p.states) {
		old := before.hashing
		h.states, h.alive, h.ready, h.prompt, h.waiting = old.states, old.alive, old.ready, old.prompt, old.waiting
	} else {
		h.states = slices.Clone(p.states)
		h.detours()
	}
	h.load = newBounds(h.placement, policy.Ring.BalanceFactor)
	g.hashing = h
	return nil
}

// sameHosts reports whether hashes belong to the same hosts in h and o.
func (h *hashing) sameHosts(o *hashing) bool { return h.ring == o.ring && h.table == o.table }

// detours makes the three detours. Those that come to the same are one, and with
// all hosts in one state it is no detour at all.
func (h *hashing) detours() {
	var present uint8 // states that hosts are in
	for _, s := range h.states {
		present |= 1 << s
	}
	var made [16]*detour // by states that it leads to
	to := func(states uint8) *detour {
		states &= present
		if made[states] == nil {
			made[states] = newDetour(h.placement, h.states, states)
		}
		return made[states]
	}
	h.alive = to(1<<Ready | 1<<Idle | 1<<Connecting)
	h.ready = to(1 << Ready)
	h.prompt = to(1<<Ready | 1<<Idle)
	h.waiting = present&(1<<Connecting) != 0
}

// seek returns the outcome of an RPC with a hash: that of the first host on the
// ring that is not in TRANSIENT_FAILURE (A61). Does not allocate.
func (h *hashing) seek(hash uint64) (host int, outcome Outcome) {
	host, ok := h.alive.find(hash)
	switch {
	case !ok:
		return 0, Failed
	case h.states[host] == Ready:
		return host, Picked
	case h.states[host] == Idle:
		return host, Wake
	default:
		return 0, Queue
	}
}

// seekAny returns the outcome of an RPC without the header that A76 has hashed,
// hash being a random word: the first host on the ring that is READY. An IDLE one
// on the way is woken, unless a host is CONNECTING already, so that the ring comes
// up one by one; if none is READY the RPC waits for it. Does not allocate.
func (h *hashing) seekAny(hash uint64) (host int, outcome Outcome) {
	host, ready := h.ready.find(hash)
	first, prompt := h.prompt.find(hash)
	switch {
	case h.waiting && ready:
		return host, Picked
	case h.waiting:
		return 0, Queue
	case !prompt:
		return 0, Failed
	case !ready:
		return first, Wake
	case first == host:
		return host, Picked
	default:
		return host, PickedWake
	}
}

// seek finds the endpoint of group g of cluster c that an RPC's hash leads to. The
// RPC is not counted yet: it may have to wait.
func (s *Snapshot) seek(ctx context.Context, route, cluster int32, c *cluster, g *group, r uint64) Result {
	h := g.hashing
	var host int
	var outcome Outcome
	hash, ok := s.requestHash(ctx, route, h.spec.fn, h.header)
	if !ok {
		hash = draw(r, drawHash)
	}
	if ok || h.header == "" {
		host, outcome = h.seek(hash)
	} else {
		host, outcome = h.seekAny(hash)
	}
	switch outcome {
	case Queue, Failed:
		return Result{Outcome: outcome, Route: route, Cluster: cluster}
	case Picked, PickedWake:
		if h.load != nil {
			host = h.balance(hash, host, c.breaker.InFlight(), g.endpoints, r)
		}
	}
	return Result{Outcome: outcome, Route: route, Cluster: cluster, Index: g.first + int32(host)}
}

// Asleep returns the index of the endpoint that is to be connected besides the one
// that was picked, of a Result of s with outcome PickedWake. r is the random word of
// that pick. Of other outcomes it is -1. O(1).
func (s *Snapshot) Asleep(result Result, r uint64) int32 {
	if result.Outcome != PickedWake {
		return -1
	}
	c := s.clusters[result.Cluster]
	i := 0
	if c.alias != nil {
		i = c.alias.Pick(r)
	}
	g := &c.groups[i]
	host, _ := g.hashing.prompt.find(draw(r, drawHash))
	return g.first + int32(host)
}

// A detour leads each hash to the first of some hosts that its way round the ring
// comes to.
type detour struct {
	view *ringhash.View // nil if the placement is a table
	*tableDetour
}

// tableDetour is a detour in a Maglev table. There is no way round a table, so the
// hash jumps to other places in it, and if these few jumps do not find one of the
// hosts either, takes its pick of all that there are. That keeps other hashes
// where they are while most hosts are up, and costs the same however many are
// down. To make a table of those hosts instead, as Envoy does, takes milliseconds
// (BenchmarkBuildHash, change=weight) and moves some of the other hashes.
type tableDetour struct {
	table  *ringhash.Maglev
	member []bool
	list   []int32
}

const tableJumps = 8

// newDetour returns the detour to hosts in any of some states, a set of bits.
func newDetour(p *placement, states []Connectivity, to uint8) *detour {
	member := make([]bool, len(states))
	var list []int32
	for i, s := range states {
		if to&(1<<s) != 0 {
			member[i] = true
			if p.table != nil {
				list = append(list, int32(i))
			}
		}
	}
	if p.ring != nil {
		return &detour{view: p.ring.Restrict(member)}
	}
	return &detour{tableDetour: &tableDetour{p.table, member, list}}
}

// find returns the host that a hash leads to. ok is false if there is none. O(1);
// does not allocate.
func (d *detour) find(hash uint64) (host int, ok bool) {
	if d.view != nil {
		return d.view.Pick(hash)
	}
	return d.jump(hash)
}

func (d *tableDetour) jump(hash uint64) (host int, ok bool) {
	if len(d.list) == 0 {
		return 0, false
	}
	for k := range tableJumps {
		if host = d.table.Pick(ringhash.Probe(hash, k)); d.member[host] {
			return host, true
		}
	}
	k, _ := bits.Mul64(ringhash.Probe(hash, tableJumps), uint64(len(d.list)))
	return int(d.list[k]), true
}
