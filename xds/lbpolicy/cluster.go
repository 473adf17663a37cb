// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"errors"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	subsettingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"

	"github.com/xdslb/xdslb/picker"
)

// OfCluster returns the policy of a cluster: that of load_balancing_policy if the field is
// present, otherwise that of the older fields. Unused fields are not validated (A52-SRC-1). An
// error makes the cluster invalid (A52-NACK-1); it begins with the path of the field.
func (r *Registry) OfCluster(c *clusterv3.Cluster) (picker.Policy, error) {
	if list := c.GetLoadBalancingPolicy(); list != nil {
		policy, err := r.Convert(list)
		if err != nil {
			return picker.Policy{}, fmt.Errorf("load_balancing_policy.%w", err)
		}
		return policy, nil
	}
	return r.legacy(c)
}

// legacy returns the policy of the older fields: lb_policy, and the message of the lb_config
// oneof that belongs to it. Any other message, or an unset field, means the defaults. Errors
// begin with the name of the field.
//
// Unlike entries of a list, ROUND_ROBIN, LEAST_REQUEST and RANDOM have their meaning inside
// wrr_locality (A42, A48).
func (r *Registry) legacy(c *clusterv3.Cluster) (picker.Policy, error) {
	var policy picker.Policy
	var kind picker.PolicyKind
	var field string
	var err error
	switch c.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN:
		kind, field = picker.PolicyEDF, "round_robin_lb_config"
		policy.SlowStart, err = slowStart(c.GetRoundRobinLbConfig().GetSlowStartConfig())
	case clusterv3.Cluster_LEAST_REQUEST:
		kind, field = picker.PolicyLeastRequest, "least_request_lb_config"
		policy, err = legacyLeastRequest(c.GetLeastRequestLbConfig())
	case clusterv3.Cluster_RING_HASH:
		kind, field = picker.PolicyRingHash, "ring_hash_lb_config"
		policy, err = legacyRingHash(c.GetRingHashLbConfig(), c.GetCommonLbConfig())
	case clusterv3.Cluster_MAGLEV:
		kind, field = picker.PolicyMaglev, "maglev_lb_config"
		policy, err = maglevTable(c.GetMaglevLbConfig().GetTableSize(),
			c.GetCommonLbConfig().GetConsistentHashingLbConfig().GetHashBalanceFactor())
	case clusterv3.Cluster_RANDOM:
		kind = picker.PolicyRandom
	default:
		return picker.Policy{}, fmt.Errorf("lb_policy: unexpected lbPolicy %v", c.GetLbPolicy())
	}
	if err != nil {
		return picker.Policy{}, fmt.Errorf("%s: %w", field, err)
	}
	policy.Kind, policy.Flat = kind, policy.Ring != nil
	if kind.Traits().Zones {
		if policy.ZoneAware, err = legacyZoneAware(c.GetCommonLbConfig()); err != nil {
			return picker.Policy{}, fmt.Errorf("common_lb_config.%w", err)
		}
	}
	return policy, nil
}

func legacyLeastRequest(c *clusterv3.Cluster_LeastRequestLbConfig) (picker.Policy, error) {
	start, err := slowStart(c.GetSlowStartConfig())
	if err != nil {
		return picker.Policy{}, err
	}
	return leastOf(c.GetChoiceCount(), start)
}

// legacyRingHash converts A42's fields. XX_HASH is the zero value of the enum here, so it is
// always selected (D3).
func legacyRingHash(c *clusterv3.Cluster_RingHashLbConfig, common *clusterv3.Cluster_CommonLbConfig) (picker.Policy, error) {
	if f := c.GetHashFunction(); f != clusterv3.Cluster_RingHashLbConfig_XX_HASH {
		return picker.Policy{}, unsupportedHash(f)
	}
	minSize, maxSize, err := ringSizes(c)
	if err != nil {
		return picker.Policy{}, err
	}
	balance, err := balanceFactor(common.GetConsistentHashingLbConfig().GetHashBalanceFactor())
	if err != nil {
		return picker.Policy{}, err
	}
	return picker.Policy{Ring: &picker.RingPolicy{MinSize: minSize, MaxSize: maxSize, XXH64: true, BalanceFactor: balance}}, nil
}

// wrrLocality converts A52-WRRL-1's policy: it draws a locality by weight, and leaves the
// endpoints of the locality to the child policy. A nested wrr_locality has no effect, and
// neither has a nested zone-aware policy, which sees a single locality.
func wrrLocality(config []byte, nested Nested) (picker.Policy, error) {
	var m wrrlocalityv3.WrrLocality
	if err := decode(config, &m); err != nil {
		return picker.Policy{}, err
	}
	if m.GetEndpointPickingPolicy() == nil {
		return picker.Policy{}, errors.New("endpoint_picking_policy is not set")
	}
	policy, err := nested(m.GetEndpointPickingPolicy())
	if err != nil {
		return picker.Policy{}, fmt.Errorf("endpoint_picking_policy.%w", err)
	}
	if policy.Subset != 0 {
		return picker.Policy{}, errors.New("endpoint_picking_policy: random_subsetting inside wrr_locality is not supported, only around it")
	}
	policy.Flat, policy.ZoneAware = false, nil
	return policy, nil
}

// randomSubsetting converts A68's policy; both of its fields are required. A random subset of a
// random subset is one of the smaller size.
func randomSubsetting(config []byte, nested Nested) (picker.Policy, error) {
	var m subsettingv3.RandomSubsetting
	if err := decode(config, &m); err != nil {
		return picker.Policy{}, err
	}
	size := m.GetSubsetSize().GetValue()
	switch {
	case m.GetSubsetSize() == nil:
		return picker.Policy{}, errors.New("subset_size is not set")
	case size == 0:
		return picker.Policy{}, errors.New("subset_size 0 is below 1")
	case m.GetChildPolicy() == nil:
		return picker.Policy{}, errors.New("child_policy is not set")
	}
	policy, err := nested(m.GetChildPolicy())
	if err != nil {
		return picker.Policy{}, fmt.Errorf("child_policy.%w", err)
	}
	if policy.Subset == 0 || policy.Subset > size {
		policy.Subset = size
	}
	return policy, nil
}
