// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	subsettingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// RoundRobin picks endpoints in turn, by endpoint weight.
func RoundRobin() *clusterv3.Cluster { return withPolicy("round_robin", &roundrobinv3.RoundRobin{}) }

// LeastRequest compares two random endpoints, and picks the one with fewer RPCs in flight.
func LeastRequest() *clusterv3.Cluster {
	return withPolicy("least_request", &leastrequestv3.LeastRequest{ChoiceCount: number(2)})
}

// Random picks every endpoint with the same probability.
func Random() *clusterv3.Cluster { return withPolicy("random", &randomv3.Random{}) }

// RingHash picks by the hash of the route's hash_policy, from a ring.
func RingHash() *clusterv3.Cluster {
	return withPolicy("ring_hash", &ringhashv3.RingHash{
		HashFunction:    ringhashv3.RingHash_XX_HASH,
		MinimumRingSize: wrapperspb.UInt64(1024), MaximumRingSize: wrapperspb.UInt64(4096),
	})
}

// RingHashByHeader is ring hash by a header, without a hash_policy of the route.
func RingHashByHeader() *clusterv3.Cluster {
	return withPolicy("ring_hash", typed("ring_hash_experimental", map[string]any{
		"requestHashHeader": "x-user", "minRingSize": 1024, "maxRingSize": 4096,
	}))
}

// RingHashSlowStart is RingHashByHeader with slow start.
func RingHashSlowStart() *clusterv3.Cluster {
	return withPolicy("ring_hash", typed("ring_hash_experimental", map[string]any{
		"requestHashHeader": "x-user", "minRingSize": 1024, "maxRingSize": 4096,
		"slow_start_config": map[string]any{"slow_start_window": "60s", "min_weight_percent": map[string]any{"value": 10}},
	}))
}

// Maglev picks by the hash of the route's hash_policy, from a table.
func Maglev() *clusterv3.Cluster {
	return withPolicy("maglev", &maglevv3.Maglev{TableSize: wrapperspb.UInt64(65537)})
}

// ClientWRR weights endpoints by the utilization that they report with each response.
func ClientWRR() *clusterv3.Cluster {
	return withPolicy("client_wrr", &wrrv3.ClientSideWeightedRoundRobin{
		BlackoutPeriod: seconds(10), WeightExpirationPeriod: seconds(180), WeightUpdatePeriod: seconds(1),
		ErrorUtilizationPenalty: wrapperspb.Float(1),
	})
}

// PickFirst sends all RPCs to the first endpoint that is reachable.
func PickFirst() *clusterv3.Cluster { return withPolicy("pick_first", &pickfirstv3.PickFirst{}) }

// WrrLocality selects a locality by its weight, and then an endpoint of it.
func WrrLocality() *clusterv3.Cluster {
	return withPolicy("wrr_locality", &wrrlocalityv3.WrrLocality{
		EndpointPickingPolicy: policies(extension("round_robin", &roundrobinv3.RoundRobin{})),
	})
}

// RandomSubsetting connects a client to three endpoints only.
func RandomSubsetting() *clusterv3.Cluster {
	return withPolicy("random_subsetting", &subsettingv3.RandomSubsetting{
		SubsetSize:  number(3),
		ChildPolicy: policies(extension("round_robin", &roundrobinv3.RoundRobin{})),
	})
}

// ZoneAware keeps RPCs in the zone of the client as far as the load stays even.
func ZoneAware() *clusterv3.Cluster {
	return withPolicy("round_robin", &roundrobinv3.RoundRobin{
		LocalityLbConfig: &commonv3.LocalityLbConfig{
			LocalityConfigSpecifier: &commonv3.LocalityLbConfig_ZoneAwareLbConfig_{
				ZoneAwareLbConfig: &commonv3.LocalityLbConfig_ZoneAwareLbConfig{},
			},
		},
	})
}

// SlowStart raises the share of a new endpoint within a minute, starting at 10 %.
func SlowStart() *clusterv3.Cluster {
	return withPolicy("round_robin", &roundrobinv3.RoundRobin{SlowStartConfig: &commonv3.SlowStartConfig{
		SlowStartWindow: seconds(60), MinWeightPercent: &typev3.Percent{Value: 10},
	}})
}

// LeastLatency compares two random endpoints by their latency and their RPCs in flight. Clients that
// do not support it use round_robin.
func LeastLatency() *clusterv3.Cluster {
	c := eds("orders")
	c.LoadBalancingPolicy = policies(
		extension("least_latency", typed("xdslb_least_latency", map[string]any{"decayTime": "10s"})),
		extension("round_robin", &roundrobinv3.RoundRobin{}),
	)
	return c
}

// Recommended is least latency with slow start and zone-aware routing. Clients that do not support it use
// round_robin.
func Recommended() *clusterv3.Cluster {
	c := eds("orders")
	c.LoadBalancingPolicy = policies(
		extension("least_latency", typed("xdslb_least_latency", map[string]any{
			"slow_start_config":  map[string]any{"slow_start_window": "60s"},
			"locality_lb_config": map[string]any{"zone_aware_lb_config": map[string]any{}},
		})),
		extension("round_robin", &roundrobinv3.RoundRobin{}),
	)
	return c
}

// Prequal asks three endpoints for their load before each RPC. Clients that do not support it use
// least_request.
func Prequal() *clusterv3.Cluster {
	c := eds("orders")
	c.LoadBalancingPolicy = policies(
		extension("prequal", typed("xdslb_prequal", map[string]any{"synchronous": 3})),
		extension("least_request", &leastrequestv3.LeastRequest{}),
	)
	return c
}
