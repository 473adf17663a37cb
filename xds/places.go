// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/xdslb/xdslb/xds/resource"
)

// place is where a resource was in the latest response of its type. Servers keep the
// order as a rule, so that a resource is compared with what was in its place: its name
// need not be read, nor looked up. A place is 24 bytes.
type place struct {
	sum xxh3.Uint128
	sub *subscription
}

// maxGone is how many resources in a row may be gone from a response without the next
// ones losing their places.
const maxGone = 4

// addSame adds resource number i if one of the next places has the same.
func (p *pieces) addSame(typ resource.Type, i int, sum xxh3.Uint128) bool {
	for k := p.next; k < min(p.next+1+maxGone, len(p.latest)); k++ {
		if old := p.latest[k]; old.sum == sum {
			p.next = k + 1
			if p.seen == nil || p.first(typ, i, old.sub.entry.key.name) {
				p.places = append(p.places, old)
			}
			return true
		}
	}
	return false
}

// addChanged adds resource number i, which is not as it was.
func (p *pieces) addChanged(typ resource.Type, i int, it item) {
	inPlace := p.next < len(p.latest) && p.latest[p.next].sub.entry.key.name == it.name
	if inPlace {
		p.next++
	}
	if inPlace && p.seen == nil || p.first(typ, i, it.name) {
		it.at = len(p.places)
		p.places = append(p.places, place{})
		p.items = append(p.items, it)
	}
}

// first reports whether no resource before number i has its name. As long as all of them
// come in the order of the latest response, this need not be asked.
func (p *pieces) first(typ resource.Type, i int, name string) bool {
	if p.seen == nil {
		p.seen = make(map[string]struct{}, cap(p.places))
		for _, pl := range p.places {
			if pl.sub != nil {
				p.seen[pl.sub.entry.key.name] = struct{}{}
			}
		}
		for j := range p.items {
			p.seen[p.items[j].name] = struct{}{}
		}
	}
	return p.see(typ, i, name)
}

// sameLocked reports whether the cache still has the resources in pieces.places. If not, the places
// are dropped, and the response has to be split again.
func (r *response) sameLocked() bool {
	t := &r.server.types[r.typ]
	if len(r.latest) > 0 && t.places == nil {
		return false // one of them was dropped
	}
	for _, pl := range r.places {
		if pl.sub != nil && !r.inCacheLocked(pl.sub.entry, pl.sum) {
			t.places = nil
			return false
		}
	}
	return true
}

// applySameLocked is for the resources in pieces.places: what it takes for the others comes
// to little.
func (r *response) applySameLocked(t *subscriptions) {
	s := r.server
	for _, pl := range r.places {
		sub := pl.sub
		if sub == nil {
			continue
		}
		s.relation.status.Types[r.typ].Valid++
		if !sub.unsubscribing {
			r.wanted++
		}
		sub.answeredLocked()
		sub.received, sub.round = true, t.round
		e := sub.entry
		s.c.acceptLocked(e, acceptedVersion{e.latestLocked(), e.sum, r.version, s.cfg, r.at, nil})
		e.ttlTimer.StopLocked() // it came without a time to live
	}
}

// keepPlacesLocked remembers where resources are, but for those that are not in the cache.
func (t *subscriptions) keepPlacesLocked(places []place) {
	places = slices.DeleteFunc(places, func(pl place) bool { return pl.sub == nil })
	if len(places) < cap(places)/2 {
		places = slices.Clone(places)
	}
	t.places = places
}
