// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"net/netip"
	"strconv"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// This file has fleets whose clients are in zones, and zone-aware policies.

// clientsName is the EDS resource with the clients; the other names are fleets.
const (
	clientsName = "clients"
	threeZones  = "three zones"
	slowZone    = "a slow zone"
)

// zoned returns the fleets whose clients are in zones.
func zoned() []Fleet {
	return []Fleet{
		smaller(threeZones, .7, "half of the clients, 30 % and 20 % in three zones with as many servers each; all RPCs need 10 ms; 70 % load").with(func(f *Fleet) {
			f.Zones, f.ClientZones, f.Need = 3, []float64{.5, .3, .2}, Fixed
			f.Run = 60 * time.Second
		}),
		smaller(slowZone, .6, "a third of the clients in each of three zones; the servers of one are three times slower; 60 % load").with(func(f *Fleet) {
			f.Zones, f.ClientZones = 3, []float64{1. / 3, 1. / 3, 1. / 3}
			f.Run = 60 * time.Second
			f.Only = append([]string{"stock round_robin", "stock least_request", "stock client_wrr", "ours round_robin", "ours least_request", "ours client_wrr", "ours least_latency"}, zoneRows()...)
		}).with(slowedServers(3, 0, 3, 6, 9)),
	}
}

// zoneRows returns the names of zoneAware's rows.
func zoneRows() (names []string) {
	for _, p := range zoneAware() {
		names = append(names, p.String())
	}
	return names
}

// zoneAware returns the rows that keep RPCs in their zone, as Envoy does, as far as servers
// remain equally loaded.
func zoneAware() []Policy {
	locality := &commonv3.LocalityLbConfig{
		LocalityConfigSpecifier: &commonv3.LocalityLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: &commonv3.LocalityLbConfig_ZoneAwareLbConfig{}},
	}
	zones := map[string]any{"locality_lb_config": map[string]any{"zone_aware_lb_config": map[string]any{}}}
	config := integrate.Config{LocalCluster: clientsName}
	list := []Policy{
		{Name: "round_robin, zone-aware", Config: config, Cluster: []testplane.ClusterOption{testplane.Policies(&roundrobinv3.RoundRobin{LocalityLbConfig: locality})}},
		{Name: "least_request, zone-aware", Config: config, Cluster: []testplane.ClusterOption{testplane.Policies(&leastrequestv3.LeastRequest{LocalityLbConfig: locality})}},
		{Name: "least_latency, zone-aware", Config: config, Cluster: typedStruct(integrate.LeastLatency, zones)},
		{Name: "prequal, zone-aware", Config: config, Cluster: typedStruct(integrate.Prequal, zones), Server: answersProbes},
	}
	for i := range list {
		list[i].Impl, list[i].Only = Ours, []string{threeZones, slowZone}
	}
	return list
}

// clientZone returns the zone of a client: the first clients are in the first zone. It is 0 if
// clients have no zones.
func (f *Fleet) clientZone(client int) int {
	end := 0.
	for zone, part := range f.ClientZones {
		if end += part; float64(client) < end*float64(f.Clients)-1e-9 {
			return zone
		}
	}
	return max(len(f.ClientZones)-1, 0)
}

// assignment returns the EDS resource with the clients, whose addresses are placeholders.
func (f *Fleet) assignment() *endpointv3.ClusterLoadAssignment {
	zones := make([]xdstest.Locality, len(f.ClientZones))
	for i := range f.Clients {
		z := &zones[f.clientZone(i)]
		z.Zone = strconv.Itoa(f.clientZone(i))
		z.Endpoints = append(z.Endpoints, xdstest.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 1)})
	}
	return xdstest.Endpoints(clientsName, zones...)
}

// visit counts a job from a zone.
func (s *Server) visit(zone int) {
	if zone == s.Zone {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.foreign.add(s.clock.now(), 1)
}

// newServers returns the models of a fleet.
func (f *Fleet) newServers(c clock) (models []*Server) {
	for i := range f.Servers {
		s := newServer(c, i, f.Workers, f.QueueLimit, f.nominal(i))
		s.stubborn = f.Stubborn
		if f.Zones > 0 {
			s.Zone = i % f.Zones
		}
		models = append(models, s)
	}
	return models
}
