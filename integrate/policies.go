// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"

	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/picker"
)

// The LB policies that any channel can use without xDS, with any resolver: by name in the
// loadBalancingConfig of its service config, once this package is imported. The parameters, all of
// them optional, are shown as JSON. A resolver sets the weights of endpoints by package
// google.golang.org/grpc/experimental/balancer/weight; the default weight is 1.
const (
	// WeightedRoundRobin is round robin by endpoint weight, in EDF order. Weights take effect
	// within 20 ms of the resolver's update. {}
	WeightedRoundRobin = "xdslb_weighted_round_robin"
	// RingHash picks endpoints by the hash of the RPC (A42, A61, A76): the hash of
	// [WithRequestHash], or of the header requestHashHeader, or a random one.
	// {"minRingSize": 1024, "maxRingSize": 4096, "requestHashHeader": "",
	// "hashFunction": "XXH3" or "XX_HASH"}
	RingHash = "xdslb_ring_hash"
	// LeastRequest picks the endpoint with the fewest RPCs in flight among a few random ones
	// (A48). {"choiceCount": 2}
	LeastRequest = "xdslb_least_request"
	// LeastLatency picks the cheaper of two random endpoints, or of all if they are few: the cost is the recent latency
	// times the RPCs in flight. {"decayTime": "10s", "slow_start_config": {"slow_start_window": "0s"}}, where
	// slow_start_config is Envoy's message.
	LeastLatency = "xdslb_least_latency"
	// Prequal probes endpoints for their load, and picks the endpoint with the best answer.
	// Servers answer by package integrate/probe; without it the policy is [LeastLatency].
	// [github.com/xdslb/xdslb/xds/lbpolicy.Prequal] describes the parameters.
	// {"poolSize": 16, "maxAge": "1s", "probesPerRpc": 3, "removePerRpc": 1,
	// "hotQuantile": 0.84, "probeTimeout": "0.1s", "maxProbesPerSecond": 500}, and the slow_start_config of
	// LeastLatency
	Prequal = "xdslb_prequal"
)

// WithRequestHash returns a context whose RPCs have the hash h under LB policies that hash,
// whatever the hash policies of the route, for callers that have a good hash, such as that of a
// shard key. It allocates once.
func WithRequestHash(ctx context.Context, h uint64) context.Context {
	return metadatautil.WithHash(ctx, h)
}

// EndpointInfo is the EDS data of an endpoint. Neither it nor the maps in it may be modified.
type EndpointInfo struct {
	Locality         picker.LocalityID
	LocalityWeight   uint32          // within the priority; ≥ 1
	LocalityMetadata picker.Metadata // nil for most
	Weight           uint32          // within the locality; ≥ 1
	Hostname         string          // "" for most
	Metadata         picker.Metadata // nil for most
}

// EndpointInfoOf returns the EDS data of an endpoint of a custom LB policy (A52); nil if the endpoint
// does not come from xDS.
//
// Endpoints have gRPC's own attributes too, for policies that are also used without xDS: the weight
// of [google.golang.org/grpc/experimental/balancer/weight.FromEndpoint] is the endpoint's share of
// its priority in units of 2⁻³¹ (A113), and [google.golang.org/grpc/resolver/ringhash.HashKey] is
// the envoy.lb/hash_key of the metadata (A76). Policies that read the resolver's addresses find the
// same in their BalancerAttributes.
func EndpointInfoOf(e resolver.Endpoint) *EndpointInfo {
	return (*EndpointInfo)(balancer.EndpointInfoOf(e))
}
