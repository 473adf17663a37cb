// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
)

// This file is zone-aware routing of policies that time RPCs: a zone is left as far as it is slower than
// other zones.
//
// An RPC gets a zone by its share (zoneShares). It leaves the zone with a probability that grows with the
// ratio of the zone's latency to that of all other zones: from 0 at zoneMargin to 1 at twice of that. It
// then goes to one of the other zones, drawn by their numbers of endpoints, unless that one is slower
// still. So differences below zoneMargin move no RPC. Above, the RPCs that leave make other zones
// slower and their own one faster, and the probability follows: a zone is neither left nor returned
// to as a whole, so that nothing oscillates.
//
// The latency of a zone is that of this client's RPCs in the recent decay time, by Little's law as
// for an endpoint (timing), with failures as time lost. It includes RPCs that hang. RPCs in flight
// are not compared, since the own zone has more of them. A zone without RPCs counts as average.
// So RPCs explore other zones: the first one, and then one in the time of zoneEvery RPCs, or in
// half of the decay time if that is longer.
const (
	zoneMargin = 2
	zoneEvery  = 64
	zonePrior  = .75 // RPCs with the mean latency of all zones
	zoneKnown  = 4   // RPCs, by which the other zones are known without exploration
	zoneSweep  = 4   // endpoints whose results are collected at a time
)

// zones are the zones of a cluster in which RPCs may leave their zone.
type zones struct {
	list  []timedZone
	total int // number of candidates
	peers *peers
	*zonesState
}

type timedZone struct {
	latency *leastLatency
	probes  *ProbeGroup // nil unless the policy probes
	load    *Load
	first   int32 // of the group
	*zoneState
}

// A zonesState is the part of zones that survives changes of the endpoints. The goroutine that sets due to
// renewing owns the other fields, and those of the zones.
type zonesState struct {
	due      atomic.Int64 // when to evaluate the zones
	at       int64        // of the last evaluation
	explored int64
	swept    int // candidates so far
}

// A zoneState has the latency of a zone.
type zoneState struct {
	// Since the last evaluation: the integral of RPCs in flight, and ended RPCs as in timing.results.
	area, results atomic.Uint64
	latency       atomic.Uint32 // float32; 0 if unknown
	leave         atomic.Uint64 // probability of leaving the zone, in units of 2^-64

	busy, ended, failing float64 // decaying, as in timing
}

// zoned is the place of a group in zones.
type zoned struct {
	zones *zones
	zone  int // index in zones
}

// joinZones lets RPCs of the groups of c, which time RPCs, leave their zone. before is from an earlier form
// of c, or nil.
func (c *cluster) joinZones(before *zones) {
	z := &zones{list: make([]timedZone, len(c.groups)), peers: c.peers}
	if before == nil {
		before = &zones{zonesState: new(zonesState)}
	}
	z.zonesState = before.zonesState
	for i := range c.groups {
		g := &c.groups[i]
		g.rule, g.zoned = byZones, &zoned{z, i}
		l := g.latency
		if g.probes != nil {
			l = g.probes.least
		}
		state := new(zoneState)
		if k := slices.IndexFunc(before.list, func(o timedZone) bool { return o.load == g.load }); k >= 0 {
			state = before.list[k].zoneState
		}
		own := *c.peers
		own.zone, l.peers = state, &own
		z.list[i], z.total = timedZone{l, g.probes, g.load, g.first, state}, z.total+len(l.candidates)
	}
	c.zones = z
}

// add adds the results of an endpoint.
func (s *zoneState) add(busy float64, results uint64) {
	s.area.Add(uint64(busy))
	s.results.Add(results)
}

// pickZoned returns the index of an endpoint of any zone, relative to the group, and counts the RPC there.
// Does not allocate.
func (g *group) pickZoned(r uint64) int32 {
	z := g.zoned.leaves(r)
	if z == nil {
		z = &g.zoned.zones.list[g.zoned.zone]
	}
	if z.probes != nil {
		return z.probes.pick(r) + z.first - g.first
	}
	return z.latency.pick(r) + z.first - g.first
}

// leaves returns the zone to which an RPC with the random word r goes instead, or nil.
func (in *zoned) leaves(r uint64) *timedZone {
	z, own := in.zones, &in.zones.list[in.zone]
	now := own.latency.clock.now()
	if now >= z.due.Load() && z.evaluateIfDue(now, in.zone) {
		return z.other(in.zone, r)
	}
	if p := own.leave.Load(); p > 0 && draw(r, drawLeave) < p {
		if other := z.other(in.zone, r); other.zoneLatency() < own.zoneLatency() {
			return other
		}
	}
	return nil
}

