// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

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
	var field string
	var err error
	switch c.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN:
		field = "round_robin_lb_config"
		policy.SlowStart, err = slowStart(c.GetRoundRobinLbConfig().GetSlowStartConfig())
	case clusterv3.Cluster_LEAST_REQUEST:
		field = "least_request_lb_config"
		policy, err = legacyLeastRequest(c.GetLeastRequestLbConfig())
	case clusterv3.Cluster_RING_HASH:
		field = "ring_hash_lb_config"
		policy, err = legacyRingHash(c.GetRingHashLbConfig(), c.GetCommonLbConfig())
	case clusterv3.Cluster_MAGLEV:
		field = "maglev_lb_config"
		policy, err = maglevTable(c.GetMaglevLbConfig().GetTableSize(),
			c.GetCommonLbConfig().GetConsistentHashingLbConfig().GetHashBalanceFactor())
	case clusterv3.Cluster_RANDOM:
		policy.Kind = picker.PolicyRandom
	default:
		return picker.Policy{}, fmt.Errorf("lb_policy: unexpected lbPolicy %v", c.GetLbPolicy())
	}
	if err != nil {
		return picker.Policy{}, fmt.Errorf("%s: %w", field, err)
	}
	if !policy.Hashes() {
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
	policy, err := leastOf(c.GetChoiceCount(), start)
	policy.Flat = false
	return policy, err
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
	return ring(picker.RingPolicy{MinSize: minSize, MaxSize: maxSize, XXH64: true, BalanceFactor: balance}), nil
}
