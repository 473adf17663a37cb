// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package opentelemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// Prometheus returns a provider for DialOption and the page of its metrics for Prometheus to
// scrape:
//
//	provider, page, err := opentelemetry.Prometheus()
//	http.Handle("/metrics", page)
//	cc, err := integrate.NewClient("xds:///service", opentelemetry.DialOption(provider), ...)
//
// In names, dots become underscores, followed by the unit, and _total for counters:
// xdslb.lb.picks is xdslb_lb_picks_total, xdslb.lb.publication_duration is
// xdslb_lb_publication_duration_seconds.
func Prometheus(options ...sdk.Option) (*sdk.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, nil, err
	}
	return sdk.NewMeterProvider(append(options, sdk.WithReader(reader))...), promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