// other draws one of the zones except i.
func (z *zones) other(i int, r uint64) *timedZone {
	k, _ := bits.Mul64(draw(r, drawZone), uint64(z.total-len(z.list[i].latency.candidates)))
	for j := range z.list {
		n := uint64(len(z.list[j].latency.candidates))
		if j == i {
			continue
		}
		if k < n {
			return &z.list[j]
		}
		k -= n
	}
	return nil // unreachable
}

func (s *zoneState) zoneLatency() float32 { return math.Float32frombits(s.latency.Load()) }

// evaluateIfDue evaluates the zones if it is due, unless another goroutine does. It reports whether the RPC
// for which it is called, in zone i, should explore another zone.
func (z *zones) evaluateIfDue(now int64, i int) (explore bool) {
	due := z.due.Load()
	if now < due || !z.due.CompareAndSwap(due, renewing) {
		return false
	}
	known := z.evaluate(now)
	others := known - z.list[i].ended
	since := now - z.explored
	if z.explored == 0 || others < zoneKnown && float64(since) >= z.peers.decay/2 && float64(since)*known >= zoneEvery*z.peers.decay {
		explore, z.explored = true, now
	}
	z.due.Store(now + z.peers.interval)
	return explore
}

// evaluate computes the latencies of the zones, and returns the number of recent RPCs. O(zones).
func (z *zones) evaluate(now int64) (known float64) {
	for k := range min(zoneSweep, z.total) {
		k = (z.swept + k) % z.total
		for i := range z.list {
			l := z.list[i].latency
			if n := len(l.candidates); k >= n {
				k -= n
				continue
			}
			l.candidates[k].endpoint.binding.timing.renewIfDue(now, l.peers, false)
			break
		}
	}
	z.swept = (z.swept + zoneSweep) % z.total
	keep := math.Exp(-float64(max(now-z.at, 0)) / z.peers.decay)
	z.at = max(now, z.at)
	busy, ended := unmeasuredWeight*units(unmeasured), unmeasuredWeight
	for i := range z.list {
		s := z.list[i].zoneState
		results := s.results.Swap(0)
		s.busy = s.busy*keep + float64(s.area.Swap(0))
		s.ended = s.ended*keep + float64(results&(failedOne-1))
		s.failing = s.failing*keep + float64(results/failedOne)
		busy, ended, known = busy+s.busy, ended+s.ended, known+s.ended
	}
	mean := busy / ended
	estimate := func(busy, ended, failing float64) float64 {
		return (busy + (zonePrior+penalty*failing)*mean) / (max(ended-failing, 0) + zonePrior)
	}
	failing := 0.
	for i := range z.list {
		failing += z.list[i].failing
	}
	for i := range z.list {
		s := z.list[i].zoneState
		own := estimate(s.busy, s.ended, s.failing)
		others := estimate(busy-s.busy, ended-s.ended, failing-s.failing)
		s.latency.Store(math.Float32bits(float32(own)))
		leave := min(max(own/(zoneMargin*others)-1, 0), 1)
		s.leave.Store(uint64(leave * (1<<64 - 2048))) // the largest float64 below 1<<64
	}
	return known
}

// explainZoned adds the results of picks in the group, whose RPCs may leave its zone, to x. It does not
// consider exploration.
func (g *group) explainZoned(share float64, x *ClusterExplanation) {
	in, z := g.zoned, g.zoned.zones
	own := &z.list[in.zone]
	leave, stay := float64(own.leave.Load())/(1<<64), share
	for i := range z.list {
		if other := &z.list[i]; i != in.zone && leave > 0 && other.zoneLatency() < own.zoneLatency() {
			part := share * leave * float64(len(other.latency.candidates)) / float64(z.total-len(own.latency.candidates))
			other.explain(part, x)
			stay -= part
		}
	}
	own.explain(stay, x)
}

func (z *timedZone) explain(share float64, x *ClusterExplanation) {
	g := group{first: z.first}
	if z.probes != nil {
		g.explainSamples(z.latency.candidates, z.probes.odds(), share, x)
	} else {
		g.explainSamples(z.latency.candidates, z.latency.odds(), share, x)
	}
}
