// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"slices"

	"github.com/xdslb/xdslb/ringhash"
)

// This file explains picks by hash. It has each case of pickByHash as a distribution over the
// hosts.

// explainHash adds the results of picks by hash in the group to x.
func (g *group) explainHash(ctx context.Context, s *Snapshot, route int32, c *cluster, share float64, x *ClusterExplanation) {
	h := g.hashing
	hash, known := s.requestHash(ctx, route, h.spec.fn, h.header)
	if x.Hash == nil {
		x.Hash = &HashExplanation{Known: known}
		if known {
			x.Hash.Hash, x.Hash.Sources = hash, s.hashSources(ctx, route, h.header)
		}
	}
	var o hashOdds
	if known {
		x.Hash.Places = append(x.Hash.Places, g.place(hash))
		o = h.oddsOf(hash)
	} else {
		o = h.oddsOfRandom(h.anywhere(s.env.RandomHashes))
	}
	if h.bounds != nil {
		if o.picked = slices.Clone(o.picked); known {
			h.balanceOdds(o.picked, c.breaker.InFlight(), g.endpoints, &hash)
		} else {
			h.balanceOdds(o.picked, c.breaker.InFlight(), g.endpoints, nil)
		}
	}
	x.Fails += share * o.fails
	for i := range h.hosts {
		e := x.at(g.first + int32(i))
		e.Weight = h.hosts[i].Weight
		if o.picked != nil {
			e.Share = share * o.picked[i]
		}
		if o.waits != nil {
			e.Waits = share * o.waits[i]
		}
		x.Picked += e.Share
		x.Waits += e.Waits
	}
	x.Waits += share * o.waitsForAny
}

// hashOdds are the probabilities of the results of a pick by hash. Slices are by host, and nil
// if all are 0.
type hashOdds struct {
	picked      []float64
	waits       []float64 // for the host
	waitsForAny float64   // for any CONNECTING host
	fails       float64
}

// oddsOf corresponds to pick. The result of an RPC with a hash is certain, except with bounded
// loads.
func (h *hashing) oddsOf(hash uint64) (o hashOdds) {
	host, ok := h.notFailed.find(hash)
	if !ok {
		return hashOdds{fails: 1}
	}
	if h.fadeIn != nil {
		host = h.fadeIn.host(hash, host)
	}
	certain := make([]float64, len(h.hosts))
	certain[host] = 1
	return h.byState(certain)
}

// byState distributes the RPCs that belong to hosts not in TRANSIENT_FAILURE by the states of
// the hosts.
func (h *hashing) byState(belong []float64) hashOdds {
	o := hashOdds{picked: make([]float64, len(belong)), waits: make([]float64, len(belong))}
	for i, p := range belong {
		if h.states[i] == Ready {
			o.picked[i] = p
		} else {
			o.waits[i] = p
		}
	}
	return o
}

// oddsOfRandom covers RPCs without a hash: the two cases of pickByHash, the second of which is
// pickAny.
func (h *hashing) oddsOfRandom(anywhere bool) hashOdds {
	n := len(h.hosts)
	if !anywhere {
		if belong := h.notFailed.odds(n); belong != nil {
			if h.fadeIn != nil {
				belong = h.fadeInOdds(belong, func(int) bool { return false })
			}
			return h.byState(belong)
		}
		return hashOdds{fails: 1}
	}
	if ready := h.ready.odds(n); ready != nil {
		if h.fadeIn != nil {
			ready = h.fadeInOdds(ready, func(host int) bool { return h.states[host] != Ready })
		}
		return hashOdds{picked: ready}
	}
	if h.connecting {
		return hashOdds{waitsForAny: 1}
	}
	if idle := h.readyOrIdle.odds(n); idle != nil {
		return hashOdds{waits: idle}
	}
	return hashOdds{fails: 1}
}

