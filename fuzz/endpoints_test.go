// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"math"
	"net/netip"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// endpointSeeds are load assignments, and why each is of interest.
func endpointSeeds() []*endpointv3.ClusterLoadAssignment {
	hosts := func(first byte, weights ...uint32) (list []xdstest.Endpoint) {
		for i, w := range weights {
			list = append(list, xdstest.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, first + byte(i)}), 443), Weight: w})
		}
		return list
	}
	zone := func(name string, priority, weight uint32, list ...xdstest.Endpoint) xdstest.Locality {
		return xdstest.Locality{Place: xdstest.Place{Region: "r", Zone: name}, Priority: priority, Weight: weight, Endpoints: list}
	}
	draining := hosts(1, 1, 1, 1)
	draining[0].Health, draining[1].Health = corev3.HealthStatus_DRAINING, corev3.HealthStatus_UNHEALTHY
	return []*endpointv3.ClusterLoadAssignment{
		xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, 1, 2, 3)...), zone("b", 0, 2, hosts(9, 5, 5)...)), // weights on both levels
		xdstest.Endpoints("s"), // nothing to pick (A27-CLA-4)
		xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, 1)...), zone("a", 1, 1, hosts(2, 1)...)),                                    // two priorities
		xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, math.MaxUint32-1, 1)...)),                                                   // the most there can be (T-EDS-3)
		xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, math.MaxUint32)...), zone("b", 0, 1, hosts(2, math.MaxUint32, 0)...)),       // in one layer more than a locality may have
		xdstest.Endpoints("s", zone("a", 0, 1, draining...)),                                                                        // A55, A27-CLA-8
		testplane.Drop(testplane.Drop(xdstest.Endpoints("s", zone("a", 0, 1, hosts(1, 1)...)), "throttle", 250000), "all", 2000000), // more than everything
	}
}

// FuzzPicks takes an EDS resource, and another that came before it, through decoding to picks.
// Package resource compares the decoding with an oracle.
func FuzzPicks(f *testing.F) {
	last := []byte(nil)
	add := func(b []byte) {
		f.Add(b, last)
		last = b
	}
	for _, m := range endpointSeeds() {
		add(encode(f, m))
	}
	for _, b := range recorded(f, resource.EndpointsType, "-eds", "endpoints.txt") {
		add(b)
	}
	f.Fuzz(func(t *testing.T, value, before []byte) {
		var prev *resource.Endpoints
		for _, b := range [][]byte{before, value} {
			v, err := resource.Decode(resource.EndpointsType, b, resource.Options{Previous: prev})
			if err != nil {
				checkRefusal(t, err)
				continue
			}
			next := v.(*resource.Endpoints)
			if prev == nil {
				checkPicks(t, next)
			} else {
				checkPicks(t, prev, next)
			}
			prev = next
		}
	})
}
