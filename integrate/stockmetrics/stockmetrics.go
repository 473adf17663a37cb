// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package stockmetrics has this module's metrics recorded under the names that
// google.golang.org/grpc/xds has for them as well, so that dashboards and alerts stay as
// they are. A program imports it for that effect:
//
//	import _ "github.com/xdslb/xdslb/integrate/stockmetrics"
//
// The metrics are grpc.xds_client.*, grpc.lb.wrr.* and grpc.lb.outlier_detection.*, with
// the units and labels of grpc-go. As there, they are off unless they are named in the
// MetricsOptions of gRPC's OpenTelemetry plugin; [Names] has the names.
//
// # With google.golang.org/grpc/xds
//
// gRPC ends a program in which two packages register a metric of the same name. A
// program that links google.golang.org/grpc/xds as well, be it through another package,
// imports stockmetrics/withstock instead of this one: there both record the same
// metrics, each for its own channels. A program that gets that wrong ends at its start
// with "metric grpc.xds_client... already registered".
//
// # What differs
//
// XdsClients are shared by targets (D4), and stock's are not. The metrics of clients are
// reported once for each target that uses the client: a count of a client with three
// targets is there three times, and resources of one target are counted for the others
// too.
//
// gRPC asks other modules to stay out of its namespace (A79). So nothing here happens
// without the import.
package stockmetrics

import (
	_ "google.golang.org/grpc/balancer/weightedroundrobin" // registers grpc.lb.wrr.*: before us, then
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/stats"

	_ "github.com/xdslb/xdslb/integrate" // which the metrics are of
	"github.com/xdslb/xdslb/integrate/internal/metric"
)

func init() {
	if err := metric.UseStockNames(); err != nil {
		grpclog.Component("xdslb").Errorf("No metrics under stock's names: %v", err)
	}
}

// Names returns the names of the metrics that this package records.
func Names() *stats.MetricSet { return metric.StockNames() }
