// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"slices"

	"github.com/xdslb/xdslb/ringhash"
)

// This file explains picks by hash: see pickByHash, of which it has each case as a
// distribution over the hosts.

// explainHash adds to x what picks by hash in the group come to.
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

// hashOdds are the probabilities of what a pick by hash comes to. Slices are by host, and
// nil if all are 0.
type hashOdds struct {
	picked      []float64
	waits       []float64 // for that host
	waitsForAny float64   // that is CONNECTING
	fails       float64
}

// oddsOf is pick: what an RPC with a hash comes to is certain, but for bounded loads.
func (h *hashing) oddsOf(hash uint64) (o hashOdds) {
	host, ok := h.notFailed.find(hash)
	if !ok {
		return hashOdds{fails: 1}
	}
	certain := make([]float64, len(h.hosts))
	certain[host] = 1
	return h.byState(certain)
}

// byState divides the RPCs that belong to hosts not in TRANSIENT_FAILURE by what becomes of
// them.
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

// oddsOfRandom is for RPCs without a hash: the two cases of pickByHash, the second of which
// is pickAny.
func (h *hashing) oddsOfRandom(anywhere bool) hashOdds {
	n := len(h.hosts)
	if !anywhere {
		if belong := h.notFailed.odds(n); belong != nil {
			return h.byState(belong)
		}
		return hashOdds{fails: 1}
	}
	if ready := h.ready.odds(n); ready != nil {
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

// odds returns the probability of each of n hosts that find returns it for a random hash;
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

// balanceOdds is balance: it moves what would go to hosts that are full. hash is nil for
// RPCs whose hash is random, and so are all their probes.
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
	// Each probe takes an RPC at a full host to a random one that is less full.
	probe := h.ready.odds(n)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareFloat(fullness[b], fullness[a]) }) // fullest first
	for range probes {
		leaving := 0. // probability of hosts that are full, and fuller than those of this class
		below := 1.   // of a probe that finds a host which is less full than those
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

// hashSources returns what requestHash made the hash of.
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
		case len(s.visible(ctx, p.Header)) > 0:
			sources = append(sources, "header "+p.Header)
		}
		if p.Terminal && sources != nil {
			break
		}
	}
	return sources
}

const maxOrder = 8 // of HashPlace.Order

// place returns where a hash leads in the group's ring or table, whatever the states.
func (g *group) place(hash uint64) HashPlace {
	h := g.hashing
	p := HashPlace{Table: h.table != nil}
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
