// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package withstock is package stockmetrics for programs that also link
// google.golang.org/grpc/xds. The metrics are the ones that grpc/xds has registered; they are
// never registered twice, in any order of initialization.
//
// Importing it links google.golang.org/grpc/xds.
package withstock

import (
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/stats"
	_ "google.golang.org/grpc/xds" // is initialized before this package, and registers the names

	_ "github.com/xdslb/xdslb/integrate" // defines the metrics
	"github.com/xdslb/xdslb/integrate/internal/metric"
)

func init() {
	if err := metric.UseStockNames(); err != nil {
		grpclog.Component("xdslb").Errorf("No metrics under stock's names: %v", err)
	}
}

// Names returns the names of the metrics that this package records.
func Names() *stats.MetricSet { return metric.StockNames() }
