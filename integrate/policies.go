// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	_ "google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
	_ "google.golang.org/grpc/resolver/ringhash"

	"context"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
)

// The LB policies that any channel can use without xDS, whatever its resolver:
// by name in the loadBalancingConfig of its service config, once this package is
// imported. Their parameters, all of them optional, are those of the JSON objects
// there. A resolver gives endpoints weights by package
// google.golang.org/grpc/experimental/balancer/weight; an endpoint without one
// has weight 1.
const (
	// WeightedRoundRobin is round robin by endpoint weight, in EDF order
	// (EDF-1..17). Weights take effect within 20 ms of the resolver's reporting
	// them. {}
	WeightedRoundRobin = balancer.WeightedRoundRobin
	// RingHash sends RPCs to endpoints by their hash (A42, A61, A76): that of
	// [WithRequestHash], or of the header that requestHashHeader names, or a
	// random one. {"minRingSize": 1024, "maxRingSize": 4096,
	// "requestHashHeader": "", "hashFunction": "XXH3" or "XX_HASH"}
	RingHash = balancer.RingHash
	// LeastRequest sends an RPC to that of a few random endpoints which has the
	// fewest in flight (A48). {"choiceCount": 2}
	LeastRequest = balancer.LeastRequest
	// LeastLatency sends an RPC to that of two random endpoints where it costs less
	// ([picker.PolicyLeastLatency]): the latency of late times the RPCs in flight.
	// {"decayTime": "10s"}
	LeastLatency = balancer.LeastLatency
	// Prequal asks endpoints for their load, and sends an RPC to the one that said the
	// best. Servers take part by package integrate/probe; without it the policy is
	// that of [LeastLatency]. [lbpolicy.Prequal] has the parameters.
	// {"poolSize": 16, "maxAge": "1s", "probesPerRpc": 3, "removePerRpc": 1,
	// "hotQuantile": 0.84, "probeTimeout": "0.1s", "maxProbesPerSecond": 500}
	Prequal = balancer.Prequal
)

// WithRequestHash returns a context whose RPCs are hashed to h where a cluster's
// policy hashes, whatever the route's hash policies say: for callers that have
// a good hash already, such as a shard key. It allocates once.
func WithRequestHash(ctx context.Context, h uint64) context.Context {
	return metadatautil.WithHash(ctx, h)
}

// EndpointInfo is what EDS says about an endpoint. It must not be written, nor
// what it refers to.
type EndpointInfo = balancer.EndpointInfo

// EndpointInfoOf returns what EDS says about an endpoint of a custom LB policy
// (A52), or nil if the endpoint does not come from xDS.
//
// gRPC's own attributes are there besides, for policies that are used without
// xDS too: the weight of [weight.FromEndpoint] is the endpoint's share of its
// priority in units of 2⁻³¹, as A113 has it, and [ringhash.HashKey] is the
// envoy.lb/hash_key of the metadata (A76).
//
// A policy that reads the resolver's list of addresses instead finds the same
// in their BalancerAttributes.
func EndpointInfoOf(e resolver.Endpoint) *EndpointInfo { return balancer.EndpointInfoOf(e) }
