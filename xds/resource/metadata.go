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

// metadata is the decoded form of an encoded Metadata. Endpoints whose metadata have equal
// encodings share it, within a version of a resource and across versions: control planes label
// thousands of endpoints with the same few labels, and a decoded map is twenty times the size
// of its encoding.
type metadata struct {
	key   string                // the encoding
	extra *picker.EndpointExtra // of endpoints without other extra fields; nil if it is empty
}

// decodeMetadata returns nil for empty and for invalid metadata.
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
	d.keepMetadata(m)
	return m
}

// keepMetadata adds metadata to those of the new version.
func (d *endpointsDecoder) keepMetadata(m *metadata) {
	if d.metadata == nil {
		d.metadata = make(map[string]*metadata)
	}
	d.metadata[m.key] = m
}

// newExtra converts metadata: it copies filter_metadata, and extracts the hash key (A76).
// typed_filter_metadata are not used yet.
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

// extra returns the extra fields of an endpoint with several addresses or a hostname: old's if
// they are equal. m and old may be nil.
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
		Addrs:    append([]netip.AddrPort(nil), d.addrs...), // nil if empty
		Hostname: string(f.hostname),
		HashKey:  known.HashKey,
		Metadata: known.Metadata,
	}
}
