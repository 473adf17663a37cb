// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/xdslb/xdslb/picker"
)

// policy returns the load balancing policy of a cluster. If load_balancing_policy is set,
// lb_policy is ignored (A52-SRC-1).
func (d *decoder) policy(m *clusterv3.Cluster, p *path) picker.Policy {
	result, err := d.opt.Policies.OfCluster(m)
	if err != nil {
		p.fail(clip(err.Error(), maxPolicyRule))
	}
	return result
}
