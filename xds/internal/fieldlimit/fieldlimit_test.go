// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fieldlimit

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
)

func field(number protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
}

// TestCount: fields count at all depths of known messages, and not beyond the limit.
func TestCount(t *testing.T) {
	cluster := (&clusterv3.Cluster{}).ProtoReflect().Descriptor()
	for name, tt := range map[string]struct {
		message string
		d       protoreflect.MessageDescriptor
		limit   int
		want    int
	}{
		"nothing":                   {"", cluster, 10, 0},
		"texts":                     {field(1, "\x0a\x00\x0a\x00") + field(1, "b"), cluster, 10, 2},
		"a message in a message":    {field(33, field(2, "")+field(2, "")) + field(1, "c"), cluster, 10, 4},
		"an unknown message":        {field(1000, field(2, "")), cluster, 10, 1},
		"no descriptor":             {field(33, field(2, "")), nil, 10, 1},
		"as many as the limit":      {strings.Repeat(field(33, ""), 10), cluster, 10, 10},
		"more than the limit":       {strings.Repeat(field(33, ""), 1000), cluster, 10, 11},
		"more in a message":         {field(33, strings.Repeat(field(2, ""), 1000)), cluster, 10, 11},
		"malformed after two":       {field(1, "") + field(1, "") + "\x0a\x05", cluster, 10, 2},
		"a varint of message field": {string(protowire.AppendVarint(protowire.AppendTag(nil, 33, protowire.VarintType), 1)), cluster, 10, 1},
	} {
		if n := Count([]byte(tt.message), tt.d, tt.limit); n != tt.want {
			t.Errorf("%s: %d fields, want %d", name, n, tt.want)
		}
	}
	var deep string // a list in a list, and so on
	for range protowire.DefaultRecursionLimit {
		deep = field(1, field(6, deep))
	}
	if n := Count([]byte(deep), (&structpb.ListValue{}).ProtoReflect().Descriptor(), Max); n > protowire.DefaultRecursionLimit+1 {
		t.Errorf("%d fields were counted, want the number that proto.Unmarshal reads", n)
	}
}
