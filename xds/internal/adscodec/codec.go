// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package adscodec provides gRPC's codec for ADS streams. It reads responses in state of the world
// without copying their resources, and bounds the number of entries of all responses.
package adscodec

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
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

// frameSize is the size of the largest HTTP/2 frame that gRPC receives.
const frameSize = 16 << 10

// Buffers allocates the memory for responses. It is gRPC's pool, except that buffers for frames
// are not cleared.
var Buffers mem.BufferPool = &framePool{BufferPool: mem.DefaultBufferPool()}

type framePool struct {
	mem.BufferPool
	pool sync.Pool
}

// Get returns a buffer.
func (p *framePool) Get(length int) *[]byte {
	if length <= frameSize/2 || length > frameSize {
		return p.BufferPool.Get(length)
	}
	b, ok := p.pool.Get().(*[]byte)
	if !ok {
		b = new([]byte)
		*b = make([]byte, frameSize)
	}
	*b = (*b)[:length]
	return b
}

// Put returns a buffer of Get to the pool.
func (p *framePool) Put(b *[]byte) {
	if cap(*b) == frameSize {
		p.pool.Put(b)
		return
	}
	p.BufferPool.Put(b)
}

// cursor reads bytes from several buffers, in O(bytes) even if the buffers are small. Its results
// alias the buffers, except for results that extend over several buffers.
type cursor struct {
	head   []byte          // the unread part of the first buffer
	rest   mem.BufferSlice // the next ones
	left   uint64          // bytes in all
	copied []byte          // results that extend over several buffers, the last one of chunks
	chunks mem.BufferSlice
	small  [2 * 10]byte // result of peek from several buffers
}

func newCursor(data mem.BufferSlice) cursor {
	return cursor{rest: data, left: uint64(data.Len())}
}

// next moves to the next buffer if the current buffer is at its end.
func (c *cursor) next() {
	for len(c.head) == 0 && len(c.rest) > 0 {
		c.head, c.rest = c.rest[0].ReadOnlyData(), c.rest[1:]
	}
}

// peek returns the next bytes, enough for a tag and a length; fewer only at the end. They
// are valid until the next call.
func (c *cursor) peek() []byte {
	c.next()
	if len(c.head) >= len(c.small) || uint64(len(c.head)) == c.left {
		return c.head
	}
	n := copy(c.small[:], c.head)
	for _, b := range c.rest {
		n += copy(c.small[n:], b.ReadOnlyData())
		if n == len(c.small) {
			break
		}
	}
	return c.small[:n]
}

// take returns the next n bytes; not ok if there are fewer.
func (c *cursor) take(n uint64) (b []byte, ok bool) {
	if n > c.left {
		return nil, false
	}
	c.next()
	c.left -= n
	if n <= uint64(len(c.head)) {
		b, c.head = c.head[:n:n], c.head[n:]
		return b, true
	}
	if uint64(cap(c.copied)-len(c.copied)) < n {
		b := Buffers.Get(max(int(n), frameSize))
		c.copied, c.chunks = (*b)[:0], append(c.chunks, mem.NewBuffer(b, Buffers))
	}
	begin := len(c.copied)
	for n > 0 {
		c.next()
		k := min(n, uint64(len(c.head)))
		c.copied, c.head = append(c.copied, c.head[:k]...), c.head[k:]
		n -= k
	}
	return c.copied[begin:len(c.copied):len(c.copied)], true
}

// field returns the next field, which has a tag of some bytes; not ok if it is malformed.
func (c *cursor) field(num protowire.Number, typ protowire.Type, tag int) (field []byte, ok bool) {
	value := c.peek()[tag:]
	switch typ {
	case protowire.BytesType:
		length, n := protowire.ConsumeVarint(value)
		if n < 0 || length > c.left {
			return nil, false
		}
		return c.take(uint64(tag+n) + length)
	case protowire.StartGroupType:
		// The length of a group is known only at its end. Messages that are read here contain
		// no groups.
		all, _ := c.take(c.left)
		c.head, c.left = all, uint64(len(all))
		value = all[tag:]
	}
	n := protowire.ConsumeFieldValue(num, typ, value)
	if n < 0 {
		return nil, false
	}
	return c.take(uint64(tag + n))
}

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
