// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// zoneAwareCluster returns a cluster that asks for zone-aware routing.
func zoneAwareCluster(name string) *clusterv3.Cluster {
	return xdstest.Cluster(name, name, testplane.Policies(&roundrobinv3.RoundRobin{LocalityLbConfig: &commonv3.LocalityLbConfig{
		LocalityConfigSpecifier: &commonv3.LocalityLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: &commonv3.LocalityLbConfig_ZoneAwareLbConfig{}},
	}}))
}

// fleetOf returns a load assignment with so many endpoints of weight 3 in zones a, b and
// so on.
func fleetOf(name string, counts ...int) *endpointv3.ClusterLoadAssignment {
	var zones []xdstest.Locality
	for i, n := range counts {
		l := xdstest.Locality{Place: xdstest.Place{Zone: string(rune('a' + i))}}
		for k := range n {
			l.Endpoints = append(l.Endpoints, xdstest.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), byte(k)}), 1), Weight: 3})
		}
		zones = append(zones, l)
	}
	return xdstest.Endpoints(name, zones...)
}

// zoneTarget returns a target's resources with a cluster that asks for zone-aware routing.
func zoneTarget(name string, port uint16) []proto.Message {
	return []proto.Message{listenerTo(name, name), routesTo(name, name), zoneAwareCluster(name), endpointsAt(name, port)}
}

// zoneServing returns a client in a locality whose target's cluster is zone-aware.
func zoneServing(t *testing.T, opts Options, node *corev3.Locality) (*harness, *fake, *recorder) {
	t.Helper()
	h, cp := only(t, opts)
	h.c.node.Locality = node
	cp.serve(zoneTarget("svc", 1)...)
	return h, cp, h.watch("svc")
}

var inZoneA = &corev3.Locality{Zone: "a"}

func originOf(t *testing.T, w *recorder) *picker.Origin {
	t.Helper()
	return w.cluster(t, "svc").Leaves[0].Origin
}

func zonesOf(o *picker.Origin) string {
	var b strings.Builder
	for _, z := range o.Fleet {
		fmt.Fprintf(&b, "%s:%d/%d ", z.ID.Zone, z.Endpoints, z.Weight)
	}
	return strings.TrimSpace(b.String())
}

// TestOrigin follows the endpoints of the local cluster. A target does not wait for them, and keeps
// the known endpoints while the server's responses are invalid or the server is unreachable.
func TestOrigin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := zoneServing(t, Options{TargetOptions: TargetOptions{LocalCluster: "fleet"}}, inZoneA)
		if o := originOf(t, w); o.Locality.Zone != "a" || o.Fleet != nil || o.Err != nil {
			t.Fatalf("origin %+v before the fleet is known", o)
		}
		cp.asked(eds, "fleet", "svc")
		at := w.must(t).Received
		advance(time.Second)
		cp.serve(fleetOf("fleet", 5, 3, 2))
		o := originOf(t, w)
		if got := zonesOf(o); got != "a:5/15 b:3/9 c:2/6" || o.Err != nil {
			t.Fatalf("fleet %s, %v", got, o.Err)
		}
		if got := w.must(t).Received; !got.After(at) {
			t.Errorf("received %v, which is not after %v", got, at)
		}
		n := w.got().updates
		cp.serve(fleetOf("fleet", 5, 3, 2))
		if got := w.got().updates; got != n {
			t.Errorf("%d updates, want %d: the fleet is the same", got, n)
		}
		cp.serve(badEndpoints("fleet"))
		if got := originOf(t, w); got != o {
			t.Errorf("origin %+v after an invalid update, want that of the last valid one", got)
		}
		draining := fleetOf("fleet", 5, 3, 2)
		draining.Endpoints[1].LbEndpoints[0].HealthStatus = corev3.HealthStatus_DRAINING
		draining.Endpoints[2].LbEndpoints[0].HealthStatus = corev3.HealthStatus_UNHEALTHY
		draining.Endpoints[2].LbEndpoints[1].HealthStatus = corev3.HealthStatus_DRAINING
		cp.serve(draining)
		if got := zonesOf(originOf(t, w)); got != "a:5/15 b:2/6" {
			t.Errorf("fleet %s, want it without those that drain or are not healthy", got)
		}
		cp.serve(fleetOf("fleet", 0, 3))
		if o := originOf(t, w); o.Fleet != nil || o.Err == nil || !strings.Contains(o.Err.Error(), `"fleet" has no healthy endpoint in the client's zone`) {
			t.Errorf("origin %+v without an endpoint in the own zone", o)
		}

		// A cluster that does not ask lets the fleet go.
		cp.serve(clusterTo("svc", "svc"))
		if o := originOf(t, w); o != nil {
			t.Errorf("origin %+v of a cluster that does not ask", o)
		}
		cp.asked(eds, "svc")
	})
}

// TestOriginIsNotWaitedFor: a target does not wait for the endpoints of its local cluster, although
// they are first by name.
func TestOriginIsNotWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{TargetOptions: TargetOptions{LocalCluster: "fleet"}})
		h.c.node.Locality = inZoneA
		cp.serve(listenerTo("svc", "svc"), routesTo("svc", "svc", "other"), zoneAwareCluster("svc"), endpointsAt("svc", 1), clusterTo("other", "other"))
		w := h.watch("svc")
		if w.got().config != nil {
			t.Fatal("a configuration without the endpoints of a cluster")
		}
		cp.asked(eds, "fleet", "other", "svc")
		if err := h.c.view().Waiting("svc", "svc"); err == nil || !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("waits for %v", err)
		}
		cp.serve(endpointsAt("other", 2))
		w.must(t)
	})
}

// TestOriginUnknown has the reasons why zones are not known. None keeps a target from being
// served.
func TestOriginUnknown(t *testing.T) {
	for _, test := range []struct {
		name string
		opts Options
		node *corev3.Locality
		wait time.Duration
		want string
	}{
		{"no name", Options{}, inZoneA, 0, "no EDS resource is named for it (LocalCluster)"},
		{"no locality", Options{TargetOptions: TargetOptions{LocalCluster: "fleet"}}, nil, 0, "the node of the bootstrap has no locality"},
		{"missing", Options{TargetOptions: TargetOptions{LocalCluster: "fleet"}}, inZoneA, time.Minute, `"fleet" not found`},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, _, w := zoneServing(t, test.opts, test.node)
				advance(test.wait)
				if o := originOf(t, w); o.Err == nil || !strings.Contains(o.Err.Error(), test.want) || o.Fleet != nil {
					t.Errorf("origin %+v, want the error %q", o, test.want)
				}
			})
		})
	}
}

// Targets of one client share an origin, and with it their clusters.
func TestOriginShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := zoneServing(t, Options{TargetOptions: TargetOptions{LocalCluster: "fleet"}}, inZoneA)
		cp.serve(append(zoneTarget("two", 2), fleetOf("fleet", 1, 1))...)
		two := h.watch("two")
		if a, b := originOf(t, w), two.cluster(t, "two").Leaves[0].Origin; a != b || a == nil {
			t.Errorf("origins %p and %p", a, b)
		}
	})
}
