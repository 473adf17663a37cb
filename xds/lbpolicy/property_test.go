// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"math/rand/v2"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/xdslb/xdslb/picker"
)

// node is a policy of a random list: the contents of the message, without the message.
type node struct {
	is    string // unsupported, unregistered, bad, leaf, weighted or subset
	size  uint32 // choices of a leaf, size of a subset
	child []node
}

// randomList returns up to three policies with lists inside, of any depth.
func randomList(rng *rand.Rand, depth int) []node {
	list := make([]node, rng.IntN(4))
	for i := range list {
		n := &list[i]
		n.size = 2 + rng.Uint32N(9)
		switch k := rng.IntN(20); {
		case k < 4:
			n.is = "unsupported"
		case k < 7:
			n.is = "unregistered"
		case k < 8:
			n.is = "bad"
		case k < 10 || depth == 0:
			n.is = "leaf"
		case k < 17:
			n.is, n.child = "weighted", randomList(rng, depth-1)
		default:
			n.is, n.child = "subset", randomList(rng, depth-1)
		}
	}
	return list
}

func messages(t *testing.T, list []node) *clusterv3.LoadBalancingPolicy {
	var entries []proto.Message
	for _, n := range list {
		switch n.is {
		case "unsupported":
			entries = append(entries, unsupported)
		case "unregistered":
			entries = append(entries, typedStruct(t, "myorg.NotLinkedIn", nil))
		case "bad":
			entries = append(entries, choices(1))
		case "leaf":
			entries = append(entries, choices(n.size))
		case "weighted":
			entries = append(entries, weighted(messages(t, n.child)))
		case "subset":
			entries = append(entries, subset(n.size, messages(t, n.child)))
		}
	}
	return listOf(t, entries...)
}

// oracle is A52 for lists of nodes: remove unsupported ones, then the first decides everything.
// ok is false if the list is invalid.
func oracle(list []node, level int) (p picker.Policy, ok bool) {
	var supported []node
	for _, n := range list {
		if n.is != "unsupported" && n.is != "unregistered" {
			supported = append(supported, n)
		}
	}
	if level > 16 || len(supported) == 0 || supported[0].is == "bad" {
		return picker.Policy{}, false
	}
	first := supported[0]
	if first.is == "leaf" {
		return picker.Policy{Kind: picker.PolicyLeastRequest, Flat: true, Least: &picker.LeastRequest{Choices: first.size}}, true
	}
	p, ok = oracle(first.child, level+1)
	switch {
	case first.is == "weighted":
		p.Flat = false
		return p, ok && p.Subset == 0
	case p.Subset == 0:
		p.Subset = first.size
	default:
		p.Subset = min(p.Subset, first.size)
	}
	return p, ok
}

// TestRandomLists: A52-REG-4, A52-REG-5, A52-REG-7. It compares Convert with the oracle, on lists that are also deeper
// than 16 levels.
func TestRandomLists(t *testing.T) {
	rng := rand.New(rand.NewPCG(52, 1))
	n := 20000
	if testing.Short() {
		n = 2000
	}
	valid := 0
	for range n {
		list := randomList(rng, 5)
		if rng.IntN(8) == 0 { // the limit of levels is out of reach otherwise
			for range 10 + rng.IntN(5) {
				list = []node{{is: "weighted", child: list}}
			}
		}
		want, ok := oracle(list, 1)
		got, err := new(Registry).Convert(messages(t, list))
		if ok != (err == nil) || ok && describe(got) != describe(want) {
			t.Fatalf("%+v: got %s, %v, want %s, valid: %t", list, describe(got), err, describe(want), ok)
		}
		if ok {
			valid++
		}
	}
	if valid < n/10 || valid > n*9/10 {
		t.Errorf("%d of %d lists were valid: the test has lost its point", valid, n)
	}
}

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
