// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package channelmetrics

import (
	"time"

	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/resource"
)

// Channels share XdsClients (D4), and grpc-go's metrics of clients have the label target. So the
// counters of a client are reported once for each target that uses it.

// typeNames are the values of the label grpc.xds.resource_type, as in grpc-go.
var typeNames = [resource.NumTypes]string{
	resource.ListenerType: "ListenerResource", resource.RouteConfigType: "RouteConfigResource",
	resource.ClusterType: "ClusterResource", resource.EndpointsType: "EndpointsResource",
}

// FoldClient folds the counters of a client for a target that uses it.
func FoldClient(emit metric.Emit, c *xds.Client, target string) {
	for _, s := range c.Servers() {
		fold := func(m *metric.Metric, total uint64, labels ...string) {
			metric.Fold(emit, m, c, s.Key, total, labels...) // servers of a bootstrap may have the same URI
		}
		fold(metric.ServerFailure, s.Failures, target, s.URI)
		fold(metric.Streams, s.Streams, s.URI)
		for t, n := range s.Types {
			name := typeNames[t]
			fold(metric.UpdatesValid, n.Valid, target, s.URI, name)
			fold(metric.UpdatesInvalid, n.Invalid, target, s.URI, name)
			fold(metric.NACKs, n.NACKs, s.URI, name)
			fold(metric.Messages, n.Messages, s.URI, name)
			fold(metric.Bytes, n.Bytes, s.URI, name)
			fold(metric.Requests, n.Requests, s.URI, name)
		}
	}
}

// clientGauges emits the gauges of a client for a target that uses it.
func clientGauges(c *xds.Client, target string, emit metric.Emit) {
	for _, s := range c.Servers() {
		if !s.InUse {
			continue
		}
		connected := int64(0)
		if s.Connected {
			connected = 1
		}
		emit(metric.Connected, connected, target, s.URI)
	}
	for kind, n := range c.CountResources() {
		emit(metric.Resources, int64(n), target, kind.Authority, cacheState(kind), typeNames[kind.Type])
	}
}

// cacheState returns the value of the label grpc.xds.cache_state for resources (A78). Later
// states have A88's names.
func cacheState(kind xds.ResourceKind) string {
	switch kind.State {
	case xds.Acked:
		return "acked"
	case xds.Nacked:
		if kind.InUse {
			return "nacked_but_cached"
		}
		return "nacked"
	case xds.DoesNotExist:
		return "does_not_exist"
	case xds.ReceivedError:
		return "received_error"
	case xds.TimedOut:
		return "timeout"
	default:
		return "requested"
	}
}

// ageGauges emits the ages of the resources that a client has in use.
func ageGauges(c *xds.Client, emit metric.Emit) {
	for r := range c.Resources() {
		if r.Watched && !r.Updated.IsZero() {
			emit(metric.ResourceAge, int64(time.Since(r.Updated).Seconds()), typeNames[r.Type], r.Name)
		}
	}
}
