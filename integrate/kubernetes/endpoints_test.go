// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// pod sets the pod and zone of an endpoint.
func pod(uid apitypes.UID, zone string, e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.TargetRef = &corev1.ObjectReference{Kind: "Pod", UID: uid}
	e.Zone = &zone
	return e
}

func ipv6(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	slice.AddressType = discoveryv1.AddressTypeIPv6
	return slice
}

func TestMerge(t *testing.T) {
	grpc := corev1.ServicePort{Name: "grpc", Port: 80, TargetPort: intstr.FromInt32(9000)}
	slice := func(name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return aSlice("shop", "orders", name, "grpc", 9000, endpoints...)
	}
	headless := aService("shop", "orders")
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	noPorts := slice("a", aPod("10.0.0.1"))
	noPorts.Ports = nil
	allPorts := slice("a", aPod("10.0.0.1"))
	allPorts.Ports[0].Port = nil
	dual := aService("shop", "orders", grpc)
	dual.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	unset := discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}}
	no := false
	notServing := discoveryv1.Endpoint{Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}}
	for _, tc := range []struct {
		name string
		svc  *corev1.Service
		port string
		list []*discoveryv1.EndpointSlice
		want string
	}{
		{"all slices", nil, "grpc", []*discoveryv1.EndpointSlice{slice("a", aPod("10.0.0.1")), slice("b", aPod("10.0.0.2"))},
			"/ HEALTHY 10.0.0.1:9000; / HEALTHY 10.0.0.2:9000"},
		{"port number", nil, "80", []*discoveryv1.EndpointSlice{slice("a", aPod("10.0.0.1"))}, "/ HEALTHY 10.0.0.1:9000"},
		{"pod moves between slices", nil, "grpc", []*discoveryv1.EndpointSlice{
			slice("a", pod("u1", "a", podIn("10.0.0.1", false, true, true))), slice("b", pod("u1", "a", aPod("10.0.0.1")))},
			"/a HEALTHY 10.0.0.1:9000"},
		{"address reused by another pod", nil, "grpc", []*discoveryv1.EndpointSlice{
			slice("a", pod("u1", "a", podIn("10.0.0.1", false, true, true))), slice("b", pod("u2", "b", aPod("10.0.0.1")))},
			"/b HEALTHY 10.0.0.1:9000"},
		{"states", nil, "grpc", []*discoveryv1.EndpointSlice{slice("a", aPod("10.0.0.1"), podIn("10.0.0.2", false, true, true),
			podIn("10.0.0.3", false, false, true), podIn("10.0.0.4", false, false, false), podIn("10.0.0.5", true, false, true))},
			"/ DRAINING 10.0.0.2:9000; / DRAINING 10.0.0.5:9000; / HEALTHY 10.0.0.1:9000"},
		{"unset conditions", nil, "grpc", []*discoveryv1.EndpointSlice{slice("a", unset, notServing)}, "/ HEALTHY 10.0.0.1:9000"},
		{"only terminating endpoints", nil, "grpc", []*discoveryv1.EndpointSlice{slice("a", podIn("10.0.0.2", false, true, true), podIn("10.0.0.3", false, false, true))},
			"/ HEALTHY 10.0.0.2:9000"},
		{"two families of a pod", nil, "grpc", []*discoveryv1.EndpointSlice{
			ipv6(slice("b", pod("u1", "a", aPod("fd00::1")), pod("u2", "b", aPod("fd00::2")))),
			slice("a", pod("u2", "b", aPod("10.0.0.2")), pod("u1", "a", aPod("10.0.0.1")))},
			"/a HEALTHY 10.0.0.1:9000 [fd00::1]:9000; /b HEALTHY 10.0.0.2:9000 [fd00::2]:9000"},
		{"IPv6 first", dual, "grpc", []*discoveryv1.EndpointSlice{slice("a", pod("u1", "a", aPod("10.0.0.1"))), ipv6(slice("b", pod("u1", "a", aPod("fd00::1"))))},
			"/a HEALTHY [fd00::1]:9000 10.0.0.1:9000"},
		{"headless without ports", headless, "9000", []*discoveryv1.EndpointSlice{noPorts}, "/ HEALTHY 10.0.0.1:9000"},
		{"all ports", nil, "grpc", []*discoveryv1.EndpointSlice{allPorts}, "/ HEALTHY 10.0.0.1:9000"},
		{"unknown port", nil, "http", []*discoveryv1.EndpointSlice{slice("a", aPod("10.0.0.1"))}, "error: service shop/orders has no TCP port http"},
		{"UDP", aService("shop", "orders", corev1.ServicePort{Name: "grpc", Protocol: corev1.ProtocolUDP}), "grpc", nil, "error: service shop/orders has no TCP port grpc"},
		{"ExternalName", &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}, "80", nil, "error: service / has type ExternalName, which has no endpoints"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			svc := tc.svc
			if svc == nil {
				svc = aService("shop", "orders", grpc)
			}
			got := ""
			if port, err := findPort(svc, tc.port); err != nil {
				got = "error: " + err.Error()
			} else {
				got = strings.Join(lines(merge(svc, port, tc.list, testZones)), "; ")
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestRegionOfNode(t *testing.T) {
	e := pod("u1", "", aPod("10.0.0.1"))
	node := "n1"
	e.NodeName = &node
	svc := aService("shop", "orders", corev1.ServicePort{Name: "grpc", Port: 80})
	port, err := findPort(svc, "grpc")
	if err != nil {
		t.Fatal(err)
	}
	got := lines(merge(svc, port, []*discoveryv1.EndpointSlice{aSlice("shop", "orders", "a", "grpc", 9000, e)}, testZones))
	if want := []string{"r1/a HEALTHY 10.0.0.1:9000"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Each healthy endpoint gets the same share, so localities weigh as much as they have.
func TestLocalityWeights(t *testing.T) {
	svc := aService("shop", "orders", corev1.ServicePort{Name: "grpc", Port: 80})
	port, err := findPort(svc, "grpc")
	if err != nil {
		t.Fatal(err)
	}
	list := []*discoveryv1.EndpointSlice{aSlice("shop", "orders", "a", "grpc", 9000,
		pod("u1", "a", aPod("10.0.0.1")), pod("u2", "a", aPod("10.0.0.2")), pod("u3", "a", podIn("10.0.0.3", false, true, true)),
		pod("u4", "b", aPod("10.0.0.4")), pod("u5", "c", podIn("10.0.0.5", false, true, true)))}
	got := ""
	for _, l := range loadAssignment("x", merge(svc, port, list, testZones)).Endpoints {
		got += fmt.Sprintf("%s %d/%d ", l.Locality.Zone, l.LoadBalancingWeight.Value, len(l.LbEndpoints))
	}
	if want := "a 2/3 b 1/1 c 1/1 "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParseName(t *testing.T) {
	for _, tc := range []struct {
		name string
		want portKey
	}{
		{"orders.shop:grpc", portKey{"shop", "orders", "grpc"}},
		{"orders.shop.svc:8080", portKey{"shop", "orders", "8080"}},
		{"orders.shop.svc.cluster.local:grpc", portKey{"shop", "orders", "grpc"}},
		{"xdstp://k8s/envoy.config.listener.v3.Listener/orders.shop:grpc?a=b", portKey{"shop", "orders", "grpc"}},
		{"orders.shop", portKey{}},
		{"orders:grpc", portKey{}},
		{"orders.:grpc", portKey{}},
		{".shop:grpc", portKey{}},
		{"orders.shop:", portKey{}},
		{"orders.shop.com:grpc", portKey{}},
		{"orders.shop/x:grpc", portKey{}},
		{"orders.shop:\xff", portKey{}},
		{"xdstp://k8s/orders.shop:grpc", portKey{}},
	} {
		got, err := parseName(tc.name)
		if got != tc.want || (err == nil) != (tc.want != portKey{}) {
			t.Errorf("%q: got %v, %v; want %v", tc.name, got, err, tc.want)
		}
	}
	if got, want := sibling("xdstp://k8s/envoy.config.listener.v3.Listener/a.b:c", clusterType), "xdstp://k8s/envoy.config.cluster.v3.Cluster/a.b:c"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParseURI(t *testing.T) {
	for uri, want := range map[string]options{"kubernetes:": {}, "Kubernetes:": {}, "kubernetes:?nodes=true": {nodes: true}, "kubernetes:?nodes=false": {}} {
		if got, err := parseURI(uri); got != want || err != nil {
			t.Errorf("%s: got %v, %v; want %v", uri, got, err, want)
		}
	}
	for _, uri := range []string{"kubernetes:x", "kubernetes://x", "kubernetes:?node=true", "kubernetes:?nodes=1", "kubernetes:?", "xds:"} {
		if _, err := parseURI(uri); err == nil {
			t.Errorf("%s: no error", uri)
		}
	}
}
