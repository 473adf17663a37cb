// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package stockmetrics records this module's metrics also under the names of
// google.golang.org/grpc/xds, so that dashboards and alerts need no change. A program imports
// it for its side effect:
//
//	import _ "github.com/xdslb/xdslb/integrate/stockmetrics"
//
// The metrics are grpc.xds_client.*, grpc.lb.wrr.* and grpc.lb.outlier_detection.*, with the
// units and labels of grpc-go. As in grpc-go, they are off unless they are listed in the
// MetricsOptions of gRPC's OpenTelemetry plugin; [Names] returns the names.
//
// # With google.golang.org/grpc/xds
//
// gRPC terminates a program in which two packages register a metric of the same name. A program
// that also links google.golang.org/grpc/xds, even indirectly, must import
// stockmetrics/withstock instead of this package: then both record the same metrics, each for
// its own channels. Otherwise the program exits at its start with "metric grpc.xds_client...
// already registered".
//
// # Differences
//
// XdsClients are shared by targets, unlike in grpc-go. The metrics of clients are reported
// once for each target that uses the client: a counter of a client with three targets is
// reported three times, and resources of one target are counted for the other targets, too.
//
// gRPC reserves its namespace (A79), so these names are used only with the import.
package stockmetrics

import (
	_ "google.golang.org/grpc/balancer/weightedroundrobin" // registers grpc.lb.wrr.* before this package
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/stats"

	_ "github.com/xdslb/xdslb/integrate" // defines the metrics
	"github.com/xdslb/xdslb/integrate/internal/metric"
)

func init() {
	if err := metric.UseStockNames(); err != nil {
		grpclog.Component("xdslb").Errorf("metrics under grpc-go's names are disabled: %v", err)
	}
}

// Names returns the names of the metrics that this package records.
func Names() *stats.MetricSet { return metric.StockNames() }
