// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package metric is how the module's metrics leave it: through gRPC's registry of
// metrics that are not per call (A79), which is how OpenTelemetry gets them, and in a
// form for whoever has no OpenTelemetry.
//
//	what happens ─── Add, Observe ───┐
//	                                 ▼
//	counters of RPCs ── Fold ──► series ──┬── Gather ──► package prometheus
//	                                      └── flush ───► recorders of channels ──► OpenTelemetry
//	states ──────────── gauges, when somebody reads ────┘
//
// Counts and histograms are series of the process: a map under one mutex, for things
// that happen off the way of RPCs. What RPCs count is read from their own counters, and
// only when somebody reads metrics.
//
// gRPC knows no counter that is read when it is wanted. So the differences are recorded
// when OpenTelemetry reads a gauge, and every flushPeriod, by one timer of the process
// that runs while a channel has a recorder.
package metric

import (
	"context"
	"fmt"
	"slices"

	estats "google.golang.org/grpc/experimental/stats"
)

// Kind is what a metric is.
type Kind uint8

// The kinds of metrics.
const (
	Count     Kind = iota // only grows
	Gauge                 // is read
	Histogram             // of float64
)

// String returns the name that the Prometheus text format has for the kind.
func (k Kind) String() string { return [...]string{"counter", "gauge", "histogram"}[k] }

// A Metric is one metric under its name, and under stock's if that is switched on. Its
// methods do not keep the labels' values beyond what a series needs.
type Metric struct {
	estats.MetricDescriptor
	Kind Kind

	join    func(a, b int64) int64 // makes one of two values of a gauge that have the same labels
	handles []handle               // one, or also stock's
	index   int                    // in all
}

// handle is what gRPC gives for a registered metric. The one for the metric's Kind is
// set.
type handle struct {
	count     *estats.Int64CountHandle
	gauge     *estats.Int64AsyncGaugeHandle
	histogram *estats.Float64HistoHandle
}

// maxLabels is how many labels a metric may have.
const maxLabels = 4

// Labels are the values of a metric's labels, the optional ones last.
type Labels [maxLabels]string

// Keys returns the names of the labels, the optional ones last, in a slice of the caller's.
func (m *Metric) Keys() []string { return slices.Concat(m.Labels, m.OptionalLabels) }

// all has the metrics in the order of their definition. It is complete once the
// package is initialized.
var all []*Metric

// All returns the metrics. The caller does not change them.
func All() []*Metric { return all }

// define makes a metric and registers it with gRPC.
func define(kind Kind, d estats.MetricDescriptor) *Metric {
	m := &Metric{MetricDescriptor: d, Kind: kind, index: len(all), join: sum}
	if n := len(d.Labels) + len(d.OptionalLabels); n > maxLabels {
		panic(fmt.Sprintf("xdslb: metric %s has %d labels", d.Name, n))
	}
	m.register(d)
	all = append(all, m)
	return m
}

// register registers the metric under the name in d.
func (m *Metric) register(d estats.MetricDescriptor) {
	switch m.Kind {
	case Count:
		m.handles = append(m.handles, handle{count: estats.RegisterInt64Count(d)})
	case Gauge:
		m.handles = append(m.handles, handle{gauge: estats.RegisterInt64AsyncGauge(d)})
	case Histogram:
		m.handles = append(m.handles, handle{histogram: estats.RegisterFloat64Histo(d)})
	}
}

// adopt records the metric under a name that another package has registered too.
func (m *Metric) adopt(d *estats.MetricDescriptor) error {
	want := map[Kind]estats.MetricType{Count: estats.MetricTypeIntCount, Gauge: estats.MetricTypeIntAsyncGauge, Histogram: estats.MetricTypeFloatHisto}[m.Kind]
	if d.Type != want || fmt.Sprint(d.Labels, d.OptionalLabels) != fmt.Sprint(m.Labels, m.OptionalLabels) {
		return fmt.Errorf("xdslb: metric %s of this version of grpc-go is another than that of the version xdslb was made for", d.Name)
	}
	switch m.Kind {
	case Count:
		m.handles = append(m.handles, handle{count: (*estats.Int64CountHandle)(d)})
	case Gauge:
		m.handles = append(m.handles, handle{gauge: (*estats.Int64AsyncGaugeHandle)(d)})
	case Histogram:
		m.handles = append(m.handles, handle{histogram: (*estats.Float64HistoHandle)(d)})
	}
	return nil
}

// UpdateLabels adds labels to the per-attempt metrics of gRPC, given an attempt's
// context. It is nil unless package attemptlabels is linked, and is set by an init function.
var UpdateLabels func(ctx context.Context, labels map[string]string)
