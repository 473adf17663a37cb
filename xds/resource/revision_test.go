// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// sharedAssignment is the base of the next version.
func sharedAssignment() *endpointv3.ClusterLoadAssignment {
	m := assignment(30, workload)
	m.Endpoints[2].Priority = 1
	m.Endpoints[1].LbEndpoints = m.Endpoints[1].LbEndpoints[:6]
	m.Endpoints[1].LbEndpoints[3].GetEndpoint().Hostname = "host"
	m.Endpoints[1].LbEndpoints[4].GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: socketAddress("::1", 1)}}
	m.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{Category: "lb"}}}
	return m
}

// sharing is a change of sharedAssignment, and the parts that both versions share.
type sharing struct {
	name   string
	change func(m *endpointv3.ClusterLoadAssignment)
	want   string
}

func sharings() []sharing {
	// The parts that can be shared: all, the priorities, the drops, the
	// localities of each priority, the endpoints of each locality.
	const all, priorities, drops, levels, lists = "all ", "priorities ", "drops ", "0 1 ", "0/0 0/1 1/0 "
	return []sharing{
		{"nothing", func(*endpointv3.ClusterLoadAssignment) {}, all + priorities + drops + levels + lists},
		{"an endpoint's weight", func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[0].LbEndpoints[9].LoadBalancingWeight.Value++
		}, drops + "1 0/1 1/0 "},
		{"an endpoint's health", func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[2].LbEndpoints[0].HealthStatus = corev3.HealthStatus_DRAINING
		}, drops + "0 0/0 0/1 "},
		{"HEALTHY for UNKNOWN", func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[2].LbEndpoints[0].HealthStatus = corev3.HealthStatus_HEALTHY
		}, all + priorities + drops + levels + lists},
		{"an unhealthy endpoint more", func(m *endpointv3.ClusterLoadAssignment) {
			sick := lbEndpoint(99, 1)
			sick.HealthStatus = corev3.HealthStatus_UNHEALTHY
			m.Endpoints[0].LbEndpoints = append([]*endpointv3.LbEndpoint{sick}, m.Endpoints[0].LbEndpoints...)
		}, priorities + drops + levels + lists},
		{"the last endpoint gone", func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[0].LbEndpoints = m.Endpoints[0].LbEndpoints[:9]
		}, drops + "1 0/1 1/0 "},
		{"the first endpoint gone", func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[0].LbEndpoints = m.Endpoints[0].LbEndpoints[1:]
		}, drops + "1 0/1 1/0 "},
		{"an endpoint replaced", func(m *endpointv3.ClusterLoadAssignment) { m.Endpoints[0].LbEndpoints[5] = lbEndpoint(99, 1) }, drops + "1 0/1 1/0 "},
		{"a hostname", func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[1].LbEndpoints[3].GetEndpoint().Hostname = "other"
		}, drops + "1 0/0 1/0 "},
		{"an additional address", func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[1].LbEndpoints[4].GetEndpoint().AdditionalAddresses[0].Address = socketAddress("::2", 1)
		}, drops + "1 0/0 1/0 "},
		{"metadata", func(m *endpointv3.ClusterLoadAssignment) { workload(999, m.Endpoints[2].LbEndpoints[0]) }, drops + "0 0/0 0/1 "},
		{"a locality's weight", func(m *endpointv3.ClusterLoadAssignment) { m.Endpoints[0].LoadBalancingWeight.Value++ }, drops + "1 " + lists},
		{"a locality's metadata", func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[0].Metadata = m.Endpoints[0].LbEndpoints[0].Metadata
		}, drops + "1 " + lists},
		{"a locality gone", func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[0].LoadBalancingWeight = nil
		}, drops + "1 0/0 1/0 "},
		{"the second priority gone", func(m *endpointv3.ClusterLoadAssignment) { m.Endpoints = m.Endpoints[:2] }, drops + "0 0/0 0/1 "},
		{"a locality moved to the other priority", func(m *endpointv3.ClusterLoadAssignment) {
			m.Endpoints[0].Priority = 1
		}, drops + "0/0 1/1 "},
		{"the order of localities", func(m *endpointv3.ClusterLoadAssignment) { slices.Reverse(m.Endpoints) }, all + priorities + drops + levels + lists},
		{"the order of endpoints", func(m *endpointv3.ClusterLoadAssignment) { slices.Reverse(m.Endpoints[0].LbEndpoints) }, all + priorities + drops + levels + lists},
		{"the order of endpoints that have more to say", func(m *endpointv3.ClusterLoadAssignment) { slices.Reverse(m.Endpoints[1].LbEndpoints) }, all + priorities + drops + levels + lists},
		{"order and a weight", func(m *endpointv3.ClusterLoadAssignment) {
			slices.Reverse(m.Endpoints[0].LbEndpoints)
			m.Endpoints[0].LbEndpoints[0].LoadBalancingWeight.Value++
		}, drops + "1 0/1 1/0 "},
		{"order and a hostname", func(m *endpointv3.ClusterLoadAssignment) {
			slices.Reverse(m.Endpoints[1].LbEndpoints)
			m.Endpoints[1].LbEndpoints[2].GetEndpoint().Hostname = "other"
		}, drops + "1 0/0 1/0 "},
		{"order and an additional address", func(m *endpointv3.ClusterLoadAssignment) {
			slices.Reverse(m.Endpoints[1].LbEndpoints)
			m.Endpoints[1].LbEndpoints[1].GetEndpoint().AdditionalAddresses[0].Address = socketAddress("::2", 1)
		}, drops + "1 0/0 1/0 "},
		{"two endpoints of different localities swapped", func(m *endpointv3.ClusterLoadAssignment) {
			a, b := m.Endpoints[0].LbEndpoints, m.Endpoints[1].LbEndpoints
			a[9], b[0] = b[0], a[9]
		}, drops + "1 1/0 "},
		{"drops", func(m *endpointv3.ClusterLoadAssignment) { m.Policy = nil }, priorities + levels + lists},
		{"what is ignored", func(m *endpointv3.ClusterLoadAssignment) {
			m.Policy.OverprovisioningFactor = wrapperspb.UInt32(140)
		}, all + priorities + drops + levels + lists},
	}
}

