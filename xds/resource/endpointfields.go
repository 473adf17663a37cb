// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xdslb/xdslb/picker"
)

// The tags of the fields of a ClusterLoadAssignment's messages that are read. Other fields are
// skipped, even if invalid.
const (
	// ClusterLoadAssignment
	tagClusterName = 1<<3 | bytesType
	tagEndpoints   = 2<<3 | bytesType
	tagPolicy      = 4<<3 | bytesType
	// LocalityLbEndpoints
	tagLocality         = 1<<3 | bytesType
	tagLbEndpoints      = 2<<3 | bytesType
	tagLocalityWeight   = 3<<3 | bytesType
	tagPriority         = 5<<3 | varintType
	tagEndpointList     = 7<<3 | bytesType
	tagLEDS             = 8<<3 | bytesType
	tagLocalityMetadata = 9<<3 | bytesType
	// LocalityLbEndpoints.LbEndpointList
	tagListed = 1<<3 | bytesType
	// Locality
	tagRegion  = 1<<3 | bytesType
	tagZone    = 2<<3 | bytesType
	tagSubZone = 3<<3 | bytesType
	// LbEndpoint; endpoint and endpoint_name are a oneof
	tagEndpoint       = 1<<3 | bytesType
	tagHealthStatus   = 2<<3 | varintType
	tagMetadata       = 3<<3 | bytesType
	tagEndpointWeight = 4<<3 | bytesType
	tagEndpointName   = 5<<3 | bytesType
	// Endpoint
	tagAddress             = 1<<3 | bytesType
	tagHostname            = 3<<3 | bytesType
	tagAdditionalAddresses = 4<<3 | bytesType
	// Endpoint.AdditionalAddress
	tagAdditionalAddress = 1<<3 | bytesType
	// Address; the three are a oneof
	tagSocketAddress   = 1<<3 | bytesType
	tagPipe            = 2<<3 | bytesType
	tagInternalAddress = 3<<3 | bytesType
	// SocketAddress; port_value and named_port are a oneof
	tagIP        = 2<<3 | bytesType
	tagPortValue = 3<<3 | varintType
	tagNamedPort = 4<<3 | bytesType
	// UInt32Value
	tagValue = 1<<3 | varintType
	// ClusterLoadAssignment.Policy
	tagDropOverloads = 2<<3 | bytesType
	// ClusterLoadAssignment.Policy.DropOverload
	tagCategory       = 1<<3 | bytesType
	tagDropPercentage = 2<<3 | bytesType
	// FractionalPercent
	tagNumerator   = 1<<3 | varintType
	tagDenominator = 2<<3 | varintType
)

// localityFields is a LocalityLbEndpoints without its endpoints.
type localityFields struct {
	id        picker.LocalityID
	hasID     bool
	weight    uint32 // 0 if unset, which is equivalent
	priority  uint32
	metadata  []byte
	endpoints int // number of endpoints in list
	// list is the message that contains the endpoints as fields with tag: the locality's
	// message, or its load_balancer_endpoints if listed.
	list   []byte
	tag    uint64
	listed bool
	both   bool // both lb_endpoints and load_balancer_endpoints are set
	leds   bool // leds_cluster_locality_config is set
}

// parse sets f from the encoding of a LocalityLbEndpoints.
func (f *localityFields) parse(b []byte) (ok bool) {
	*f = localityFields{list: b, tag: tagLbEndpoints}
	var id, weight, list []byte
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case tagLocality:
			id = merge(id, r.bytes)
		case tagLbEndpoints:
			f.endpoints++
		case tagLocalityWeight:
			weight = merge(weight, r.bytes)
		case tagPriority:
			f.priority = uint32(r.varint)
		case tagEndpointList: // a oneof with the next one
			list, f.leds = merge(list, r.bytes), false
		case tagLEDS:
			list, f.leds = nil, true
		case tagLocalityMetadata:
			f.metadata = merge(f.metadata, r.bytes)
		}
	}
	f.hasID = id != nil
	ok = !r.bad && parseUint32(weight, &f.weight)
	if list != nil {
		ok = f.useList(list) && ok
	}
	r = reader{rest: id}
	for r.next() {
		switch r.tag {
		case tagRegion:
			ok = setText(&f.id.Region, r.bytes) && ok
		case tagZone:
			ok = setText(&f.id.Zone, r.bytes) && ok
		case tagSubZone:
			ok = setText(&f.id.SubZone, r.bytes) && ok
		}
	}
	return ok && !r.bad
}

