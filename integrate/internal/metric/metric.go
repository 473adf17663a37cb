// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package metric defines the module's metrics and records them with gRPC's API for non-per-call
// metrics (A79), google.golang.org/grpc/experimental/stats. OpenTelemetry, or any other
// recorder that a program sets for a channel, stores and exports them.
//
//	events, histograms ── Channel.Count, Observe ──┐
//	                                               ▼
//	counters of RPCs ──── Fold ──────────────► Channel.flush ──► recorder of the channel
//	                                                                 ▲
//	state ─────────────── gauges, when they are read ────────────────┘
//
// The package stores no metrics of its own, except for the limits of the API:
//
//   - The API has no counter that is read on demand. RPCs increment their own counters and call
//     no recorder. So the package stores the recorded value of each of these counters, and
//     records the difference ([Fold]): when OpenTelemetry reads a gauge, and every flushPeriod.
//   - The API has one recorder per channel, and requires each series of a gauge to have one
//     reporter. So the package keeps a list of the channels that have a recorder, the oldest of
//     which reports shared metrics ([Channel]).
//   - Recorders are code of the program, which is not called with locks held. So events and
//     values of histograms also wait for the next flush.
package metric

import (
	"context"
	"fmt"
	"slices"

	estats "google.golang.org/grpc/experimental/stats"
)

// The types of metrics.
const (
	Count     = estats.MetricTypeIntCount
	Gauge     = estats.MetricTypeIntAsyncGauge
	Histogram = estats.MetricTypeFloatHisto
)

// A Metric is one metric under its name, and under grpc-go's name if that is enabled.
type Metric struct {
	estats.MetricDescriptor
	names []*estats.MetricDescriptor // registered names: one, or two including grpc-go's

	inStock bool                   // grpc-go also has it
	join    func(a, b int64) int64 // merges two values of a gauge with the same labels
}

// all has the metrics in the order of their definition. It is complete after initialization of
// the package.
var all []*Metric

// All returns the metrics. The result must not be modified.
func All() []*Metric { return all }

// define makes a metric and registers it with gRPC.
func define(t estats.MetricType, d estats.MetricDescriptor) *Metric {
	d.Type = t
	m := &Metric{MetricDescriptor: d, join: sum, names: []*estats.MetricDescriptor{register(d)}}
	all = append(all, m)
	return m
}

func register(d estats.MetricDescriptor) *estats.MetricDescriptor {
	switch d.Type {
	case Count:
		return estats.RegisterInt64Count(d).Descriptor()
	case Gauge:
		return estats.RegisterInt64AsyncGauge(d).Descriptor()
	default:
		return estats.RegisterFloat64Histo(d).Descriptor()
	}
}

// alias records the metric under an additional name, which another package may have registered.
func (m *Metric) alias(name string) error {
	d := estats.DescriptorForMetric(name)
	if d == nil {
		other := m.MetricDescriptor
		other.Name = name
		d = register(other)
	}
	if d.Type != m.Type || !slices.Equal(d.Labels, m.Labels) || !slices.Equal(d.OptionalLabels, m.OptionalLabels) {
		return fmt.Errorf("xdslb: metric %s: the linked version of grpc-go registers it with another type or other labels", name)
	}
	m.names = append(m.names, d)
	return nil
}

func (m *Metric) count(r estats.MetricsRecorder, n int64, labels []string) {
	for _, d := range m.names {
		(*estats.Int64CountHandle)(d).Record(r, n, labels...)
	}
}

func (m *Metric) observe(r estats.MetricsRecorder, v float64, labels []string) {
	for _, d := range m.names {
		(*estats.Float64HistoHandle)(d).Record(r, v, labels...)
	}
}

// Emit receives the value of a gauge, or the increment of a counter.
type Emit func(m *Metric, value int64, labels ...string)

// series is a metric with the values of its labels, optional labels last.
type series struct {
	metric *Metric
	labels [4]string
}

func seriesOf(m *Metric, labels []string) series {
	s := series{metric: m}
	copy(s.labels[:], labels)
	return s
}

// values returns the values of the labels.
func (s *series) values() []string {
	return s.labels[:len(s.metric.Labels)+len(s.metric.OptionalLabels)]
}

// points maps series to their values.
type points map[series]int64

// emit is an Emit that merges values of the same series: their sum, maximum or minimum.
func (p points) emit(m *Metric, value int64, labels ...string) {
	s := seriesOf(m, labels)
	if v, ok := p[s]; ok {
		value = m.join(v, value)
	}
	p[s] = value
}

// UpdateLabels adds labels to gRPC's per-attempt metrics, given an attempt's context. It is nil
// unless package attemptlabels is linked, and is set by an init function.
var UpdateLabels func(ctx context.Context, labels map[string]string)
