// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"

	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/xds/lbpolicy"
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
	WeightedRoundRobin = nameWeightedRoundRobin
	// RingHash sends RPCs to endpoints by their hash (A42, A61, A76): that of
	// [WithRequestHash], or of the header that requestHashHeader names, or a
	// random one. {"minRingSize": 1024, "maxRingSize": 4096,
	// "requestHashHeader": "", "hashFunction": "XXH3" or "XX_HASH"}
	RingHash = nameRingHash
	// LeastRequest sends an RPC to that of a few random endpoints which has the
	// fewest in flight (A48). {"choiceCount": 2}
	LeastRequest = nameLeastRequest
	// LeastLatency sends an RPC to that of two random endpoints where it costs less
	// ([picker.PolicyLeastLatency]): the latency of late times the RPCs in flight.
	// {"decayTime": "10s"}
	LeastLatency = nameLeastLatency
	// Prequal asks endpoints for their load, and sends an RPC to the one that said the
	// best. Servers take part by package integrate/probe; without it the policy is
	// that of [LeastLatency]. [lbpolicy.Prequal] has the parameters.
	// {"poolSize": 16, "maxAge": "1s", "probesPerRpc": 3, "removePerRpc": 1,
	// "hotQuantile": 0.84, "probeTimeout": "0.1s", "maxProbesPerSecond": 500}
	Prequal = lbpolicy.NamePrequal
)

// WithRequestHash returns a context whose RPCs are hashed to h where a cluster's
// policy hashes, whatever the route's hash policies say: for callers that have
// a good hash already, such as a shard key. It allocates once.
func WithRequestHash(ctx context.Context, h uint64) context.Context {
	return metadatautil.WithHash(ctx, h)
}
