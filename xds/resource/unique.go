// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"net/netip"

	"github.com/xdslb/xdslb/picker"
)

// unique checks that no address of e, which is about to be added to rev, has occurred before
// (A27-CLA-12). old is prev's endpoint at that position, or nil.
func (d *endpointsDecoder) unique(e, old *picker.Endpoint, rev *revision) {
	if d.seen == nil {
		if old != nil && sameAddrs(e, old) {
			return
		}
		d.initSeen(rev.prev, rev.n)
	}
	d.note(e, rev.n)
}

// initSeen initializes d.seen with all previous addresses, and with the addresses of the first n
// endpoints of list, which are the start of the current locality.
func (d *endpointsDecoder) initSeen(list picker.EndpointList, n int) {
	d.seen = make(map[addrKey]int32, d.total)
	for _, l := range d.levels {
		for i := range l.localities {
			for j, e := range l.localities[i].Endpoints.All() {
				d.note(e, j)
			}
		}
	}
	for j := range n {
		d.note(list.At(j), j)
	}
}

// note adds the addresses of e, the endpoint at a position of its locality, to d.seen.
func (d *endpointsDecoder) note(e *picker.Endpoint, place int) {
	d.noteAddr(e.Addr, place)
	for _, addr := range moreAddrs(e) {
		d.noteAddr(addr, place)
	}
}

func (d *endpointsDecoder) noteAddr(addr netip.AddrPort, place int) {
	before := len(d.seen)
	d.seen[keyOf(addr)] = int32(place)
	if len(d.seen) == before {
		d.here().dot("endpoint").refuse(picker.AddrText(addr), "must not have an address that occurred before")
	}
}