// odds returns for each of n hosts the probability that find returns it for a random hash, or
// nil if the view has no hosts.
func (v *view) odds(n int) []float64 {
	if v.ring != nil {
		if _, ok := v.ring.Pick(0); !ok {
			return nil
		}
		return v.ring.Arcs(n)
	}
	if len(v.list) == 0 {
		return nil
	}
	odds := v.table.Shares(n)
	missed := 0. // probability of a slot whose host is not in the view
	for i, p := range odds {
		if !v.member[i] {
			missed, odds[i] = missed+p, 0
		}
	}
	factor, left := 0., 1.
	for range tableProbes {
		factor, left = factor+left, left*missed
	}
	for i := range odds {
		odds[i] *= factor
	}
	for _, i := range v.list {
		odds[i] += left / float64(len(v.list))
	}
	return odds
}

// balanceOdds corresponds to balance: it moves the RPCs of hosts that are full. hash is nil for
// RPCs with a random hash, whose probes are then all random.
func (h *hashing) balanceOdds(odds []float64, total int64, endpoints []*EndpointState, hash *uint64) {
	n := len(odds)
	if !slices.ContainsFunc(odds, func(p float64) bool { return p > 0 }) {
		return
	}
	fullness := make([]float64, n) // above 1 is full
	for i := range fullness {
		fullness[i] = float64(endpoints[i].inFlight.Load()) / float64(h.bounds.limit(i, total))
	}
	probes := fixedProbes + randomProbes
	if hash != nil {
		probes = randomProbes
		host := slices.Index(odds, 1)
		odds[host] = 0
		for k := 1; fullness[host] > 1 && k <= fixedProbes; k++ {
			if other, ok := h.ready.find(ringhash.Probe(*hash, k)); ok && fullness[other] < fullness[host] {
				host = other
			}
		}
		odds[host] = 1
	}
	// Each probe moves an RPC from a full host to a random host that is less full.
	probe := h.ready.odds(n)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareFloat(fullness[b], fullness[a]) }) // fullest first
	for range probes {
		leaving := 0. // probability of full hosts that are fuller than this class
		below := 1.   // probability that a probe finds a host less full than those
		for begin := 0; begin < n; {
			end, staying := begin, 0.
			for ; end < n && fullness[order[end]] == fullness[order[begin]]; end++ {
				staying += odds[order[end]]
				below -= probe[order[end]]
			}
			full := fullness[order[begin]] > 1
			for _, i := range order[begin:end] {
				if full {
					odds[i] *= 1 - max(below, 0)
				}
				odds[i] += leaving * probe[i]
			}
			if full {
				leaving += staying
			}
			begin = end
		}
	}
}

// hashSources returns the inputs that requestHash hashed.
func (s *Snapshot) hashSources(ctx context.Context, route int32, header string) (sources []string) {
	if _, ok := s.env.RequestHash(ctx); ok {
		return []string{"request"}
	}
	if header != "" {
		return []string{"header " + header}
	}
	if route < 0 || int(route) >= len(s.routes) {
		return nil
	}
	for _, p := range s.routes[route].Hash {
		switch {
		case p.Header == "":
			sources = append(sources, "channel id")
		case len(s.visibleHeader(ctx, p.Header)) > 0:
			sources = append(sources, "header "+p.Header)
		}
		if p.Terminal && sources != nil {
			break
		}
	}
	return sources
}

const maxOrder = 8 // of hashPlace.Order

// place returns the position of a hash in the group's ring or table, independent of connection
// states.
func (g *group) place(hash uint64) hashPlace {
	h := g.hashing
	p := hashPlace{Table: h.table != nil}
	add := func(host int) (more bool) {
		if i := g.first + int32(host); !slices.Contains(p.Order, i) {
			p.Order = append(p.Order, i)
		}
		return len(p.Order) < maxOrder
	}
	if p.Table {
		p.Position, p.Size = h.table.Slot(hash), h.table.Len()
		for k := range tableProbes {
			add(h.table.Pick(ringhash.Probe(hash, k)))
		}
		return p
	}
	p.Position, p.Size = h.ring.Place(hash), h.ring.Len()
	for host := range h.ring.Walk(hash) {
		if !add(host) {
			break
		}
	}
	return p
}
