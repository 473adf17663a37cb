// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"net/netip"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	clientwrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// proto is the cluster as CDS has it.
func (c *cluster) proto(addrs map[string]netip.AddrPort) *clusterv3.Cluster {
	var opts []testplane.ClusterOption
	if c.maxRequests != 0 {
		opts = append(opts, testplane.MaxRequests(c.maxRequests))
	}
	if c.loadReports {
		opts = append(opts, testplane.LoadReports())
	}
	if opt := policyOption(c.policy); opt != nil {
		opts = append(opts, opt)
	}
	m := xdstest.Cluster(c.name, c.edsName, opts...)
	if c.maxRetries != 0 {
		m.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRetries: wrapperspb.UInt32(c.maxRetries)}}}
	}
	if c.checked {
		m.HealthChecks = []*corev3.HealthCheck{{HealthChecker: &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{}}}}
	}
	if c.outlier {
		m.OutlierDetection = &clusterv3.OutlierDetection{}
	}
	switch c.kind {
	case dns:
		m.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS}
		m.EdsClusterConfig = nil
		first := xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: addrs[c.name+".0"]}}}
		m.LoadAssignment = xdstest.Endpoints(c.name, first)
	case aggregate:
		m.EdsClusterConfig = nil
		m.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: mustAny(&aggregatev3.ClusterConfig{Clusters: c.children}),
		}}
	}
	return m
}

// policyOption sets an LB policy; nil is ROUND_ROBIN.
func policyOption(policy string) testplane.ClusterOption {
	switch policy {
	case leastRequest:
		return testplane.LeastRequest(2)
	case ringHash:
		return testplane.RingHash(64, 1024)
	case wrrRoundRobin:
		return testplane.Policies(testplane.WrrLocality(&roundrobinv3.RoundRobin{}))
	case wrrRandom:
		return testplane.Policies(testplane.WrrLocality(&randomv3.Random{}, &roundrobinv3.RoundRobin{}))
	case wrrLeastRequest:
		return testplane.Policies(testplane.WrrLocality(&leastrequestv3.LeastRequest{ChoiceCount: wrapperspb.UInt32(3)}))
	case wrrPickFirst:
		return testplane.Policies(testplane.WrrLocality(&pickfirstv3.PickFirst{}))
	case clientWeightedRR:
		return testplane.Policies(testplane.WrrLocality(&clientwrrv3.ClientSideWeightedRoundRobin{}))
	case plainRoundRobin:
		return testplane.Policies(&roundrobinv3.RoundRobin{})
	case pickFirst:
		return testplane.Policies(&pickfirstv3.PickFirst{})
	case typedRingHash:
		return testplane.Policies(&ringhashv3.RingHash{
			HashFunction:    ringhashv3.RingHash_XX_HASH,
			MinimumRingSize: wrapperspb.UInt64(32), MaximumRingSize: wrapperspb.UInt64(512),
		})
	}
	return nil
}

// endpoints are the cluster's as EDS has them.
func (c *cluster) endpoints(addrs map[string]netip.AddrPort) *endpointv3.ClusterLoadAssignment {
	var list []xdstest.Locality
	for _, l := range c.localities {
		out := xdstest.Locality{Place: xdstest.Place{Region: "r", Zone: l.name}, Priority: l.priority, Weight: l.weight}
		for _, e := range l.endpoints {
			out.Endpoints = append(out.Endpoints, xdstest.Endpoint{Addr: addrs[e.backend], Weight: e.weight, Health: e.health})
		}
		list = append(list, out)
	}
	cla := xdstest.Endpoints(c.edsResource(), list...)
	for i, l := range c.localities {
		if l.weight == 0 {
			cla.Endpoints[i].LoadBalancingWeight = nil
		}
	}
	for _, d := range c.drops {
		if cla.Policy == nil {
			cla.Policy = &endpointv3.ClusterLoadAssignment_Policy{}
		}
		cla.Policy.DropOverloads = append(cla.Policy.DropOverloads, &endpointv3.ClusterLoadAssignment_Policy_DropOverload{
			Category: d.category, DropPercentage: d.fraction.proto(),
		})
	}
	return cla
}
