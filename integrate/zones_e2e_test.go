// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// inZone adds the locality of the node to a bootstrap.
func inZone(t testing.TB, document []byte, zone string) []byte {
	t.Helper()
	var doc map[string]any
	kit.Must(t, json.Unmarshal(document, &doc))
	doc["node"].(map[string]any)["locality"] = map[string]any{"zone": zone}
	out, err := json.Marshal(doc)
	kit.Must(t, err)
	return out
}

// zoneAware has a cluster ask for zone-aware routing.
func zoneAware(c *clusterv3.Cluster) {
	testplane.Policies(&roundrobinv3.RoundRobin{LocalityLbConfig: &commonv3.LocalityLbConfig{
		LocalityConfigSpecifier: &commonv3.LocalityLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: &commonv3.LocalityLbConfig_ZoneAwareLbConfig{}},
	}})(c)
}

// zonedFleet is the load assignment of a fleet with so many clients in zones a, b and so on.
func zonedFleet(name string, counts ...int) *endpointv3.ClusterLoadAssignment {
	var zones []xdstest.Locality
	for i, n := range counts {
		l := xdstest.Locality{Place: xdstest.Place{Zone: string(rune('a' + i))}}
		for k := range n {
			l.Endpoints = append(l.Endpoints, xdstest.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), byte(k)}), 1)})
		}
		zones = append(zones, l)
	}
	return xdstest.Endpoints(name, zones...)
}

// zonesOf returns the status of the zones of a channel's only cluster.
func zonesOf(t testing.TB, cc *grpc.ClientConn) *report.ZonesStatus {
	t.Helper()
	s, err := integrate.StatusOf(cc)
	if err != nil || len(s.Clusters) != 1 {
		t.Fatalf("status %+v, %v", s, err)
	}
	return s.Clusters[0].Zones
}

// A fleet of clients with 50, 30 and 20 % in three zones, and as many servers in each: no
// more than 16.7 % of the RPCs have to leave their zone for all servers to get the same.
func TestZoneAwareRouting(t *testing.T) {
	backends, control := start(t, 6)
	var zones []xdstest.Locality
	zoneOf := map[string]int{}
	for i, b := range backends {
		zoneOf[b.Addr().String()] = i / 2
		if i%2 == 0 {
			zones = append(zones, xdstest.Locality{Place: xdstest.Place{Zone: string(rune('a' + i/2))}, Endpoints: xdstest.BackendEndpoints(backends[i : i+2]...)})
		}
	}
	r := xdstest.Service(target, zones...)
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, zoneAware)}
	r.Endpoints = append(r.Endpoints, zonedFleet("fleet", 5, 3, 2))
	set(t, control, r)

	clients := [3]int{5, 3, 2}
	perClient, calls := 300, 0
	var got, away [3]int // by zone of the servers, and of the clients
	exact, away2 := [3]float64{}, 0.
	for zone, n := range clients {
		for range n {
			cc := dialConfig(t, integrate.Config{Bootstrap: inZone(t, control.Bootstrap("n"), string(rune('a'+zone))), LocalCluster: "fleet", Linger: -1})
			succeed(t, cc)
			var z *report.ZonesStatus
			kit.WaitFor(t, "zones in force, with all servers", func() bool {
				z = zonesOf(t, cc)
				return z != nil && z.InForce && len(z.Localities) == 3 && equalParts(z.Localities)
			})
			if z.Zone != string(rune('a'+zone)) {
				t.Fatalf("own zone %q", z.Zone)
			}
			for i := range z.Localities {
				exact[i] += z.Localities[i].Share / 10
				if i != zone {
					away2 += z.Localities[i].Share / 10
				}
			}
			for range perClient {
				host, err := call(t, cc)
				kit.Must(t, err)
				to := zoneOf[host]
				got[to]++
				calls++
				if to != zone {
					away[zone]++
				}
			}
		}
	}
	// The shares that the channels use are exact.
	if away2 > .175 || math.Abs(away2-1./6) > 1e-6 {
		t.Errorf("%.2f %% of the RPCs are to leave their zone, want 16.67 %%", 100*away2)
	}
	for i := range exact {
		if exact[i] > 1.05/3 || math.Abs(exact[i]-1./3) > 1e-6 {
			t.Errorf("the servers of zones are to get %v", exact)
		}
	}
	// The measured counts are within seven deviations of that: a third of the RPCs of zone a is
	// drawn.
	within := 7 * .5 * math.Sqrt(2./9/float64(5*perClient))
	total := float64(away[0]+away[1]+away[2]) / float64(calls)
	if total > 1./6+within || away[1] > 0 || away[2] > 0 {
		t.Errorf("%v of %d RPCs left their zone", away, calls)
	}
	for i := range got {
		if d := float64(got[i])/float64(calls) - 1./3; math.Abs(d) > within {
			t.Errorf("servers of zones got %v of %d RPCs", got, calls)
		}
	}
	t.Logf("%.1f %% of %d RPCs left their zone; servers of zones got %v", 100*total, calls, got)
}

