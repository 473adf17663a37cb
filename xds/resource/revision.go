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
	n    int // length
}

// old returns the endpoint of the previous list at the position of the next one of the new
// list, or nil.
func (r *revision) old() *picker.Endpoint {
	if r.n < r.prev.Len() {
		return r.prev.At(r.n)
	}
	return nil
}

func (r *revision) add(e picker.Endpoint) {
	r.list.Add(e)
	r.n++
}

// done returns the list: the previous one if it has the same endpoints. places maps the
// addresses of the new list to their positions, unless all positions are unchanged.
func (r *revision) done(places map[addrKey]int32) picker.EndpointList {
	list := r.list.List()
	if list.Len() == r.prev.Len() && moved(r.prev, list) && permuted(r.prev, list, places) {
		return r.prev
	}
	return list
}

// moved reports whether the first difference between two lists of the same length is another
// address, so that the lists may be permutations of each other.
func moved(prev, list picker.EndpointList) bool {
	for was := range list.Since(prev) {
		for i := was.From; i < was.To; i++ {
			if *prev.At(i) != *list.At(i) {
				return prev.At(i).Addr != list.At(i).Addr
			}
		}
	}
	return false
}

// permuted reports whether each endpoint of the previous list is in the new one, which has the
// same length. It is O(n), and stops at the first missing endpoint.
func permuted(prev, list picker.EndpointList, places map[addrKey]int32) bool {
	for _, old := range prev.All() {
		place, ok := places[keyOf(old.Addr)]
		if !ok || int(place) >= list.Len() || !sameEndpoint(list.At(int(place)), old) {
			return false
		}
	}
	return true
}

func moreAddrs(e *picker.Endpoint) []netip.AddrPort {
	if e.Extra == nil {
		return nil
	}
	return e.Extra.Addrs
}

func sameAddrs(a, b *picker.Endpoint) bool {
	return a.Addr == b.Addr && (a.Extra == b.Extra || slices.Equal(moreAddrs(a), moreAddrs(b)))
}

// sameEndpoint reports whether a and b are equal.
func sameEndpoint(a, b *picker.Endpoint) bool {
	x, y := a.Extra, b.Extra
	return a.Weight == b.Weight && a.Health == b.Health && sameAddrs(a, b) && (x == y || x != nil && y != nil &&
		x.Hostname == y.Hostname && x.HashKey == y.HashKey && persistent.SameMap(x.Metadata, y.Metadata))
}
