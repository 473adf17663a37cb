// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package adscodec

import (
	"errors"
	"slices"
	"sync"
	"unicode/utf8"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Response is a DiscoveryResponse. It has all resources of its type, of which
// most have not changed and are only hashed. So they are not copied: they stay in gRPC's
// buffers, which the response holds until Free, instead of three allocations for each
// (BenchmarkUnmarshalResponse). Decoded resources do not refer to them.
type Response struct {
	*discoveryv3.DiscoveryResponse // without resources

	Parts []Part
	data  mem.BufferSlice
	bytes int
}

// Part is a resource of a response: the fields of its Any.
type Part struct {
	URL   string
	Value []byte // it must not be used after Free
}

var errMalformed = errors.New("xdslb: malformed DiscoveryResponse")

// resourcesField is the number of DiscoveryResponse.resources.
const resourcesField = 2

// read reads a response as proto.Unmarshal does.
func (r *Response) read(data mem.BufferSlice) error {
	r.DiscoveryResponse = &discoveryv3.DiscoveryResponse{}
	list, _ := partLists.Get().(*[]Part)
	if list == nil {
		list = new([]Part)
	}
	r.data, r.Parts, r.bytes = slices.Clip(data), *list, data.Len()
	data.Ref()
	err := r.parse(newCursor(data))
	if err != nil {
		r.Free()
	}
	return err
}

// Free releases gRPC's buffers. Parts must not be used after that.
func (r *Response) Free() {
	r.data.Free()
	clear(r.Parts)
	if list := r.Parts[:0]; cap(list) <= maxParts {
		partLists.Put(&list)
	}
	r.data, r.Parts = nil, nil
}

// partLists has slices for Response.Parts, of maxParts at most.
var partLists sync.Pool

const maxParts = 1 << 16

// Size returns the number of bytes.
func (r *Response) Size() int { return r.bytes }

// parse finds the resources, and decodes all other fields.
func (r *Response) parse(c cursor) error {
	defer func() { r.data = append(r.data, c.chunks...) }()
	var rest []byte // all other fields
	url := ""       // of the resource before; most are the same
	limit := entryLimit(c.left)
	for n := 0; ; n++ {
		head := c.peek()
		if len(head) == 0 {
			break
		}
		if n == limit {
			return errTooMany
		}
		num, typ, tag := protowire.ConsumeTag(head)
		if tag < 0 || num > protowire.MaxValidNumber {
			return errMalformed
		}
		if num != resourcesField || typ != protowire.BytesType {
			field, ok := c.field(num, typ, tag)
			if !ok {
				return errMalformed
			}
			rest = append(rest, field...)
			continue
		}
		size, n := protowire.ConsumeVarint(head[tag:])
		if n < 0 {
			return errMalformed
		}
		c.take(uint64(tag + n))
		value, ok := c.take(size)
		if !ok {
			return errMalformed
		}
		p, err := readPart(value, url)
		if err != nil {
			return err
		}
		r.Parts = append(r.Parts, p)
		url = p.URL
	}
	return proto.Unmarshal(rest, r.DiscoveryResponse)
}

// readPart is proto.Unmarshal for an Any, whose value aliases the data.
func readPart(data []byte, url string) (p Part, err error) {
	for rest := data; len(rest) > 0; {
		num, typ, tag := protowire.ConsumeTag(rest)
		if tag < 0 || typ != protowire.BytesType {
			return readAny(data)
		}
		value, n := protowire.ConsumeBytes(rest[tag:])
		switch {
		case n < 0:
			return readAny(data)
		case num == 1 && string(value) == url:
			p.URL = url
		case num == 1 && utf8.Valid(value):
			p.URL = string(value)
		case num == 2:
			p.Value = value[:len(value):len(value)]
		default:
			return readAny(data)
		}
		rest = rest[tag+n:]
	}
	return p, nil
}

// readAny is readPart for unusual encodings.
func readAny(data []byte) (Part, error) {
	var a anypb.Any
	if err := proto.Unmarshal(data, &a); err != nil {
		return Part{}, err
	}
	return Part{a.TypeUrl, a.Value}, nil
}