// useList selects the endpoints of load_balancer_endpoints, an equivalent of lb_endpoints.
func (f *localityFields) useList(list []byte) (ok bool) {
	f.both, f.listed = f.endpoints > 0, true
	f.list, f.tag, f.endpoints = list, tagListed, 0
	r := reader{rest: list}
	for r.next() {
		if r.tag == tagListed {
			f.endpoints++
		}
	}
	return !r.bad
}

// endpointFields is an LbEndpoint.
type endpointFields struct {
	endpoint  []byte // nil if unset
	health    int32
	weight    uint32
	hasWeight bool
	metadata  []byte

	// The fields of endpoint.
	address    addressFields
	additional []addressFields
	hostname   []byte
}

// parse sets all of f from the encoding of an LbEndpoint. It allocates only for additional
// addresses, and only until f has capacity for them.
func (f *endpointFields) parse(b []byte) (ok bool) {
	*f = endpointFields{additional: f.additional[:0]}
	var weight, address []byte
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case tagEndpoint:
			f.endpoint = merge(f.endpoint, r.bytes)
		case tagEndpointName:
			f.endpoint = nil
		case tagHealthStatus:
			f.health = int32(r.varint)
		case tagMetadata:
			f.metadata = merge(f.metadata, r.bytes)
		case tagEndpointWeight:
			weight = merge(weight, r.bytes)
			f.hasWeight = true
		}
	}
	ok = !r.bad && parseUint32(weight, &f.weight)
	r = reader{rest: f.endpoint}
	for r.next() {
		switch r.tag {
		case tagAddress:
			address = merge(address, r.bytes)
		case tagHostname:
			f.hostname = r.bytes
			ok = ok && validText(r.bytes)
		case tagAdditionalAddresses:
			ok = f.parseAdditional(r.bytes) && ok
		}
	}
	return f.address.parse(address) && ok && !r.bad
}

func (f *endpointFields) parseAdditional(b []byte) (ok bool) {
	var address []byte
	r := reader{rest: b}
	for r.next() {
		if r.tag == tagAdditionalAddress {
			address = merge(address, r.bytes)
		}
	}
	var a addressFields
	ok = a.parse(address)
	f.additional = append(f.additional, a)
	return ok && !r.bad
}

// usable returns the endpoint's health, and false if the endpoint is excluded because of it
// (A27-CLA-8).
func (f *endpointFields) usable() (h picker.Health, usable bool) {
	switch corev3.HealthStatus(f.health) {
	case corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY:
		return picker.Healthy, true
	case corev3.HealthStatus_DRAINING:
		return picker.Draining, true
	}
	return 0, false
}

// addressFields is an Address.
type addressFields struct {
	missing string // the outermost required field that is unset
	text    []byte
	port    uint32
}

// parse sets f from the encoding of an Address, which is nil if it is unset.
func (f *addressFields) parse(b []byte) (ok bool) {
	if b == nil {
		f.missing = "address"
		return true
	}
	var socket []byte
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case tagSocketAddress:
			socket = merge(socket, r.bytes)
		case tagPipe, tagInternalAddress:
			socket = nil
		}
	}
	ok = !r.bad
	f.missing = "socket_address"
	if socket != nil {
		f.missing = "port_value"
	}
	r = reader{rest: socket}
	for r.next() {
		switch r.tag {
		case tagIP:
			f.text = r.bytes
			ok = ok && validText(r.bytes)
		case tagPortValue:
			f.port, f.missing = uint32(r.varint), ""
		case tagNamedPort:
			f.port, f.missing = 0, "port_value"
		}
	}
	return ok && !r.bad
}

// parseUint32 sets n from the encoding of a UInt32Value.
func parseUint32(b []byte, n *uint32) (ok bool) {
	r := reader{rest: b}
	for r.next() {
		if r.tag == tagValue {
			*n = uint32(r.varint)
		}
	}
	return !r.bad
}

// setText sets s from a string field. It returns false if the bytes are not UTF-8.
func setText(s *string, b []byte) (ok bool) {
	*s = string(b)
	return validText(b)
}

func validText(b []byte) bool { return utf8.Valid(b) }