// TestEndpointsShare checks that unchanged parts are the same slices as before, and that
// changed parts equal those decoded without a previous version.
func TestEndpointsShare(t *testing.T) {
	for _, tt := range sharings() {
		prev, err := decodeEndpoints(encode(t, sharedAssignment()), Options{}, stopper{})
		kit.Must(t, err)
		m := sharedAssignment()
		tt.change(m)
		b := encode(t, m)
		fresh, err := decodeEndpoints(b, Options{}, stopper{})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		next, err := decodeEndpoints(b, Options{Previous: prev}, stopper{})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if !reflect.DeepEqual(sorted(next), sorted(fresh)) {
			t.Errorf("%s: with a previous version\n%+v\nwithout\n%+v", tt.name, next, fresh)
		}
		if got := shared(next, prev); got != tt.want {
			t.Errorf("%s: shares %q, want %q", tt.name, got, tt.want)
		}
	}
}

// shared names the parts of next that are prev's.
func shared(next, prev *Endpoints) (parts string) {
	if next == prev {
		parts += "all "
	}
	if same(next.Priorities, prev.Priorities) {
		parts += "priorities "
	}
	if same(next.Drops, prev.Drops) {
		parts += "drops "
	}
	var levels, lists string
	for p, level := range next.Priorities {
		if p < len(prev.Priorities) && same(level.Localities, prev.Priorities[p].Localities) {
			levels += fmt.Sprintf("%d ", p)
		}
		for i, loc := range level.Localities {
			for _, old := range prev.Priorities {
				for _, oldLoc := range old.Localities {
					if loc.Endpoints.Len() > 0 && loc.Endpoints.Same(oldLoc.Endpoints) {
						lists += fmt.Sprintf("%d/%d ", p, i)
					}
				}
			}
		}
	}
	return parts + levels + lists
}

func same[T any](a, b []T) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// sorted returns a copy of e whose lists are in an order of their own.
func sorted(e *Endpoints) *Endpoints {
	e = plain(e)
	e.Priorities = slices.Clone(e.Priorities)
	for p := range e.Priorities {
		list := slices.Clone(e.Priorities[p].Localities)
		for i := range list {
			list[i].Endpoints = picker.ListOf(slices.SortedFunc(slices.Values(list[i].Endpoints.Slice()), func(a, b picker.Endpoint) int { return a.Addr.Compare(b.Addr) })...)
		}
		slices.SortFunc(list, func(a, b picker.Locality) int { return strings.Compare(fmt.Sprint(a.ID), fmt.Sprint(b.ID)) })
		e.Priorities[p].Localities = list
	}
	return e
}

// TestEndpointsAllocs checks that an update allocates only for its changes.
func TestEndpointsAllocs(t *testing.T) {
	more := func(i int, e *endpointv3.LbEndpoint) {
		workload(i, e)
		e.GetEndpoint().Hostname = "host"
		e.GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: socketAddress(fmt.Sprintf("10.10.%d.%d", i>>8, i&255), 1)}}
	}
	for _, n := range []int{30, 3000} {
		m := assignment(n, more)
		first := encode(t, m)
		m.Endpoints[1].LbEndpoints[0].LoadBalancingWeight.Value++
		second := encode(t, m)
		prev, err := decodeEndpoints(first, Options{}, stopper{})
		kit.Must(t, err)
		for _, b := range [][]byte{first, second} {
			got := testing.AllocsPerRun(10, func() {
				if _, err := decodeEndpoints(b, Options{Previous: prev}, stopper{}); err != nil {
					t.Fatal(err)
				}
			})
			if limit := 40 + float64(n)/50; got > limit { // one workload is 100 endpoints
				t.Errorf("decoding an update of %d endpoints takes %v allocations, want at most %v", n, got, limit)
			}
		}
	}
}
