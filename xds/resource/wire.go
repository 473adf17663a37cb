// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// The wire types of the fields that are read, as the low bits of a tag.
const (
	varintType = uint64(protowire.VarintType)
	bytesType  = uint64(protowire.BytesType)
)

// A reader splits an encoded message into its fields:
//
//	r := reader{rest: message}
//	for r.next() {
//		switch r.tag {
//		case 2<<3 | bytesType: // field 2, from r.bytes
//		}
//	}
//	if r.bad { … }
//
// A known field with the wrong wire type has another tag and is skipped, as in proto.Unmarshal.
// A reader does not allocate.
type reader struct {
	rest   []byte
	tag    uint64 // field number and wire type
	varint uint64 // value of a varint field
	bytes  []byte // value of a field with a length; it has no spare capacity
	bad    bool   // the message is malformed
}

// next reads a field. It returns false at the end of the message, and if the message is
// malformed. Most tags and lengths are one byte long. Reading these inline, without a call,
// saves a third of the time of all decoding (BenchmarkDecodeEndpoints).
func (r *reader) next() bool {
	b := r.rest
	if len(b) == 0 {
		return false
	}
	n := 1
	if r.tag = uint64(b[0]); r.tag >= 0x80 {
		r.tag, n = protowire.ConsumeVarint(b)
	}
	if num := r.tag >> 3; n < 0 || num == 0 || num > uint64(protowire.MaxValidNumber) {
		r.bad = true
		return false
	}
	b = b[n:]
	switch r.tag & 7 {
	case bytesType:
		if len(b) > 0 && b[0] < 0x80 && int(b[0]) < len(b) {
			n = 1 + int(b[0])
			r.bytes = b[1:n:n]
		} else {
			r.bytes, n = protowire.ConsumeBytes(b)
			r.bytes = slices.Clip(r.bytes)
		}
	case varintType:
		r.varint, n = protowire.ConsumeVarint(b)
	default:
		n = protowire.ConsumeFieldValue(protowire.Number(r.tag>>3), protowire.Type(r.tag&7), b)
	}
	if n < 0 {
		r.bad = true
		return false
	}
	r.rest = b[n:]
	return true
}

// without returns a message without one of its repeated fields, and the number of elements of
// that field. It copies only if there are any. A malformed message remains malformed.
func without(message []byte, tag uint64) (rest []byte, n int) {
	r := reader{rest: message}
	for {
		field := r.rest
		if !r.next() {
			break
		}
		field = field[:len(field)-len(r.rest)]
		switch {
		case r.tag != tag && n > 0:
			rest = append(rest, field...)
		case r.tag == tag:
			if n++; n == 1 {
				rest = slices.Clone(message[:len(message)-len(r.rest)-len(field)])
			}
		}
	}
	switch {
	case r.bad:
		return malformed, 0
	case n == 0:
		return message, 0
	}
	return rest, n
}

// merge adds another occurrence of a message field that is not repeated: the concatenation of
// two encodings is an encoding of the two messages merged, which is the meaning of the field. A
// field that occurs once, as always in practice, is not copied. had is nil before the first
// occurrence.
func merge(had, b []byte) []byte {
	if had == nil {
		return b
	}
	return join(had, b)
}

// join is merge for a field that occurs again. b has no spare capacity, so the buffer to which
// join appends is its own.
//
// Halves of a message are invalid, even if they form a message together: each occurrence must
// be well-formed by itself. The first one is checked when a second one occurs, and is
// recognized by its lack of spare capacity; a buffer after append seldom lacks it, so merging
// takes O(bytes) in total.
func join(had, b []byte) []byte {
	if len(had) == cap(had) && !wellFormed(had) || !wellFormed(b) {
		return malformed
	}
	return append(had, b...)
}

// malformed is not a valid message, even with anything appended to it.
var malformed = []byte{0}

// wellFormed reports whether b can be split into fields.
func wellFormed(b []byte) bool {
	r := reader{rest: b}
	for r.next() {
	}
	return !r.bad
}
