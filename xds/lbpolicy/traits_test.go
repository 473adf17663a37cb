// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/xdslb/xdslb/picker"
)

// contrib is the message whose Go type is in a module that is not needed otherwise.
const contrib = "envoy.extensions.load_balancing_policies.peak_ewma.v3alpha.PeakEwma"

// TestTraitsOfMessages compares the names in the traits of policies, and what the policies support, with
// Envoy's messages and the converters. A trait that no configuration reaches would be useless, and a field
// of Envoy's message without the trait would be ignored.
func TestTraitsOfMessages(t *testing.T) {
	byKind := map[picker.PolicyKind]int{}
	for i, c := range conversions {
		byKind[c.kind] = i
	}
	for kind := picker.PolicyKind(0); kind.Traits().Name != "unknown"; kind++ {
		traits := kind.Traits()
		if traits.Delegates {
			continue // the program registers them
		}
		i, ok := byKind[kind]
		if !ok {
			t.Errorf("%s: no converter", traits.Name)
			continue
		}
		c := conversions[i]
		if (traits.Message != "") != (c.convert != nil) || (traits.TypedStruct != "") != (c.fromJSON != nil) {
			t.Errorf("%s: message %q and TypedStruct %q, of which the converters exist: %t, %t", traits.Name, traits.Message, traits.TypedStruct, c.convert != nil, c.fromJSON != nil)
		}
		var fields protoreflect.FieldDescriptors
		if traits.Message != "" && traits.Message != contrib {
			d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(traits.Message))
			if err != nil || d != c.message.ProtoReflect().Descriptor() {
				t.Errorf("%s: message %s: %v, and the converter reads %s", traits.Name, traits.Message, err, c.message.ProtoReflect().Descriptor().FullName())
				continue
			}
			fields = d.(protoreflect.MessageDescriptor).Fields()
		}
		for field, supported := range map[protoreflect.Name]bool{"slow_start_config": traits.SlowStart, "locality_lb_config": traits.Zones} {
			inMessage := fields != nil && fields.ByName(field) != nil
			if inMessage && !supported {
				t.Errorf("%s: %s has %s, which is not in the traits", traits.Name, traits.Message, field)
			}
			if supported && !inMessage && c.fromJSON == nil && !unreached[kind][field] {
				t.Errorf("%s: nothing configures %s, which is in the traits", traits.Name, field)
			}
		}
	}
}

// unreached are traits that only converters of the program can use.
var unreached = map[picker.PolicyKind]map[protoreflect.Name]bool{
	picker.PolicyRandom: {"slow_start_config": true}, // Envoy's message does not have it
}
