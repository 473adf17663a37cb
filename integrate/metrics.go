// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/stats"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/xds"
)

// Metrics returns the names of this module's metrics, xdslb.*, which gRPC's OpenTelemetry
// plugin records if they are among its MetricsOptions.Metrics:
//
//	opentelemetry.DefaultMetrics().Join(integrate.Metrics())
//
// All are off by default. METRICS.md describes each metric and its cost. Metrics add no cost to
// an RPC.
func Metrics() *stats.MetricSet {
	set := stats.NewMetricSet()
	for _, m := range metric.All() {
		set = set.Add(m.Name)
	}
	return set
}

// StockMetricName returns the name under which google.golang.org/grpc/xds has one of this
// module's metrics, with the same type, unit and labels, or "" if it does not have it. It is
// for OpenTelemetry Views that rename metrics; package stockmetrics needs no View.
func StockMetricName(name string) string {
	for _, m := range metric.All() {
		if m.Name == name {
			return m.StockName()
		}
	}
	return ""
}

// Gauges implements channelmetrics.Resolver.
func (r *xdsResolver) Gauges(emit metric.Emit) *xds.Client {
	if r.rollout != nil {
		emit(metric.NotHandedOver, 1, r.Channel.Canonical, r.rollout.Variable)
	}
	emit(metric.RollbackLosses, r.losses.Load(), r.Channel.Canonical)
	b := r.balancer.Load()
	if b == nil {
		return nil
	}
	balancer.Gauges(b, emit)
	return r.Client
}

// Gauges implements channelmetrics.Resolver.
func (r *stockResolver) Gauges(emit metric.Emit) *xds.Client {
	if r.rollout == nil {
		return nil
	}
	of := metric.HandedOver
	if r.err != nil {
		of = metric.NotHandedOver
	}
	emit(of, 1, r.link.Canonical, r.rollout.Variable)
	return nil
}
