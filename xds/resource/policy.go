// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"

	"github.com/xdslb/xdslb/picker"
)

// policy returns the load balancing policy of a cluster, from whichever field
// has it: load_balancing_policy if it is there, and then lb_policy is not even
// looked at (A52-SRC-1).
func policy(m *clusterv3.Cluster, p *path) picker.Policy {
	result, err := convertPolicy(m)
	if err == nil {
		return result
	}
	field := "lb_policy"
	if m.GetLoadBalancingPolicy() != nil {
		field = "load_balancing_policy"
	}
	p.dot(field).fail(err.Error())
	return picker.Policy{}
}

// convertPolicy is all that this package knows of load balancing policies.
func convertPolicy(m *clusterv3.Cluster) (picker.Policy, error) {
	switch {
	case m.GetLoadBalancingPolicy() != nil:
		return convertPolicies(m.GetLoadBalancingPolicy(), 1)
	case m.GetLbPolicy() == clusterv3.Cluster_ROUND_ROBIN:
		return picker.Policy{}, nil
	}
	return picker.Policy{}, fmt.Errorf("%v is not supported", m.GetLbPolicy())
}

// maxPolicyDepth is how many levels of policies may be inside each other
// (A52-REG-7).
const maxPolicyDepth = 16

// convertPolicies converts the first policy of a list that is supported; an
// error in that one is final (A52-REG-2 … 6).
func convertPolicies(m *clusterv3.LoadBalancingPolicy, depth int) (picker.Policy, error) {
	if depth > maxPolicyDepth {
		return picker.Policy{}, fmt.Errorf("must not have more than %d policies inside each other", maxPolicyDepth)
	}
	locality := new(wrrlocalityv3.WrrLocality)
	for _, candidate := range m.GetPolicies() {
		config := candidate.GetTypedExtensionConfig().GetTypedConfig()
		switch baseName(config.GetTypeUrl()) {
		case typeName((*roundrobinv3.RoundRobin)(nil)):
			return picker.Policy{Flat: true}, nil
		case typeName(locality):
			if err := config.UnmarshalTo(locality); err != nil {
				return picker.Policy{}, errors.New("wrr_locality is malformed")
			}
			result, err := convertPolicies(locality.GetEndpointPickingPolicy(), depth+1)
			result.Flat = false
			return result, err
		}
	}
	return picker.Policy{}, errors.New("must have a policy that is supported")
}
