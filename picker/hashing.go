// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"math/bits"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/ringhash"
)

// A hashing picks by the hash of the RPC (ring hash, Maglev). It combines a
// placement with the states of the endpoints. With these policies endpoints connect on demand.
// So the endpoint for an RPC may be IDLE, and the RPC has to wait for it instead of using
// another endpoint (A61).
type hashing struct {
	*placement
	header string // hashed instead of the route's hash policies (A76); empty means that the hash policies apply
	states []Connectivity
	bounds *bounds // nil if loads are not bounded
	fadeIn *fadeIn // nil if no host is in slow start

	notFailed   *view // hosts not in TRANSIENT_FAILURE
	ready       *view // READY hosts
	readyOrIdle *view // READY or IDLE hosts
	connecting  bool  // a host is CONNECTING
}

// randomHashes provides the hashes of RPCs that have nothing to hash. Each is drawn once per
// RPC rather than once per pick (A42). It must be safe for concurrent use.
type randomHashes interface {
	// Of returns the hash that is stored for the RPC of a context, or otherwise drawn, a random
	// word. It stores drawn if wait is true: the RPC has to wait for the host of drawn, and will
	// be picked again.
	Of(ctx context.Context, drawn uint64, wait bool) (hash uint64)
}

// hashing makes g pick by hash among the endpoints of in. before is the group's previous form,
// or nil.
func (b *builder) hashing(g, before *group, in *groupInput, _ *cluster, policy *Policy) error {
	spec, err := policy.Ring.spec(policy.Kind, b.env.RingCap)
	if err != nil {
		return err
	}
	h := &hashing{header: policy.Ring.RequestHeader}
	var old *placement
	if before != nil && before.hashing != nil {
		old = before.hashing.placement
	}
	if h.placement, err = place(old, spec, in.localities); err != nil {
		return err
	}
	g.rule, g.endpoints = byHash, appendStates(make(StateSlice, 0, in.endpoints.Len()), in.endpoints)
	if before != nil && before.hashing != nil && h.sameHosts(before.hashing) && slices.Equal(before.hashing.states, in.states) {
		old := before.hashing
		h.states, h.notFailed, h.ready, h.readyOrIdle = old.states, old.notFailed, old.ready, old.readyOrIdle
		h.connecting = old.connecting
	} else {
		h.states = slices.Clone(in.states)
		h.makeViews()
	}
	var previous *hashing
	if before != nil {
		previous = before.hashing
	}
	if h.fadeIn, err = b.fadeIn(h, previous, in, policy.SlowStart); err != nil {
		return err
	}
	h.bounds = newBounds(h.placement, policy.Ring.BalanceFactor, h.fadeIn)
	g.hashing = h
	return nil
}

// sameHosts reports whether each hash belongs to the same host in h and o.
func (h *hashing) sameHosts(o *hashing) bool { return h.ring == o.ring && h.table == o.table }

// notFailed is the set of the states other than TRANSIENT_FAILURE, as bits.
const notFailed = 1<<Ready | 1<<Idle | 1<<Connecting

// makeViews makes the three views. Equal sets of hosts share one view, and a view of all hosts
// of a ring is free (ringhash.Ring.Restrict).
func (h *hashing) makeViews() {
	var present uint8 // set of the states of the hosts
	for _, s := range h.states {
		present |= 1 << s
	}
	var made [16]*view // by the set of states of its hosts
	of := func(states uint8) *view {
		states &= present
		if made[states] == nil {
			made[states] = newView(h.placement, h.states, states)
		}
		return made[states]
	}
	h.notFailed = of(notFailed)
	h.ready = of(1 << Ready)
	h.readyOrIdle = of(1<<Ready | 1<<Idle)
	h.connecting = present&(1<<Connecting) != 0
}

// pick returns the outcome of an RPC with a hash, which depends on the first host on the ring
// that is not in TRANSIENT_FAILURE (A61), or on the host in its place during slow start. Does not allocate.
func (h *hashing) pick(hash uint64) (host int, outcome Outcome) {
	host, ok := h.notFailed.find(hash)
	if h.fadeIn != nil {
		host = h.fadeIn.host(hash, host)
	}
	switch {
	case !ok:
		return 0, Failed
	case h.states[host] == Ready:
		return host, Picked
	case h.states[host] == Idle:
		return host, QueueConnect
	default:
		return 0, Queue
	}
}

// pickAny returns the outcome of an RPC without a hash that may go to any host (A76), given a
// random word r: the first READY host on the ring, starting at r. The first IDLE host before
// it, if any, is connected, unless a host is already CONNECTING, so the hosts of a ring connect
// one by one. If no host is READY, the RPC waits for the CONNECTING host, or for that IDLE one.
//
// Each pick of the RPC uses another word. The RPC still waits for at most one connection, since
// the word only determines the start of the search (T-RING-6). Does not allocate.
func (h *hashing) pickAny(r uint64) (host int, outcome Outcome) {
	host, ready := h.ready.find(r)
	if h.fadeIn != nil {
		if warm := h.fadeIn.host(r, host); h.states[warm] == Ready {
			host = warm
		}
	}
	switch {
	case ready && (h.connecting || h.readyOrIdle == h.ready):
		return host, Picked
	case h.connecting:
		return 0, Queue
	}
	first, ok := h.readyOrIdle.find(r)
	switch {
	case !ok:
		return 0, Failed
	case !ready:
		return first, QueueConnect
	case h.states[first] == Ready:
		return host, Picked
	default:
		return host, PickedConnect
	}
}

