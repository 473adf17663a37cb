// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"errors"
	"fmt"

	subsettingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"

	"github.com/xdslb/xdslb/picker"
)

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
