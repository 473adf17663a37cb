// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// metadata is what became of an encoded Metadata. Endpoints whose metadata have
// equal encodings share it, in one version of a resource and from version to
// version: control planes mark thousands of endpoints with the same few labels,
// and a decoded map is twenty times the size of its encoding.
type metadata struct {
	key   string                // the encoding
	extra *picker.EndpointExtra // of endpoints with nothing else to say; nil if there is nothing
}

// decodeMetadata returns nil for no metadata, and for invalid ones.
func (d *endpointsDecoder) decodeMetadata(b []byte) *metadata {
	if len(b) == 0 {
		return nil
	}
	m := d.metadata[string(b)]
	if m != nil {
		return m
	}
	if m = d.prev.metadata[string(b)]; m == nil {
		message := new(corev3.Metadata)
		if !unmarshalAt(b, message, d.here().dot("metadata")) {
			return nil
		}
		m = &metadata{key: string(b), extra: newExtra(message)}
	}
	if d.metadata == nil {
		d.metadata = make(map[string]*metadata)
	}
	d.metadata[m.key] = m
	return m
}

// newExtra converts metadata: the filter_metadata as they are, and the hash key
// on its own (A76). typed_filter_metadata have no reader yet.
func newExtra(m *corev3.Metadata) *picker.EndpointExtra {
	if len(m.GetFilterMetadata()) == 0 {
		return nil
	}
	extra := &picker.EndpointExtra{
		HashKey:  m.GetFilterMetadata()["envoy.lb"].GetFields()["hash_key"].GetStringValue(),
		Metadata: make(picker.Metadata, len(m.GetFilterMetadata())),
	}
	for name, object := range m.GetFilterMetadata() {
		extra.Metadata[name] = object.AsMap()
	}
	return extra
}

// extra returns what sets an endpoint with several addresses or a hostname
// apart: prev's if that is the same. m may be nil.
func (d *endpointsDecoder) extra(f *endpointFields, m *metadata, old *picker.Endpoint) *picker.EndpointExtra {
	var known picker.EndpointExtra
	if m != nil && m.extra != nil {
		known = *m.extra
	}
	if old != nil && old.Extra != nil && string(f.hostname) == old.Extra.Hostname &&
		slices.Equal(d.addrs, old.Extra.Addrs) && known.HashKey == old.Extra.HashKey &&
		persistent.SameMap(known.Metadata, old.Extra.Metadata) {
		return old.Extra
	}
	return &picker.EndpointExtra{
		Addrs:    append([]netip.AddrPort(nil), d.addrs...), // nil if there are none
		Hostname: string(f.hostname),
		HashKey:  known.HashKey,
		Metadata: known.Metadata,
	}
}
