// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"net/netip"
	"slices"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// A revision is the list of a locality's endpoints under construction. It shares unchanged
// parts with the previous list.
type revision struct {
	prev picker.EndpointList
	list persistent.Builder[picker.Endpoint]
	wire wireRevision
	n    int    // length
	sum  uint64 // of weights

	next int // index in prev after the last endpoint that is in both lists
	// near are candidates for the next one, with their indexes, if lost.
	near [4]struct {
		i int
		e *picker.Endpoint // may be nil
	}
	lost bool // the last endpoint was not in prev
}

// find returns the index of the endpoint of prev with the given addresses, or -1. Found endpoints
// have the same order in both lists. It looks at the next two endpoints of prev, which is enough if
// single ones were inserted, removed or replaced, and at the first ones of the next two chunks.
func (r *revision) find(addr netip.AddrPort, more []netip.AddrPort) int {
	if !r.lost {
		if r.next >= r.prev.Len() {
			return -1
		}
		if has(r.prev.At(r.next), addr, more) {
			return r.found(r.next)
		}
		r.lookAhead()
	}
	for i := range r.near {
		if e := r.near[i].e; e != nil && has(e, addr, more) {
			return r.found(r.near[i].i)
		}
	}
	return -1
}

func (r *revision) found(i int) int {
	r.wire.found(i)
	r.next, r.lost = i+1, false
	return i
}

func (r *revision) lookAhead() {
	r.lost = true
	later := r.wire.start // chunks of prev
	r.near[0].i, r.near[1].i, r.near[2].i, r.near[3].i = r.next, r.next+1, later, later
	if k := r.wire.k; k < len(r.wire.before) {
		r.near[3].i += r.wire.before[k].n
	}
	for i := range r.near {
		c := &r.near[i]
		if c.e = nil; c.i >= r.next && c.i < r.prev.Len() {
			c.e = r.prev.At(c.i)
		}
	}
}

// has reports whether an endpoint has exactly the given addresses.
func has(e *picker.Endpoint, addr netip.AddrPort, more []netip.AddrPort) bool {
	return e.Addr == addr && (e.Extra == nil && len(more) == 0 || slices.Equal(moreAddrs(e), more))
}

// done returns the list. It is the previous one if that has the same endpoints in another order.
func (r *revision) done() (list picker.EndpointList, reordered bool) {
	list = r.list.List()
	if list.Len() == r.prev.Len() && permuted(r.prev, list) {
		return r.prev, true
	}
	return list, false
}

// permuted reports whether two different lists of the same length have the same endpoints, and the
// first difference is another address. It is O(n), and most other lists are recognized before the
// endpoints are looked up in a map.
func permuted(prev, list picker.EndpointList) bool {
	was, is := difference(prev, list)
	if was == nil || was.Addr == is.Addr || !contains(list, was.Addr) {
		return false
	}
	var sum uint64 // of hashes; 0 if the endpoints are the same
	n := 0
	for was, is := range list.Since(prev) {
		for i := was.From; i < was.To; i++ {
			sum += endpointHash(prev.At(i))
		}
		for i := is.From; i < is.To; i++ {
			sum -= endpointHash(list.At(i))
		}
		n += is.Len()
	}
	if sum != 0 {
		return false
	}
	places := make(map[addrKey]int32, n)
	for _, is := range list.Since(prev) {
		for i := is.From; i < is.To; i++ {
			places[keyOf(list.At(i).Addr)] = int32(i)
		}
	}
	for was := range list.Since(prev) {
		for i := was.From; i < was.To; i++ {
			old := prev.At(i)
			if place, ok := places[keyOf(old.Addr)]; !ok || !sameEndpoint(list.At(int(place)), old) {
				return false
			}
		}
	}
	return true
}

// difference returns the first endpoints that differ in two lists of the same length, or nil.
func difference(prev, list picker.EndpointList) (was, is *picker.Endpoint) {
	for span := range list.Since(prev) {
		for i := span.From; i < list.Len(); i++ {
			if was, is = prev.At(i), list.At(i); *was != *is {
				return was, is
			}
		}
	}
	return nil, nil
}

func contains(list picker.EndpointList, addr netip.AddrPort) bool {
	for _, e := range list.All() {
		if e.Addr == addr {
			return true
		}
	}
	return false
}

// endpointHash is a hash of the address and the weight.
func endpointHash(e *picker.Endpoint) uint64 {
	k := keyOf(e.Addr)
	return k.hash() * (2*uint64(e.Weight) + 1)
}

func moreAddrs(e *picker.Endpoint) []netip.AddrPort {
	if e.Extra == nil {
		return nil
	}
	return e.Extra.Addrs
}

// sameEndpoint reports whether a and b are equal.
func sameEndpoint(a, b *picker.Endpoint) bool {
	x, y := a.Extra, b.Extra
	return a.Weight == b.Weight && a.Health == b.Health && has(a, b.Addr, moreAddrs(b)) && (x == y || x != nil && y != nil &&
		x.Hostname == y.Hostname && x.HashKey == y.HashKey && persistent.SameMap(x.Metadata, y.Metadata))
}
