// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import "slices"

// View is a [Ring] reduced to the currently usable hosts. Each position returns the next usable
// host, so a pick costs as much as in the Ring regardless of the number of failed hosts,
// without walking. A View is immutable and safe for concurrent use. Create one with
// [Ring.Restrict]; the zero View must not be used. It holds 12 bytes per ring entry and shares
// the rest with the ring; if no host or every host is usable it shares the entries, too.
type View struct {
	index      // its entries have the next usable host instead of their own
	ok    bool // some host of the ring is usable
}

// Restrict returns the view of r with the hosts for which usable[host] is set. Hosts beyond the
// end of usable are not usable. It is O(Len) and meant for the cold path, after the state of a
// host has changed: the ring is not rebuilt, and requests of usable hosts keep their hosts.
//
// For gRFC A61 (T-RING-8) the usable hosts are the ones not in TRANSIENT_FAILURE. For the
// random hashes of gRFC A76 a second view of the READY hosts gives the host to use while the
// first gives the host to connect on the way.
func (r *Ring) Restrict(usable []bool) *View {
	last := uint32(0)
	for _, m := range r.members {
		last = max(last, m.host)
	}
	inUse := make([]bool, last+1)
	copy(inUse, usable)
	up, down := 0, 0
	for _, m := range r.members {
		switch {
		case m.count == 0:
		case inUse[m.host]:
			up++
		default:
			down++
		}
	}
	v := &View{index: r.index, ok: up > 0}
	if up == 0 || down == 0 {
		return v
	}
	first := 0
	for !inUse[r.entries[first].host] {
		first++
	}
	next := r.entries[first].host // the successor of the last entry
	v.entries = slices.Clone(r.entries)
	for p := len(v.entries) - 1; p >= 0; p-- {
		if host := v.entries[p].host; inUse[host] {
			next = host
		}
		v.entries[p].host = next
	}
	return v
}

// Pick returns the host to which a request with this hash belongs: the host of the first usable
// entry at or after the hash. If no host of the ring is usable, ok is false and host is the
// result of [Ring.Pick], whose error is the one to report (gRFC A61). O(1) expected; does not
// allocate.
func (v *View) Pick(hash uint64) (host int, ok bool) {
	return int(v.entries[v.seek(hash)].host), v.ok
}
