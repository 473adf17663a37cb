// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package adscodec

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

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
