// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/picker"
)

// decodeEndpoints returns the validated form of a ClusterLoadAssignment (A27, A61). The error
// is as from [Decode].
//
// prev is opt.Previous, which may be nil. Every unchanged part of the result is shared with prev: the endpoints of a locality, the localities
// of a priority, the drops, and prev itself if there is no difference at all. Lists that differ
// only in their order count as unchanged, and keep prev's order.
//
// It takes O(len(value)) time. Endpoints whose encoding is unchanged are not decoded again: see
// wireChunk. An invalid resource is decoded without prev, so prev does not affect errors. Memory is
// needed for differences from prev; for checking whether an address occurs twice, if there are
// new addresses; and for metadata. In total that is at most 128 bytes per byte of value.
func decodeEndpoints(value []byte, opt Options, stop stopper) (*Endpoints, error) {
	d := newEndpointsDecoder(value, opt.Previous, stop, opt.AcceptHostnames)
	e, ok := d.decode()
	if d.updates && !d.stopped && (!ok || len(d.errors) > 0 || !d.distinct()) {
		d = newEndpointsDecoder(value, nil, stop, opt.AcceptHostnames)
		e, ok = d.decode()
	}
	if d.stopped {
		return nil, ErrStopped
	}
	if !ok {
		d.problems = problems{}
		d.here().fail("is malformed, or contains text that is not UTF-8")
	}
	if len(d.errors) > 0 {
		name, _ := Name(EndpointsType, value)
		return nil, d.err(EndpointsType, name)
	}
	return e, nil
}

// endpointsDecoder is the state of decoding one ClusterLoadAssignment. Methods with the result
// ok return false if the message is malformed, which ends decoding. Validation errors are added
// to the problems.
type endpointsDecoder struct {
	problems
	stopper
	value   []byte
	prev    *Endpoints // never nil
	updates bool       // prev has endpoints. Errors then only mean that the resource is invalid

	// i and j are the current position, endpoints[i].lb_endpoints[j]; -1 if it is above that.
	i, j   int
	listed bool // or endpoints[i].load_balancer_endpoints.lb_endpoints[j]
	names  bool // Options.AcceptHostnames

	unhealthy []picker.Unhealthy

	total      int // endpoints in the message
	localities map[localityKey]*localityState
	levels     map[uint32]*level
	seen       map[addrKey]struct{} // all addresses so far, unless updates
	fresh      []addrKey            // the addresses so far that are not known from prev, if updates
	inherited  bool                 // there are others
	// metadata has the metadata so far, by encoding.
	metadata map[string]*metadata
	wire     map[localityKey][]wireChunk

	addrs []netip.AddrPort // additional addresses of the current endpoint
	meta  *metadata        // of the current endpoint, may be nil
}

type localityKey struct {
	priority uint32
	id       picker.LocalityID
}

type localityState struct {
	prev *picker.Locality // nil for a new locality
	used bool             // it occurs in the message
}

// level is a priority of the new version.
type level struct {
	localities []picker.Locality
	weight     uint64 // sum over localities
	kept       int    // number of localities that are unchanged from prev
}

func newEndpointsDecoder(value []byte, prev *Endpoints, stop stopper, names bool) *endpointsDecoder {
	if prev == nil {
		prev = &Endpoints{}
	}
	d := &endpointsDecoder{
		stopper:    stop,
		value:      value,
		prev:       prev,
		updates:    len(prev.Priorities) > 0,
		names:      names,
		i:          -1,
		j:          -1,
		localities: make(map[localityKey]*localityState),
		levels:     make(map[uint32]*level),
	}
	for p := range prev.Priorities {
		list := prev.Priorities[p].Localities
		for i := range list {
			d.localities[localityKey{uint32(p), list[i].ID}] = &localityState{prev: &list[i]}
		}
	}
	return d
}

// here returns the path of the current position.
func (d *endpointsDecoder) here() *path {
	p := d.root()
	if d.i >= 0 {
		p = p.dot("endpoints").at(d.i)
	}
	if d.j >= 0 && d.listed {
		p = p.dot("load_balancer_endpoints")
	}
	if d.j >= 0 {
		p = p.dot("lb_endpoints").at(d.j)
	}
	return p
}

func (d *endpointsDecoder) decode() (e *Endpoints, ok bool) {
	var (
		name   string
		policy []byte
		count  int // number of localities
	)
	ok = true
	r := reader{rest: d.value}
	for r.next() {
		switch r.tag {
		case tagClusterName:
			ok = setText(&name, r.bytes) && ok
		case tagEndpoints:
			count++
		case tagPolicy:
			policy = merge(policy, r.bytes)
		}
	}
	if r.bad || !ok {
		return nil, false
	}
	d.root().dot("cluster_name").nonEmpty(name)
	localities := make([]localityFields, count)
	r = reader{rest: d.value}
	for r.next() {
		if r.tag != tagEndpoints {
			continue
		}
		d.i++
		if !localities[d.i].parse(r.bytes) {
			return nil, false
		}
		d.total += localities[d.i].endpoints
	}
	for d.i = range localities {
		if d.stop() || !d.locality(&localities[d.i]) {
			return nil, false
		}
		if d.enough() {
			return nil, true
		}
	}
	d.i = -1
	drops, ok := d.drops(policy)
	if !ok {
		return nil, false
	}
	return d.finish(name, drops), true
}

