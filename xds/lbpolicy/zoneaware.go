// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/picker"
)

const defaultMinClusterSize = 6 // Envoy's

// zoneAware converts the zone-aware routing of locality_lb_config. Its
// locality_weighted_lb_config is ignored, since wrr_locality replaces it (A52).
//
// fail_traffic_on_panic has no effect: gRPC has no panic mode, and RPCs fail if no endpoint is
// reachable. force_locality_direct_routing is the older form of force_local_zone with one
// endpoint, which takes precedence, as in Envoy.
func zoneAware(m *commonv3.LocalityLbConfig) (*picker.ZoneAware, error) {
	c := m.GetZoneAwareLbConfig()
	if c == nil {
		return nil, nil
	}
	zones, err := zonesOf(c.GetRoutingEnabled(), c.GetMinClusterSize())
	if err == nil {
		switch c.GetLocalityBasis() {
		case commonv3.LocalityLbConfig_ZoneAwareLbConfig_HEALTHY_HOSTS_NUM:
		case commonv3.LocalityLbConfig_ZoneAwareLbConfig_HEALTHY_HOSTS_WEIGHT:
			zones.ByWeight = true
		default:
			err = fmt.Errorf("locality_basis %v is not supported", c.GetLocalityBasis())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("locality_lb_config.zone_aware_lb_config.%w", err)
	}
	if force := c.GetForceLocalZone(); force != nil {
		zones.ForceLocal = 1
		if size := force.GetMinSize(); size != nil {
			zones.ForceLocal = max(size.GetValue(), 1) // a zone without endpoints gets no RPCs
		}
	} else if c.GetForceLocalityDirectRouting() {
		zones.ForceLocal = 1
	}
	return zones, nil
}

// legacyZoneAware converts common_lb_config, which has fewer fields.
func legacyZoneAware(m *clusterv3.Cluster_CommonLbConfig) (*picker.ZoneAware, error) {
	c := m.GetZoneAwareLbConfig()
	if c == nil {
		return nil, nil
	}
	zones, err := zonesOf(c.GetRoutingEnabled(), c.GetMinClusterSize())
	if err != nil {
		return nil, fmt.Errorf("zone_aware_lb_config.%w", err)
	}
	return zones, nil
}

func zonesOf(enabled *typev3.Percent, minSize *wrapperspb.UInt64Value) (*picker.ZoneAware, error) {
	zones := &picker.ZoneAware{Enabled: 1, MinEndpoints: defaultMinClusterSize}
	if enabled != nil {
		percent := enabled.GetValue()
		if !(percent >= 0 && percent <= 100) { // NaN too
			return nil, fmt.Errorf("routing_enabled %v is not within 0 to 100", percent)
		}
		zones.Enabled = percent / 100
	}
	if minSize != nil {
		zones.MinEndpoints = minSize.GetValue()
	}
	return zones, nil
}
