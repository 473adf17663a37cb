// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"slices"

	"github.com/xdslb/xdslb/ringhash"
)

// A placement says which hash belongs to which endpoint of a group, whatever the
// states of the endpoints: by a ring or a Maglev table. It is immutable and shared
// by all snapshots between two changes of keys, weights or sizes, so that a
// connection which comes or goes costs nothing here.
type placement struct {
	ring  *ringhash.Ring   // nil if there is a table
	table *ringhash.Maglev // nil if there is a ring
	spec  placementSpec
	hosts []ringhash.Host // parallel to the group's endpoints
	total uint64          // of the hosts' weights

	from []Locality // what hosts were made of
}

// placementSpec is what a placement depends on besides the hosts. Sizes are in
// entries.
type placementSpec struct {
	kind             PolicyKind
	fn               ringhash.Func
	minSize, maxSize uint64 // for maglev minSize is the table's
}

// spec returns what the policy asks for, with rings no larger than limit. A table is bounded by its
// own rule, ringhash.MaxTableSize: the largest prime below a limit would be
// another placement.
func (p *RingPolicy) spec(kind PolicyKind, limit uint64) (placementSpec, error) {
	s := placementSpec{kind: kind, minSize: p.MinSize}
	if p.XXH64 {
		s.fn = ringhash.XXH64
	}
	if kind == PolicyRingHash {
		if p.MinSize > p.MaxSize { // T-RING-5: before the limit hides it
			return s, fmt.Errorf("ring: minimum size %d exceeds maximum size %d", p.MinSize, p.MaxSize)
		}
		s.minSize, s.maxSize = min(p.MinSize, limit), min(p.MaxSize, limit)
	}
	return s, nil
}

// place returns the placement of the endpoints of localities. It is before, which
// may be nil, if nothing has changed, which the same slices show in O(localities).
// Otherwise it takes O(n·log n) for n endpoints and, of a ring, what has changed
// (ringhash.Ring.Update); of a table, a new one.
func place(before *placement, spec placementSpec, localities []Locality) (*placement, error) {
	if before != nil && before.spec != spec {
		before = nil
	}
	if before != nil && slices.EqualFunc(before.from, localities, func(a, b Locality) bool {
		return a.Weight == b.Weight && sameSlice(a.Endpoints, b.Endpoints)
	}) {
		return before, nil
	}
	next := &placement{spec: spec, hosts: hostsOf(before, localities), from: localities}
	for i := range next.hosts {
		next.total += uint64(next.hosts[i].Weight)
	}
	var err error
	switch {
	case before != nil && slices.Equal(before.hosts, next.hosts):
		next.ring, next.table, next.hosts = before.ring, before.table, before.hosts
	case spec.kind == PolicyMaglev:
		next.table, err = ringhash.NewMaglev(next.hosts, spec.minSize, spec.fn)
	case before != nil:
		next.ring, err = before.ring.Update(next.hosts)
	default:
		next.ring, err = ringhash.New(next.hosts, spec.minSize, spec.maxSize, spec.fn)
	}
	if err != nil {
		return nil, err
	}
	return next, nil
}

// hostsOf returns the hosts that the endpoints of localities are. A host's weight
// is the share of its locality times its share in there, as fixed-point numbers
// with 31 bits after the point (A113), so that neither product nor sum overflows
// (T-EDS-3). A draining endpoint is no host, but counts in its locality's sum: that
// it drains moves none of the others.
//
// before, which may be nil, lends the keys of endpoints that are where they were.
func hostsOf(before *placement, localities []Locality) []ringhash.Host {
	var all uint64
	n := 0
	for i := range localities {
		all += uint64(localities[i].Weight)
		n += len(localities[i].Endpoints)
	}
	hosts, first := make([]ringhash.Host, 0, n), 0
	for i := range localities {
		var sum uint64
		for k := range localities[i].Endpoints {
			sum += uint64(localities[i].Endpoints[k].Weight)
		}
		share := uq31(uint64(localities[i].Weight), all)
		was, keys := before.locality(i, first)
		first += len(was)
		for k := range localities[i].Endpoints {
			var h ringhash.Host
			e := &localities[i].Endpoints[k]
			if k < len(was) && sameKey(&was[k], e) {
				h.Key = keys[k].Key
			} else {
				h.Key = keyOf(e)
			}
			if e.Health != Draining {
				h.Weight = uint32(max(share*uq31(uint64(e.Weight), sum)>>31, 1))
			}
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// locality returns the endpoints of locality i of p, which may be nil, and the hosts
// that they are: those from first on.
func (p *placement) locality(i, first int) ([]Endpoint, []ringhash.Host) {
	if p == nil || i >= len(p.from) {
		return nil, nil
	}
	return p.from[i].Endpoints, p.hosts[first:]
}

// keyOf returns what places an endpoint: its hash_key (A76) or else its first
// address (T-RING-2).
func keyOf(e *Endpoint) string {
	if e.Extra != nil && e.Extra.HashKey != "" {
		return e.Extra.HashKey
	}
	return e.Addr.String()
}

// sameKey reports whether keyOf(a) is keyOf(b), if that is plain to see.
func sameKey(a, b *Endpoint) bool { return a.Addr == b.Addr && a.Extra == nil && b.Extra == nil }

// uq31 returns part/whole as a fixed-point number with 31 bits after the point.
// part fits 32 bits and is at most whole. Of nothing, it is nothing.
func uq31(part, whole uint64) uint64 {
	if whole == 0 {
		return 0
	}
	return part << 31 / whole
}
