// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package channelmetrics reads channels, XdsClients and the counters that these share, for the
// metrics of package metric.
package channelmetrics

import (
	"fmt"
	"time"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/resource"
)

// Start starts recording the metrics of a channel, if it has a recorder. fold folds the
// channel's counters; it may be nil. The caller holds no lock.
func Start(target string, recorder estats.MetricsRecorder, fold func(*metric.Channel)) *metric.Channel {
	return metric.Start(target, recorder, metric.Source{Fold: fold, TargetGauges: targetGauges, SharedGauges: sharedGauges})
}

// A Resolver is the resolver of a channel, as its link has it.
type Resolver interface {
	// Gauges emits the gauges of the channel. It returns the channel's XdsClient, or nil. The
	// gauges of a client are emitted once for all channels of a target.
	Gauges(emit metric.Emit) *xds.Client
}

// targetGauges emits the gauges of the channels of a target. Its cost does not depend on the
// channels of other targets.
func targetGauges(target string, emit metric.Emit) {
	clients := map[*xds.Client]bool{nil: true}
	for _, l := range link.To(target) {
		r, ok := l.Resolver.(Resolver)
		if !ok {
			continue
		}
		if c := r.Gauges(emit); !clients[c] {
			clients[c] = true
			clientGauges(c, target, emit)
		}
	}
}

// sharedGauges emits the gauges of the process.
func sharedGauges(emit metric.Emit) {
	for _, c := range xds.Clients() {
		ageGauges(c, emit)
	}
	counters.Breakers(func(cluster, service string, b *counters.Breaker) {
		emit(metric.BreakerInFlight, b.InFlight(), cluster, service)
	})
}

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
		fold(metric.SourceFailure, s.SourceFailures, s.URI)
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

// LocalityName returns the value of the label grpc.lb.locality for a locality, as in grpc-go.
func LocalityName(id picker.LocalityID) string {
	return fmt.Sprintf("{region=%q, zone=%q, sub_zone=%q}", id.Region, id.Zone, id.SubZone)
}

// FoldLoad folds the counters of a cluster. Without load reports a locality may have the
// counters of its sequence only. Counters of load reports are
// shared by channels.
func FoldLoad(to *metric.Channel, cfg *picker.Leaf, load *picker.ClusterLoad) {
	cluster, emit := cfg.Name, to.Count
	if cfg.Load.Server != "" {
		emit = to.CountShared
	}
	for id, l := range load.Localities() {
		metric.Fold(emit, metric.Picks, l, "", l.Snapshot().Issued, cluster, LocalityName(id))
	}
	for category, c := range load.Drops() {
		metric.Fold(emit, metric.Drops, c, "", c.Load(), cluster, category)
	}
	metric.Fold(emit, metric.BreakerRejections, load.Overload(), "", load.Overload().Load(), cluster)
}