// anywhere reports whether RPCs without a hash may go to any host, which applies to RPCs that
// lack the header of the policy (A76). For other RPCs a random word serves as the hash (A42).
// Then the ring's weights are the shares of the hosts from the first RPC on, and hosts connect
// independently: a host that is slow to connect delays only its own share. This requires the
// same word in each pick of an RPC. Drawing a new word until it points to a READY host would
// give the hosts that connected first more than their share, and would find IDLE hosts one
// after the other (√n of n on average).
func (h *hashing) anywhere(hashes randomHashes) bool { return h.header != "" || hashes == nil }

// pickByHash picks in group g of cluster c, whose rule is byHash. It does not count the RPC,
// which may have to wait.
func (s *Snapshot) pickByHash(ctx context.Context, route, cluster int32, c *cluster, g *group, r uint64) Result {
	h := g.hashing
	var host int
	var outcome Outcome
	hash, ok := s.requestHash(ctx, route, h.spec.fn, h.header)
	switch hashes := s.env.RandomHashes; {
	case ok:
		host, outcome = h.pick(hash)
	case h.anywhere(hashes):
		hash = draw(r, drawHash)
		host, outcome = h.pickAny(hash)
	default:
		drawn := draw(r, drawHash)
		host, outcome = h.pick(drawn)
		if hash = hashes.Of(ctx, drawn, outcome == Queue || outcome == QueueConnect); hash != drawn {
			host, outcome = h.pick(hash)
		}
	}
	switch outcome {
	case Queue, Failed:
		return Result{Outcome: outcome, Route: route, Cluster: cluster}
	case Picked, PickedConnect:
		if h.bounds != nil {
			host = h.balance(hash, host, c.breaker.InFlight(), g.endpoints, r)
		}
	}
	return Result{Outcome: outcome, Route: route, Cluster: cluster, Index: g.first + int32(host)}
}

// ConnectIndex returns the index of the endpoint to connect in addition to the picked one, for
// a Result of s with outcome PickedConnect. r is the random word of that pick. For other
// outcomes it returns -1. O(1).
func (s *Snapshot) ConnectIndex(result Result, r uint64) int32 {
	if result.Outcome != PickedConnect {
		return -1
	}
	c := s.clusters.At(int(result.Cluster))
	i := 0
	if c.alias != nil {
		i = c.alias.Pick(r)
	}
	g := &c.groups[i]
	host, _ := g.hashing.readyOrIdle.find(draw(r, drawHash))
	return g.first + int32(host)
}

// A view finds the host of a hash among a subset of the hosts of a placement: the first such
// host on the ring.
type view struct {
	ring       *ringhash.View // nil if the placement is a table
	*tableView                // nil if the placement is a ring
}

// A tableView is a view of a Maglev table. A table has no order of hosts, so the hash tries a
// few other slots. If no host of these slots is in the view, it draws from all hosts of the
// view. Other hashes keep their hosts while most hosts are in the view, and the cost is
// constant regardless of the number of missing hosts. Envoy instead builds a table of the
// remaining hosts, which takes milliseconds (BenchmarkBuildHash, change=weight) and moves some
// of the other hashes.
type tableView struct {
	table  *ringhash.Maglev
	member []bool  // by host
	list   []int32 // of the members
}

const tableProbes = 8

// newView returns the view of the hosts in some states, a set of bits.
func newView(p *placement, states []Connectivity, of uint8) *view {
	member := make([]bool, len(states))
	var list []int32
	for i, s := range states {
		if of&(1<<s) != 0 {
			member[i] = true
			if p.table != nil {
				list = append(list, int32(i))
			}
		}
	}
	if p.ring != nil {
		return &view{ring: p.ring.Restrict(member)}
	}
	return &view{tableView: &tableView{p.table, member, list}}
}

// find returns the host of a hash. ok is false if the view has no hosts. O(1); does not
// allocate.
func (v *view) find(hash uint64) (host int, ok bool) {
	if v.ring != nil {
		return v.ring.Pick(hash)
	}
	return v.probe(hash)
}

func (v *tableView) probe(hash uint64) (host int, ok bool) {
	if len(v.list) == 0 {
		return 0, false
	}
	for k := range tableProbes {
		if host = v.table.Pick(ringhash.Probe(hash, k)); v.member[host] {
			return host, true
		}
	}
	k, _ := bits.Mul64(ringhash.Probe(hash, tableProbes), uint64(len(v.list)))
	return int(v.list[k]), true
}

