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
//
// # How to add a metric
//
// A backend metric in load reports (A85): balancer.newMetricNames and orcaRecorder.onDone.
//
// A metric of the client: defined.go defines it, and integrate/METRICS.md documents it with its
// cost. Counters that exist anyway (D16) are folded when metrics are read: channelmetrics.FoldLoad
// for clusters, balancer.Counts for interceptors and channels, channelmetrics.FoldClient for
// XdsClients. Events are counted by the balancer.recorder. States are gauges: targetGauges and
// sharedGauges in integrate/metrics.go. The test belongs in
// integrate/examples/opentelemetry/balancing_test.go. Add nothing to Snapshot.PickCluster.
package metric

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"weak"

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

// folded has, for each live counter, the value that has been recorded so far. It is kept as
// long as the counter, since counters outlive channels: XdsClients and the counters of load
// reports are shared.
var folded = struct {
	mu       sync.Mutex
	counters map[any]map[partSeries]int64 // by weak.Pointer to the counter's owner
}{counters: map[any]map[partSeries]int64{}}

type partSeries struct {
	part string
	series
}

// Fold emits the increase of a counter of owner since it was last folded; part distinguishes
// counters of one owner with the same series. total is the counter's value. If the value is
// lower than the last one, nothing is emitted until it exceeds the last one. The first call emits the
// total also if it is 0, so that the series exists before its first event: Prometheus' increase() does not
// see the first value of a series.
func Fold[T any](emit Emit, m *Metric, owner *T, part string, total uint64, labels ...string) {
	folded.mu.Lock()
	key, s := any(weak.Make(owner)), partSeries{part, seriesOf(m, labels)}
	counters := folded.counters[key]
	if counters == nil {
		counters = map[partSeries]int64{}
		folded.counters[key] = counters
		runtime.AddCleanup(owner, forget, key)
	}
	before, known := counters[s]
	n := max(int64(total)-before, 0)
	counters[s] = before + n
	folded.mu.Unlock()
	if n > 0 || !known {
		emit(m, n, labels...)
	}
}

// forget is called after the owner of counters has been garbage-collected.
func forget(key any) {
	folded.mu.Lock()
	defer folded.mu.Unlock()
	delete(folded.counters, key)
}
