// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package adscodec provides gRPC's codec for ADS streams. It reads responses in state of the world
// without copying their resources, and bounds the number of entries of all responses.
package adscodec

import (
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Codec is gRPC's codec, except that it can read responses in state of the world into a
// [Response], and refuses responses with more than maxEntries.
type Codec struct{ encoding.CodecV2 }

// New returns a Codec.
func New() Codec { return Codec{encoding.GetCodecV2(encodingproto.Name)} }

// maxEntries bounds the number of resources, names and errors in a response. The smallest
// entries have two bytes, and some hundred times as many in memory, so a response with more
// than denseEntries entries must have entryBytes for each further entry. Valid resources are
// larger, since a type URL has 50 bytes.
const (
	maxEntries   = 1 << 20
	denseEntries = 1 << 16
	entryBytes   = 8
)

var errTooMany = fmt.Errorf("xdslb: a response exceeds %d resources, names and errors, or %d plus one for every %d bytes", maxEntries, denseEntries, entryBytes)

// entryLimit returns the number of entries that a response of some bytes may have.
func entryLimit(bytes uint64) int { return int(min(denseEntries+bytes/entryBytes, maxEntries)) }

// Name is empty so that the content type is application/grpc, as without a codec.
func (Codec) Name() string { return "" }

// Unmarshal reads a response as proto.Unmarshal does.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *Response:
		return v.read(data)
	case *discoveryv3.DeltaDiscoveryResponse:
		if err := countEntries(newCursor(data)); err != nil {
			return err
		}
	}
	return c.CodecV2.Unmarshal(data, v)
}

// countEntries returns an error if a message has more fields than entryLimit. It ignores malformed
// fields, which are errors when the message is read.
func countEntries(c cursor) error {
	defer func() { c.chunks.Free() }()
	limit := entryLimit(c.left)
	for n := 0; ; n++ {
		head := c.peek()
		if len(head) == 0 {
			return nil
		}
		if n == limit {
			return errTooMany
		}
		num, typ, tag := protowire.ConsumeTag(head)
		if tag < 0 {
			return nil
		}
		if _, ok := c.field(num, typ, tag); !ok {
			return nil
		}
	}
}
