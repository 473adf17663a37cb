// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package cookbook builds the examples of integrate/docs/cookbook.md with go-control-plane's types:
// one function for each policy and feature that a control plane can switch on.
//
// The tests load the JSON of the page into a control plane and verify the effect of each example on
// RPCs. They also verify that the functions return the same messages as the JSON.
package cookbook

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// anyOf wraps a message, such as the configuration of a policy or of a filter.
func anyOf(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // a string in m is not UTF-8
	}
	return a
}

// extension names the configuration of an extension. Clients ignore the name.
func extension(name string, m proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: anyOf(m)}
}

// ads is the source of a resource that comes on the same ADS stream.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

// eds returns a cluster whose endpoints are in the ClusterLoadAssignment of the same name.
func eds(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
	}
}

// withPolicy returns cluster "orders" with a policy as its load_balancing_policy.
func withPolicy(name string, policy proto.Message) *clusterv3.Cluster {
	c := eds("orders")
	c.LoadBalancingPolicy = policies(extension(name, policy))
	return c
}

// policies lists policies in order of preference. A client uses the first one that it supports.
func policies(list ...*corev3.TypedExtensionConfig) *clusterv3.LoadBalancingPolicy {
	out := &clusterv3.LoadBalancingPolicy{}
	for _, p := range list {
		out.Policies = append(out.Policies, &clusterv3.LoadBalancingPolicy_Policy{TypedExtensionConfig: p})
	}
	return out
}

func seconds(n float64) *durationpb.Duration {
	return durationpb.New(time.Duration(n * float64(time.Second)))
}

func number(n uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(n) }
