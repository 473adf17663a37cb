// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"net/netip"
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// unique checks that no address of e has occurred before (A27-CLA-12). like is the index of an
// endpoint of the previous version of the locality with the same addresses, or -1.
//
// With a previous version, whose addresses are distinct, only endpoints that are not like one
// of it can have an address twice. They are checked at the end, by distinct.
func (d *endpointsDecoder) unique(e *picker.Endpoint, like int) {
	if like >= 0 {
		d.inherited = true
		return
	}
	d.uniqueAddr(e.Addr)
	for _, addr := range moreAddrs(e) {
		d.uniqueAddr(addr)
	}
}

func (d *endpointsDecoder) uniqueAddr(addr netip.AddrPort) {
	if d.updates {
		if len(d.fresh) == cap(d.fresh) { // few, or probably most
			d.fresh = slices.Grow(d.fresh, max(16, min(16*len(d.fresh), d.total-len(d.fresh))))
		}
		d.fresh = append(d.fresh, keyOf(addr))
		return
	}
	if d.seen == nil {
		d.seen = make(map[addrKey]struct{}, d.total)
	}
	before := len(d.seen)
	d.seen[keyOf(addr)] = struct{}{}
	if len(d.seen) == before {
		d.here().dot("endpoint").refuse(picker.AddrText(addr), "must not have an address that occurred before")
	}
}

// distinct reports whether no address of d.fresh is in the new version twice.
func (d *endpointsDecoder) distinct() bool {
	if len(d.fresh) == 0 {
		return true
	}
	seen := make(map[addrKey]struct{}, len(d.fresh))
	for _, k := range d.fresh {
		seen[k] = struct{}{}
	}
	if len(seen) < len(d.fresh) || !d.inherited {
		return len(seen) == len(d.fresh)
	}
	var filter [64]uint64 // a bit for each hash modulo 4096
	for i := range d.fresh {
		h := d.fresh[i].hash()
		filter[h/64%64] |= 1 << (h % 64)
	}
	n := 0 // addresses that are in seen, which includes those of d.fresh themselves
	count := func(addr netip.AddrPort) {
		k := keyOf(addr)
		if h := k.hash(); filter[h/64%64]&(1<<(h%64)) != 0 {
			if _, ok := seen[k]; ok {
				n++
			}
		}
	}
	for _, l := range d.levels {
		for i := range l.localities {
			for _, e := range l.localities[i].Endpoints.All() {
				count(e.Addr)
				for _, addr := range moreAddrs(e) {
					count(addr)
				}
			}
		}
	}
	return n == len(seen)
}
