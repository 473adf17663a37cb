// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy_test

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterprovidedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/cluster_provided/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/lbpolicy"
)

func policies(messages ...proto.Message) *clusterv3.LoadBalancingPolicy {
	list := new(clusterv3.LoadBalancingPolicy)
	for _, m := range messages {
		config, err := anypb.New(m)
		if err != nil {
			panic(err)
		}
		list.Policies = append(list.Policies, &clusterv3.LoadBalancingPolicy_Policy{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{TypedConfig: config},
		})
	}
	return list
}

func Example() {
	var registry lbpolicy.Registry
	policy, err := registry.OfCluster(&clusterv3.Cluster{
		LoadBalancingPolicy: policies(new(clusterprovidedv3.ClusterProvided), new(roundrobinv3.RoundRobin)),
		LbPolicy:            clusterv3.Cluster_RING_HASH, // not looked at
	})
	fmt.Println(policy.Kind == picker.PolicyEDF, policy.Flat, err)

	policy, err = registry.OfCluster(&clusterv3.Cluster{LbPolicy: clusterv3.Cluster_LEAST_REQUEST})
	fmt.Println(policy.Kind == picker.PolicyLeastRequest, policy.Least.Choices, policy.Flat, err)
	// Output:
	// true true <nil>
	// true 2 false <nil>
}

// A program can give a meaning to types that this package does not know: here, it
// takes the best of two random endpoints for a random one.
func ExampleRegistry_With() {
	registry := new(lbpolicy.Registry).With(
		"type.googleapis.com/envoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvided",
		func([]byte, lbpolicy.Nested) (picker.Policy, error) {
			return picker.Policy{
				Kind:  picker.PolicyLeastRequest,
				Flat:  true,
				Least: &picker.LeastRequest{Choices: 2},
			}, nil
		})
	policy, err := registry.Convert(policies(new(clusterprovidedv3.ClusterProvided), new(roundrobinv3.RoundRobin)))
	fmt.Println(policy.Kind == picker.PolicyLeastRequest, policy.Least.Choices, policy.Flat, err)
	// Output: true 2 true <nil>
}
