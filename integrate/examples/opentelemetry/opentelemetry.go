// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package opentelemetry shows how a program gets the metrics of its xDS channels into
// OpenTelemetry, under the names of this module or under stock's.
package opentelemetry

import (
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/xdslb/xdslb/integrate"
)

// DialOption returns the option that has the metrics of a channel recorded: gRPC's own of
// RPCs, and all of this module's. The optional labels are those of xdslb.lb.wrr.*.
func DialOption(provider metric.MeterProvider) grpc.DialOption {
	return opentelemetry.DialOption(opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{
		MeterProvider:  provider,
		Metrics:        opentelemetry.DefaultMetrics().Join(integrate.Metrics()),
		OptionalLabels: []string{"grpc.lb.locality", "grpc.lb.backend_service"},
	}})
}

// StockNames is a View that exports the metrics that google.golang.org/grpc/xds has too
// under its names, so that dashboards stay as they are. Nothing is registered with gRPC
// under these names, so it goes with whatever else is linked; but a program that has
// channels of both kinds gets metrics of both under one name from one meter, and wants
// package stockmetrics/withstock instead.
//
//	sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithView(opentelemetry.StockNames))
func StockNames(i sdk.Instrument) (sdk.Stream, bool) {
	if name := integrate.StockMetricName(i.Name); name != "" {
		return sdk.Stream{Name: name, Description: i.Description, Unit: i.Unit}, true
	}
	return sdk.Stream{}, false
}
