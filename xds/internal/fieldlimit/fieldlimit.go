// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package fieldlimit counts the fields of encoded messages before they are unmarshaled. A field of
// two bytes may take some hundred times as much memory once it is decoded, so the size of a
// message is no bound.
package fieldlimit

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Max is the maximum number of fields, including fields of nested messages, of what is unmarshaled
// as a whole: a Listener or Cluster, all LB policies of a Cluster together, a virtual host without
// its routes, a route.
const Max = 1 << 18

// Count returns the number of fields of a message and its nested messages, or more than limit if
// there are more. Without a descriptor, it does not count fields of nested messages. Messages in
// an Any are not counted. Malformed or too deeply nested parts are left to proto.Unmarshal.
func Count(message []byte, d protoreflect.MessageDescriptor, limit int) int {
	return count(message, d, limit, 0)
}

func count(message []byte, d protoreflect.MessageDescriptor, limit, depth int) (n int) {
	for len(message) > 0 && n <= limit {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return n
		}
		message = message[size:]
		if size = protowire.ConsumeFieldValue(number, kind, message); size < 0 {
			return n
		}
		n++
		if kind == protowire.BytesType && d != nil && depth < protowire.DefaultRecursionLimit {
			if f := d.Fields().ByNumber(number); f != nil && f.Message() != nil {
				value, _ := protowire.ConsumeBytes(message)
				n += count(value, f.Message(), limit-n, depth+1)
			}
		}
		message = message[size:]
	}
	return n
}
