// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"slices"

	"github.com/zeebo/xxh3"
)

// slot is the place of a resource in the latest response of its type. Servers usually keep the
// order, so a resource is compared with the one in its place before: if it is the same, its name is
// neither read nor looked up. A slot is 24 bytes.
type slot struct {
	sum xxh3.Uint128
	sub *subscription
}

// maxGone is the number of consecutive resources that may be gone from a response before the next
// ones lose their slots.
const maxGone = 4

// addSame adds resource number i if one of the next slots has the same content.
func (p *splitResponse) addSame(i int, sum xxh3.Uint128) bool {
	for k := p.next; k < min(p.next+1+maxGone, len(p.latest)); k++ {
		if old := p.latest[k]; old.sum == sum {
			p.next = k + 1
			if p.seen == nil || p.first(i, old.sub.entry.key.name) {
				p.slots = append(p.slots, old)
			}
			return true
		}
	}
	return false
}

// addChanged adds resource number i, which has changed.
func (p *splitResponse) addChanged(i int, it resourceUpdate) {
	inPlace := p.next < len(p.latest) && p.latest[p.next].sub.entry.key.name == it.name
	if inPlace {
		p.next++
	}
	if inPlace && p.seen == nil || p.first(i, it.name) {
		it.at = len(p.slots)
		p.slots = append(p.slots, slot{})
		if !p.passOver(&it) {
			p.items = append(p.items, it)
		}
	}
}

// first reports whether no resource before number i has its name. It is needed only if resources are
// not in the order of the latest response.
func (p *splitResponse) first(i int, name string) bool {
	if p.seen == nil {
		p.seen = make(map[string]struct{}, cap(p.slots))
		for _, pl := range p.slots {
			if pl.sub != nil {
				p.seen[pl.sub.entry.key.name] = struct{}{}
			}
		}
		for j := range p.items {
			p.seen[p.items[j].name] = struct{}{}
		}
		for _, name := range p.unwanted {
			p.seen[name] = struct{}{}
		}
	}
	return p.recordName(i, name)
}

// sameLocked reports whether the resources in splitResponse.slots are still in the cache. If not, the slots
// are dropped, and the response has to be split again.
func (r *response) sameLocked() bool {
	if len(r.latest) > 0 && r.t.slots == nil {
		return false // one of them was dropped
	}
	keeps := r.t.peer.core.keepsLocked()
	for _, pl := range r.slots {
		if pl.sub != nil && (!r.inCacheLocked(pl.sub.entry, pl.sum) || keeps && pl.sub.entry.raw == nil) {
			r.t.slots = nil
			return false
		}
	}
	return true
}

// applySameLocked applies the resources in splitResponse.slots, which is the cheap part of
// applyResourcesLocked.
func (r *response) applySameLocked() {
	t := r.t
	for _, pl := range r.slots {
		sub := pl.sub
		if sub == nil {
			continue
		}
		t.counts.Valid++
		if !sub.unsubscribing {
			r.wanted++
		}
		sub.answeredLocked()
		sub.received, sub.returned, sub.round = true, false, t.round
		e := sub.entry
		r.changedLocked(e, t.peer.cache.acceptLocked(e, acceptedVersion{e.value, e.sum, r.version, t.peer.cfg, r.at, nil}))
		e.ttlTimer.StopLocked() // it has no time to live any more
	}
}

// keepSlotsLocked keeps the slots of a response, except for resources that are not in the cache.
func (t *subscriptions) keepSlotsLocked(places []slot) {
	places = slices.DeleteFunc(places, func(pl slot) bool { return pl.sub == nil })
	if len(places) < cap(places)/2 {
		places = slices.Clone(places)
	}
	t.slots = places
}
