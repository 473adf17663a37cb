// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// each calls f with the fields of an encoded message, up to the first malformed one: number, tag with
// content, and content. The number is 0 unless the field has a length, as strings and messages have.
func each(value []byte, f func(number protowire.Number, field, content []byte)) {
	for len(value) > 0 {
		number, typ, tag := protowire.ConsumeTag(value)
		if tag < 0 {
			return
		}
		n := protowire.ConsumeFieldValue(number, typ, value[tag:])
		if n < 0 {
			return
		}
		field, content := value[:tag+n], []byte(nil)
		if typ == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(value[tag:])
		} else {
			number = 0
		}
		f(number, field, content)
		value = value[tag+n:]
	}
}

// fields returns the fields with some numbers, as a message of their own.
func fields(value []byte, numbers ...protowire.Number) []byte {
	kept := []byte{}
	each(value, func(number protowire.Number, field, _ []byte) {
		if slices.Contains(numbers, number) {
			kept = append(kept, field...)
		}
	})
	return kept
}

// fieldsExcept returns the fields without those of a number.
func fieldsExcept(value []byte, except protowire.Number) []byte {
	kept := []byte{}
	each(value, func(number protowire.Number, field, _ []byte) {
		if number != except {
			kept = append(kept, field...)
		}
	})
	return kept
}

// text returns a field that is a string.
func text(value []byte, number protowire.Number) (s string) {
	each(value, func(n protowire.Number, _, content []byte) {
		if n == number {
			s = string(content) // the last one is in force
		}
	})
	return s
}

// rewrite returns a message with another content of the fields with a number, and whether f reported a
// change of any.
func rewrite(value []byte, number protowire.Number, f func(content []byte) ([]byte, bool)) (_ []byte, changed bool) {
	var out []byte
	each(value, func(n protowire.Number, field, content []byte) {
		if n == number {
			if replaced, ok := f(content); ok {
				out, changed = appendField(out, number, replaced), true
				return
			}
		}
		out = append(out, field...)
	})
	if !changed {
		return value, false
	}
	return out, true
}

func appendField(message []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), content)
}
