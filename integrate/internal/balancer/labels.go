// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/metric"
)

// labelsOf are the labels of attempts to endpoints of a locality.
func labelsOf(l *locality) map[string]string {
	return map[string]string{"grpc.lb.locality": channelmetrics.LocalityName(l.id), "grpc.lb.backend_service": l.leaf.name}
}

// label labels the attempt with a context, which goes to an endpoint.
func (c *clusterView) label(ctx context.Context, endpoint int32) {
	if c.labels == nil {
		return
	}
	if c.hosts.other(endpoint) == nil {
		metric.UpdateLabels(ctx, c.labels[endpoint])
		return
	}
	l := c.hosts.list[endpoint].e.loc
	metric.UpdateLabels(ctx, labelsOf(l))
}

// labelEndpoint is label for an endpoint that a child has picked.
func (c *clusterView) labelEndpoint(ctx context.Context, e *endpoint) {
	if c.labels != nil {
		if i, ok := c.indexes[e]; ok {
			c.label(ctx, i)
		}
	}
}