// bounds limit the RPCs in flight of each host of a hashing to its share of all RPCs times a
// factor (Envoy's hash_balance_factor), so that a popular hash does not overload its host. An
// RPC whose host is full goes to the host of another attempt of its hash (ringhash.Probe).
//
// The total is that of the circuit breaker, as in Envoy. A count for the group would cost each
// RPC two additions. If several channels share the breaker, the bounds of each are wider than
// necessary.
type bounds struct {
	factor uint64   // percent
	shares []uint32 // by host, in units of 2^-32; a host with all of the weight has 2^32-1
}

// The number of attempts to place an RPC whose host is full. The first attempts depend on its
// hash only, so the overflow of a popular hash goes to the same few hosts in all clients. The
// remaining attempts are random. With two thirds of the hosts full, the worst case with a
// factor of 150, all but one RPC in 600 find a host with room.
const (
	fixedProbes  = 8
	randomProbes = 8
)

// newBounds returns the bounds for a factor in percent, or nil for factor 0. The shares are smaller during the
// slow start f, which may be nil. O(hosts) in each Build after a change of states, which saves picks a division.
func newBounds(p *placement, factor uint32, f *fadeIn) *bounds {
	if factor == 0 {
		return nil
	}
	b := &bounds{factor: uint64(factor), shares: make([]uint32, len(p.hosts))}
	total := uint64(0)
	for i, h := range p.hosts {
		total += f.weight(i, h.Weight)
	}
	for i, h := range p.hosts {
		b.shares[i] = uint32(min(f.weight(i, h.Weight)<<32/total, 1<<32-1))
	}
	return b
}

// limit returns the maximum number of RPCs in flight of host while all hosts have total: its
// share of factor times total, including the RPC being picked, rounded up, at least one.
func (b *bounds) limit(host int, total int64) int64 {
	scaled := (uint64(min(max(total, 0), 1<<31)+1)*b.factor + 99) / 100
	scaled = min(scaled, 1<<31)
	return max(int64((scaled*uint64(b.shares[host])+(1<<32-1))>>32), 1)
}

// balance returns host, which is READY, if it has room; otherwise the first host with room
// among other attempts to place hash; otherwise the least loaded of these hosts. total is the
// number of RPCs in flight, and r a random word. O(1); does not allocate.
func (h *hashing) balance(hash uint64, host int, total int64, endpoints []*EndpointState, r uint64) int {
	load := int64(endpoints[host].inFlight.Load())
	limit := h.bounds.limit(host, total)
	for k := 1; load > limit && k <= fixedProbes+randomProbes; k++ {
		if k == fixedProbes+1 {
			hash = draw(r, drawProbe)
		}
		other, ok := h.ready.find(ringhash.Probe(hash, k))
		if !ok || other == host {
			continue
		}
		otherLoad, otherLimit := int64(endpoints[other].inFlight.Load()), h.bounds.limit(other, total)
		if otherLoad*limit < load*otherLimit {
			host, load, limit = other, otherLoad, otherLimit
		}
	}
	return host
}

// requestHash returns the hash of an RPC, computed with fn: the explicit hash of the RPC;
// otherwise the hash of header, if header is not empty (A76); otherwise the hash by the route's
// hash policies (A42, T-RING-6). ok is false if the RPC has nothing to hash: see anywhere.
//
// It does not allocate unless the header hook does, a header has several values, or a hash
// policy rewrites it.
func (s *Snapshot) requestHash(ctx context.Context, route int32, fn ringhash.Func, header string) (hash uint64, ok bool) {
	if hash, ok := s.env.RequestHash(ctx); ok {
		return hash, true
	}
	if header != "" {
		return s.headerHash(ctx, fn, &HashPolicy{Header: header})
	}
	if route < 0 || int(route) >= len(s.routes) {
		return 0, false
	}
	policies := s.routes[route].Hash
	for i := range policies {
		p := &policies[i]
		part, found := s.env.ChannelID, true
		if p.Header != "" {
			part, found = s.headerHash(ctx, fn, p)
		}
		if found {
			// Rotated, so that equal parts do not cancel out.
			hash, ok = bits.RotateLeft64(hash, 1)^part, true
		}
		if p.Terminal && ok {
			break
		}
	}
	return hash, ok
}

// headerHash returns the hash of the header that p names, if the RPC has it. Only headers
// visible to routes are hashed: no binary headers (T-RC-3), and a fixed content type (A28).
func (s *Snapshot) headerHash(ctx context.Context, fn ringhash.Func, p *HashPolicy) (hash uint64, ok bool) {
	if strings.HasSuffix(p.Header, "-bin") {
		return 0, false
	}
	values := contentType
	if p.Header != "content-type" {
		values = s.env.Header(ctx, p.Header)
	}
	if len(values) == 0 {
		return 0, false
	}
	value := values[0]
	if len(values) > 1 {
		value = strings.Join(values, ",")
	}
	if p.Rewrite != nil {
		value = p.rewrite(value)
	}
	return fn.Sum(value), true
}