// enough reports whether the resource is invalid and further errors make no difference.
func (d *endpointsDecoder) enough() bool { return d.more || d.updates && len(d.errors) > 0 }

// locality reads endpoints[i]. A locality without weight is skipped before it is validated
// (A27-CLA-2, T-EDS-1).
func (d *endpointsDecoder) locality(in *localityFields) (ok bool) {
	d.listed = in.listed
	if in.weight == 0 {
		return d.skipLocality(in)
	}
	state := &localityState{}
	if key := (localityKey{in.priority, in.id}); !in.hasID { // A27-CLA-14
		d.here().dot("locality").fail("must be set")
	} else if known := d.localities[key]; known == nil {
		d.localities[key] = state
	} else if known.used { // A27-CLA-6
		d.here().dot("locality").failf("region %s, zone %s, sub_zone %s must occur once in priority %d",
			quote(in.id.Region), quote(in.id.Zone), quote(in.id.SubZone), in.priority)
	} else {
		state = known
	}
	state.used = true
	prev := state.prev
	if prev == nil {
		prev = &picker.Locality{ID: in.id}
	}

	loc := picker.Locality{ID: prev.ID, Weight: in.weight}
	if in.both {
		d.here().dot("load_balancer_endpoints").fail("must not be set together with lb_endpoints")
	}
	if in.leds {
		d.here().dot("leds_cluster_locality_config").fail("must not be set, since LEDS is not supported: endpoints must be in lb_endpoints")
	}
	if loc.Endpoints, ok = d.endpoints(in, prev.Endpoints); !ok {
		return false
	}
	if m := d.decodeMetadata(in.metadata); m != nil && m.extra != nil {
		loc.Metadata = m.extra.Metadata
	}

	l := d.levels[in.priority]
	if l == nil {
		l = &level{}
		d.levels[in.priority] = l
	}
	l.localities = append(l.localities, loc)
	l.weight += uint64(in.weight)
	if prev.Same(loc) {
		l.kept++
	}
	return true
}

// skipLocality reads skipped endpoints: they may be invalid, but not malformed.
func (d *endpointsDecoder) skipLocality(in *localityFields) (ok bool) {
	var f endpointFields
	r := reader{rest: in.list}
	for r.next() {
		if r.tag != in.tag {
			continue
		}
		d.j++
		if d.stopAt(d.j) || !f.parse(r.bytes) {
			return false
		}
	}
	d.j = -1
	return true
}

// finish assembles the priorities.
func (d *endpointsDecoder) finish(name string, drops []picker.Drop) *Endpoints {
	e := &Endpoints{
		Name:       name,
		Priorities: make([]picker.Priority, len(d.levels)),
		Drops:      drops,
		metadata:   d.metadata,
		wire:       d.wire,
		names:      d.names,
	}
	kept := 0
	for p := range e.Priorities {
		l := d.levels[uint32(p)]
		if l == nil { // A27-CLA-5
			d.root().dot("endpoints").failf("must have a locality of priority %d: there are higher priorities", p)
			return nil
		}
		if l.weight > math.MaxUint32 { // A27-CLA-3
			d.root().dot("endpoints").failf("must have weights whose sum in priority %d is at most 4294967295", p)
		}
		e.Priorities[p].Localities = l.localities
		if p < len(d.prev.Priorities) {
			prev := d.prev.Priorities[p].Localities
			if l.kept == len(prev) && l.kept == len(l.localities) {
				e.Priorities[p].Localities = prev
				kept++
			}
		}
	}
	samePriorities := kept == len(e.Priorities) && kept == len(d.prev.Priorities)
	if samePriorities {
		e.Priorities = d.prev.Priorities
	}
	slices.SortFunc(d.unhealthy, compareUnhealthy)
	e.Unhealthy = slices.Compact(d.unhealthy)
	sameUnhealthy := slices.Equal(e.Unhealthy, d.prev.Unhealthy)
	if sameUnhealthy {
		e.Unhealthy = d.prev.Unhealthy
	}
	if slices.Equal(drops, d.prev.Drops) {
		e.Drops = d.prev.Drops
		if samePriorities && sameUnhealthy && name == d.prev.Name {
			return d.prev
		}
	}
	return e
}

// compareUnhealthy is the order of Endpoints.Unhealthy.
func compareUnhealthy(a, b picker.Unhealthy) int {
	return cmp.Or(a.Addr.Compare(b.Addr), strings.Compare(a.Health, b.Health))
}
