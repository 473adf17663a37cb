// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"testing"

	typedstructv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterprovidedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/cluster_provided/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	subsettingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// listOf returns a list with an entry for each message.
func listOf(t testing.TB, messages ...proto.Message) *clusterv3.LoadBalancingPolicy {
	t.Helper()
	list := new(clusterv3.LoadBalancingPolicy)
	for _, m := range messages {
		config, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		list.Policies = append(list.Policies, entryOf(config))
	}
	return list
}

func entryOf(config *anypb.Any) *clusterv3.LoadBalancingPolicy_Policy {
	return &clusterv3.LoadBalancingPolicy_Policy{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "ignored", TypedConfig: config},
	}
}

func weighted(list *clusterv3.LoadBalancingPolicy) proto.Message {
	return &wrrlocalityv3.WrrLocality{EndpointPickingPolicy: list}
}

func subset(size uint32, list *clusterv3.LoadBalancingPolicy) proto.Message {
	return &subsettingv3.RandomSubsetting{SubsetSize: wrapperspb.UInt32(size), ChildPolicy: list}
}

func choices(n uint32) proto.Message {
	return &leastrequestv3.LeastRequest{ChoiceCount: wrapperspb.UInt32(n)}
}

func typedStruct(t testing.TB, name string, value map[string]any) proto.Message {
	t.Helper()
	s, err := structpb.NewStruct(value)
	if err != nil {
		t.Fatal(err)
	}
	return &typedstructv3.TypedStruct{TypeUrl: "type.googleapis.com/" + name, Value: s}
}

var (
	robin       proto.Message = new(roundrobinv3.RoundRobin)
	unsupported proto.Message = new(clusterprovidedv3.ClusterProvided)
)
