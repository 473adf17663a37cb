// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package channelmetrics reads channels, XdsClients and the counters that these share, for the
// metrics of package metric.
package channelmetrics

import (
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/xds"
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
