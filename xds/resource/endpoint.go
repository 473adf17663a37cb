// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xdslb/xdslb/picker"
)

// endpoints reads the endpoints of a locality. Unhealthy endpoints are skipped before they are
// validated (A27-CLA-8, T-EDS-2); draining endpoints are kept (A55).
func (d *endpointsDecoder) endpoints(in *localityFields, prev picker.EndpointList) (list picker.EndpointList, ok bool) {
	key := localityKey{in.priority, in.id}
	rev := revision{prev: prev}
	rev.list.Follow(prev, in.endpoints)
	rev.wire.off = in.endpoints < minWireChunk
	if !rev.wire.off && d.prev.names == d.names {
		rev.wire.before = d.prev.wire[key]
	}
	fresh := len(d.fresh)
	var f endpointFields
	r := reader{rest: in.list}
	for {
		message := r.rest
		if !r.next() {
			break
		}
		if r.tag != in.tag {
			continue
		}
		d.j++
		if d.stopAt(d.j) || !f.parse(r.bytes) {
			return list, false
		}
		if d.enough() {
			return list, true
		}
		health, usable := f.usable()
		if !usable {
			if u, ok := d.unhealthyEndpoint(&f); ok {
				d.unhealthy = append(d.unhealthy, u)
			}
			continue
		}
		e, like, ok := d.endpoint(&f, &rev)
		if !ok {
			continue // invalid, so the list will not be used
		}
		if rest := d.skip(&rev, like, message); rest != nil {
			if r.rest = rest; d.stop() {
				return list, false
			}
			continue
		}
		e.Health = health
		d.unique(&e, like)
		first := rev.list.Add(e, like)
		d.addToWireChunk(&rev.wire, &e, first, message)
		rev.n++
		rev.sum += uint64(e.Weight)
	}
	d.j = -1
	if rev.sum > math.MaxUint32 { // T-EDS-3
		p := d.here()
		if d.listed {
			p = p.dot("load_balancer_endpoints")
		}
		p.dot("lb_endpoints").refuse(rev.sum, "must have weights whose sum is at most 4294967295")
	}
	d.endWireChunk(&rev.wire, nil)
	list, reordered := rev.done()
	chunks := rev.wire.chunks()
	if reordered {
		chunks, d.fresh, d.inherited = rev.wire.before, d.fresh[:fresh], true
	}
	if len(chunks) > 0 {
		if d.wire == nil {
			d.wire = make(map[localityKey][]wireChunk)
		}
		d.wire[key] = chunks
	}
	return list, true
}

// unhealthy returns the diagnostics of an endpoint that is excluded because of its health, and
// whether its address is valid.
func (d *endpointsDecoder) unhealthyEndpoint(f *endpointFields) (u picker.Unhealthy, ok bool) {
	addr, ok := f.address.parsed(d.names)
	if !ok {
		return u, false
	}
	return picker.Unhealthy{Addr: addr, Health: corev3.HealthStatus(f.health).String()}, ok
}

// endpoint converts an endpoint, except for its health. It returns false if it is invalid. like is
// the index of the previous list's endpoint with the same addresses, or -1.
func (d *endpointsDecoder) endpoint(f *endpointFields, rev *revision) (e picker.Endpoint, like int, ok bool) {
	e, like = picker.Endpoint{Weight: 1}, -1
	if f.hasWeight {
		e.Weight = f.weight
	}
	ok = e.Weight != 0
	if !ok {
		d.here().dot("load_balancing_weight").refuse(0, "must be at least 1")
	}
	if f.endpoint == nil { // A27-CLA-10
		d.here().dot("endpoint").fail("must be set")
		return e, like, false
	}
	e.Addr = d.address(&f.address, -1)
	ok = ok && e.Addr.IsValid()
	d.addrs = d.addrs[:0]
	for i := range f.additional { // A61
		addr := d.address(&f.additional[i], i)
		ok = ok && addr.IsValid()
		d.addrs = append(d.addrs, addr)
	}
	if ok {
		like = rev.find(e.Addr, d.addrs)
	}
	d.meta = d.decodeMetadata(f.metadata)
	switch {
	case len(d.addrs) > 0 || len(f.hostname) > 0:
		var old *picker.Endpoint
		if like >= 0 {
			old = rev.prev.At(like)
		}
		e.Extra = d.extra(f, d.meta, old)
	case d.meta != nil:
		e.Extra = d.meta.extra
	}
	return e, like, ok
}

// address converts an address of an endpoint: the primary one if i is -1, otherwise additional
// address i. The result is the zero AddrPort if it is invalid.
func (d *endpointsDecoder) address(f *addressFields, i int) netip.AddrPort {
	if addr, ok := f.parsed(d.names); ok {
		return addr
	}
	p := d.here().dot("endpoint")
	if i >= 0 {
		p = p.dot("additional_addresses").at(i)
	}
	switch p = p.dot("address"); {
	case f.missing == "address":
		p.fail("must be set")
	case f.missing == "socket_address":
		p.dot(f.missing).fail("must be set")
	case f.missing == "port_value":
		p.dot("socket_address").dot(f.missing).fail("must be set")
	case f.port > math.MaxUint16:
		p.dot("socket_address").dot("port_value").refuse(f.port, "must be at most 65535")
	default: // A27-CLA-11
		rule := "must be an IPv4 or IPv6 address without a zone"
		if d.names {
			rule += ", or a DNS name"
		} else if _, ok := picker.NameAddr(string(f.text), 0); ok {
			rule += ", unless Config.Resources.AcceptHostnames is set"
		}
		p.dot("socket_address").dot("address").refuse(string(f.text), rule)
	}
	return netip.AddrPort{}
}

// parsed returns the address; not ok if it is invalid. With names it may be a DNS name.
func (f *addressFields) parsed(names bool) (addr netip.AddrPort, ok bool) {
	if f.missing != "" || f.port > math.MaxUint16 {
		return addr, false
	}
	if addr, ok := parseAddr(f.text); ok {
		return netip.AddrPortFrom(addr, uint16(f.port)), true
	}
	if names {
		return picker.NameAddr(string(f.text), uint16(f.port))
	}
	return addr, false
}