func equalParts(zones []report.ZoneStatus) bool {
	for _, z := range zones {
		if math.Abs(z.Endpoints-1./3) > 1e-9 {
			return false
		}
	}
	return true
}

// A channel without LocalCluster does not balance zone-aware clusters by zones, and reports that:
// once in the log, in its status, and in explanations.
func TestZonesNotKnown(t *testing.T) {
	backends, control := start(t, 6)
	push := func(n int) {
		var zones []xdstest.Locality
		for i := range 2 {
			zones = append(zones, xdstest.Locality{Place: xdstest.Place{Zone: string(rune('a' + i))}, Endpoints: xdstest.BackendEndpoints(backends[3*i : 3*i+n]...)})
		}
		r := xdstest.Service(target, zones...)
		r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, zoneAware)}
		set(t, control, r)
	}
	push(2)
	log := new(kit.Logs)
	cc := dialConfig(t, integrate.Config{
		Bootstrap: inZone(t, control.Bootstrap("n"), "a"), Linger: -1, Logger: slog.New(log),
	})
	succeed(t, cc)
	if z := zonesOf(t, cc); z == nil || z.InForce || !strings.Contains(z.Reason, "LocalCluster") {
		t.Errorf("zones %+v", z)
	}
	x, err := integrate.Explain(context.Background(), cc, "/s/m")
	kit.Must(t, err)
	for _, want := range []string{"zone-aware", "zones: not in force: the zones of the local cluster are unknown: no EDS resource is named for it (LocalCluster)"} {
		if text := strings.Join(strings.Fields(x.String()), " "); !strings.Contains(text, want) {
			t.Errorf("explanation lacks %q:\n%s", want, x)
		}
	}
	push(3) // the cluster changes, and the cause of the error does not
	kit.WaitFor(t, "RPCs at all servers", func() bool {
		succeed(t, cc)
		return !slices.ContainsFunc(backends, func(b *xdstest.Backend) bool { return b.Calls() == 0 })
	})
	counts := map[string]int{}
	for range 60 {
		host, err := call(t, cc)
		kit.Must(t, err)
		counts[host]++
	}
	for host, n := range counts {
		if n != 10 {
			t.Errorf("%s got %d of 60 RPCs: %v", host, n, counts)
		}
	}
	const line = "has zone-aware routing"
	if n := strings.Count(log.String(), line); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
}

// The own fleet comes, changes and goes while a channel serves.
func TestZonesFollowTheFleet(t *testing.T) {
	backends, control := start(t, 6)
	push := func(fleet ...int) {
		r := xdstest.Service(target,
			xdstest.Locality{Place: xdstest.Place{Zone: "a"}, Endpoints: xdstest.BackendEndpoints(backends[:3]...)},
			xdstest.Locality{Place: xdstest.Place{Zone: "b"}, Endpoints: xdstest.BackendEndpoints(backends[3:]...)})
		r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, zoneAware)}
		r.Endpoints = append(r.Endpoints, zonedFleet("fleet", fleet...))
		set(t, control, r)
	}
	push(1, 1)
	cc := dialConfig(t, integrate.Config{Bootstrap: inZone(t, control.Bootstrap("n"), "a"), LocalCluster: "fleet", Linger: -1})
	succeed(t, cc)
	share := func() string {
		z := zonesOf(t, cc)
		switch {
		case z == nil:
			return "nil"
		case !z.InForce:
			return z.Reason
		}
		text := ""
		for _, l := range z.Localities {
			text += fmt.Sprintf("%s %.3f ", l.Zone, l.Share)
		}
		return text
	}
	for _, step := range []struct {
		fleet []int
		want  string
	}{
		{[]int{1, 1}, "a 1.000 b 0.000 "},
		{[]int{2, 0}, "the local cluster is in one zone"},
		{[]int{3, 1}, "a 0.667 b 0.333 "},
		{[]int{0, 1}, `"fleet" has no healthy endpoint in the client's zone`},
		{[]int{1, 1}, "a 1.000 b 0.000 "},
	} {
		push(step.fleet...)
		kit.WaitFor(t, fmt.Sprintf("zones by a fleet of %v", step.fleet), func() bool { return strings.Contains(share(), step.want) })
	}
	// An endpoint that gets no RPCs because of its zone is distinguished from one that is down.
	x, err := integrate.Explain(context.Background(), cc, "/s/m")
	kit.Must(t, err)
	if n := strings.Count(x.String(), "its zone gets no RPCs of this channel"); n != 3 {
		t.Errorf("the reason is given for %d endpoints, want 3:\n%s", n, x)
	}
}
