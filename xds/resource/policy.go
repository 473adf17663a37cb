// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/lbpolicy"
)

// policies converts the load balancing policies of clusters, as far as
// channels carry them out: a resource that was accepted can be used.
var policies = (*lbpolicy.Registry)(nil).Restrict(func(kind picker.PolicyKind) bool {
	switch kind {
	case picker.PolicyEDF, picker.PolicyRoundRobin, picker.PolicyRingHash, picker.PolicyMaglev, picker.PolicyLeastRequest,
		picker.PolicyClientWRR, picker.PolicyPickFirst, picker.PolicyCustom:
		return true
	}
	return false
})

// policy returns the load balancing policy of a cluster, from whichever field
// has it: load_balancing_policy if it is there, and then lb_policy is not even
// looked at (A52-SRC-1).
func policy(m *clusterv3.Cluster, p *path) picker.Policy {
	result, err := policies.OfCluster(m)
	if err != nil {
		p.fail(err.Error())
	}
	return result
}
