// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"iter"
	"slices"

	"github.com/xdslb/xdslb/ringhash"
)

// A placement maps hashes to the endpoints of a group, by a ring or a Maglev table, independent
// of connection states. It is immutable, and all snapshots between two changes of keys, weights
// or sizes share it. So connection state changes do not rebuild it.
type placement struct {
	ring  *ringhash.Ring   // nil if table is used
	table *ringhash.Maglev // nil if ring is used
	spec  placementSpec
	hosts []ringhash.Host // parallel to the group's endpoints

	localities []Locality // from which hosts were made
}

// A placementSpec has the inputs of a placement other than the hosts.
type placementSpec struct {
	table            bool // Maglev
	fn               ringhash.Func
	minSize, maxSize uint64 // in entries; for maglev, minSize is the table size
}

// spec returns the placementSpec of the policy, with ring sizes capped at limit. Tables have a
// limit of their own, ringhash.tableSizeLimit, and larger ones are rejected: a table of the
// largest prime below the limit would be a different placement.
func (p *RingPolicy) spec(kind PolicyKind, limit uint64) (placementSpec, error) {
	s := placementSpec{table: kind == PolicyMaglev, minSize: p.MinSize}
	if p.XXH64 {
		s.fn = ringhash.XXH64
	}
	if !s.table {
		if p.MinSize > p.MaxSize { // T-RING-5: check before the cap hides it
			return s, fmt.Errorf("ring: minimum size %d exceeds maximum size %d", p.MinSize, p.MaxSize)
		}
		s.minSize, s.maxSize = min(p.MinSize, limit), min(p.MaxSize, limit)
	}
	return s, nil
}

// place returns the placement of the endpoints of localities. It returns before, which may be
// nil, if the lists are the same: O(localities). Otherwise it takes O(n·log n) for n endpoints,
// plus the changed entries of a ring (ringhash.Ring.Update) or a whole table.
func place(before *placement, spec placementSpec, localities []Locality) (*placement, error) {
	if before != nil && before.spec != spec {
		before = nil
	}
	if before != nil && slices.EqualFunc(before.localities, localities, func(a, b Locality) bool {
		return a.Weight == b.Weight && a.Endpoints.Same(b.Endpoints)
	}) {
		return before, nil
	}
	next := &placement{spec: spec, hosts: hostsOf(before, localities), localities: localities}
	var err error
	switch {
	case before != nil && slices.Equal(before.hosts, next.hosts):
		next.ring, next.table, next.hosts = before.ring, before.table, before.hosts
	case spec.table:
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

// hostsOf returns the hosts for the endpoints of localities, with their weights by A113. A
// draining endpoint is not a host, but counts in its locality's sum, so draining moves no
// hashes of other hosts.
//
// Endpoints with the same index as in before, which may be nil, share their keys with it.
func hostsOf(before *placement, localities []Locality) []ringhash.Host {
	var total uint64
	n := 0
	for i := range localities {
		total += uint64(localities[i].Weight)
		n += localities[i].Endpoints.Len()
	}
	hosts, first := make([]ringhash.Host, 0, n), 0
	for i := range localities {
		old, oldHosts := before.locality(i, first)
		first += old.Len()
		for k, weight := range localities[i].FlatWeights(total) {
			var h ringhash.Host
			e := localities[i].Endpoints.At(k)
			if k < old.Len() && sameKey(old.At(k), e) {
				h.Key = oldHosts[k].Key
			} else {
				h.Key = keyOf(e)
			}
			if e.Health != Draining {
				h.Weight = weight
			}
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// FlatWeights returns an iterator over the endpoints of l, by index, and their weights in a
// single layer of all endpoints of the priority (A113): the share of the locality times the
// share of the endpoint in the locality, at least 1, in units of 2^-31. total is the sum of the
// weights of all localities of the priority. The shares are fixed-point numbers with 31 bits
// after the point, so that neither their product nor the sum of the weights overflows
// (T-EDS-3). O(endpoints).
//
// Rings and Maglev tables use these weights, and the balancer of a custom policy gets them for
// its endpoints (package integrate).
func (l *Locality) FlatWeights(total uint64) iter.Seq2[int, uint32] {
	return func(yield func(int, uint32) bool) {
		var sum uint64
		for _, e := range l.Endpoints.All() {
			sum += uint64(e.Weight)
		}
		share := uq31(uint64(l.Weight), total)
		for k, e := range l.Endpoints.All() {
			if !yield(k, uint32(max(share*uq31(uint64(e.Weight), sum)>>31, 1))) {
				return
			}
		}
	}
}

// locality returns the endpoints of locality i of p, which may be nil, and their hosts, which
// start at first.
func (p *placement) locality(i, first int) (list EndpointList, hosts []ringhash.Host) {
	if p == nil || i >= len(p.localities) {
		return list, nil
	}
	return p.localities[i].Endpoints, p.hosts[first:]
}

// keyOf returns the key that places an endpoint: its hash_key (A76), otherwise its first
// address (T-RING-2).
func keyOf(e *Endpoint) string {
	if e.Extra != nil && e.Extra.HashKey != "" {
		return e.Extra.HashKey
	}
	return AddrText(e.Addr)
}

// sameKey reports whether keyOf(a) and keyOf(b) are known to be equal without computing them.
// O(1).
func sameKey(a, b *Endpoint) bool { return a.Addr == b.Addr && a.Extra == nil && b.Extra == nil }

// uq31 returns part/whole as a fixed-point number with 31 bits after the point, or 0 if
// whole is 0. part fits 32 bits and is at most whole.
func uq31(part, whole uint64) uint64 {
	if whole == 0 {
		return 0
	}
	return part << 31 / whole
}
