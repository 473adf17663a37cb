// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package opentelemetry is an example of exporting the metrics of xDS channels to
// OpenTelemetry, under the names of this module or of grpc-go.
package opentelemetry

import (
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/xdslb/xdslb/integrate"
)

// DialOption returns the option that records the metrics of a channel: gRPC's own RPC metrics,
// and all of this module's. The optional labels are for xdslb.lb.wrr.*.
func DialOption(provider metric.MeterProvider) grpc.DialOption {
	return opentelemetry.DialOption(opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{
		MeterProvider:  provider,
		Metrics:        opentelemetry.DefaultMetrics().Join(integrate.Metrics()),
		OptionalLabels: []string{"grpc.lb.locality", "grpc.lb.backend_service"},
	}})
}

// StockNames is a View that exports the metrics which google.golang.org/grpc/xds also has under
// its names, so that dashboards need no change. It registers no metrics with gRPC under these
// names, so it is compatible with any other linked package. But a program with channels of both
// kinds gets metrics of both under one name from one meter, and should use package
// stockmetrics/withstock instead.
//
//	sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithView(opentelemetry.StockNames))
func StockNames(i sdk.Instrument) (sdk.Stream, bool) {
	if name := integrate.StockMetricName(i.Name); name != "" {
		return sdk.Stream{Name: name, Description: i.Description, Unit: i.Unit}, true
	}
	return sdk.Stream{}, false
}
