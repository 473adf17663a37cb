// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// TestEndpointsUnhealthy: endpoints that are left out for their health are named in the order
// of their addresses, each once; one without a valid address is not, and breaks nothing.
func TestEndpointsUnhealthy(t *testing.T) {
	m := sharedAssignment()
	for i, health := range []corev3.HealthStatus{corev3.HealthStatus_TIMEOUT, corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_DEGRADED, 77, corev3.HealthStatus_DRAINING} {
		e := lbEndpoint([]int{98, 97, 97, 96, 95, 94}[i], 1)
		e.HealthStatus = health
		m.Endpoints[i%2].LbEndpoints = append(m.Endpoints[i%2].LbEndpoints, e)
	}
	m.Endpoints[0].LbEndpoints = append(m.Endpoints[0].LbEndpoints, &endpointv3.LbEndpoint{HealthStatus: corev3.HealthStatus_UNHEALTHY})
	e, err := decodeEndpoints(encode(t, m), Options{}, stopper{})
	kit.Must(t, err)
	addr := func(n int) *picker.Endpoint {
		one := sharedAssignment()
		one.Endpoints[0].LbEndpoints = []*endpointv3.LbEndpoint{lbEndpoint(n, 1)}
		e, err := decodeEndpoints(encode(t, one), Options{}, stopper{})
		kit.Must(t, err)
		return e.Priorities[0].Localities[0].Endpoints.At(0)
	}
	want := []picker.Unhealthy{{Addr: addr(95).Addr, Health: "77"}, {Addr: addr(96).Addr, Health: "DEGRADED"}, {Addr: addr(97).Addr, Health: "UNHEALTHY"}, {Addr: addr(98).Addr, Health: "TIMEOUT"}}
	if !slices.Equal(e.Unhealthy, want) {
		t.Errorf("unhealthy are %v, want %v", e.Unhealthy, want)
	}
	next, err := decodeEndpoints(encode(t, m), Options{Previous: e}, stopper{})
	if err != nil || next != e {
		t.Errorf("the same resource again is %v, %v", next, err)
	}
}
