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
	"sync/atomic"
	"time"
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

// flushPeriod is the maximum delay of a count if OpenTelemetry does not read gauges of this
// module.
const flushPeriod = 10 * time.Second

// maxValues is the maximum number of histogram values pending for the next flush; one more
// starts a flush.
const maxValues = 256

// A Channel records the metrics of a gRPC channel that has a recorder. A nil Channel, for a
// channel without one, records no metrics. Count, CountShared and Observe may be called with
// locks held, since recorders are called only by the next flush.
//
// Channels may share a target, an XdsClient, and the counters of clusters. Shared metrics are
// recorded by the oldest Channel of the target, or of the process for metrics without label
// grpc.target.
type Channel struct {
	target     string
	recorder   estats.MetricsRecorder
	source     Source
	unregister func()

	mu          sync.Mutex
	own, shared points // pending increments of counters
	values      []value
	timer       *time.Timer // starts the next flush; nil after Stop
}

// value is a value of a histogram.
type value struct {
	series
	v float64
}

// A Source provides the metrics of a channel. Its functions are called without locks held, and
// must be safe for concurrent use.
type Source struct {
	// Fold folds the counters of the channel, including shared ones. It is nil if there are no
	// counters.
	Fold func(to *Channel)
	// TargetGauges emits the gauges of all channels of a target.
	TargetGauges func(target string, emit Emit)
	// SharedGauges emits the gauges of the process.
	SharedGauges func(emit Emit)
}

// channels has the channels with a recorder by target, oldest first, and all of them under "".
var channels = struct {
	mu sync.Mutex
	to map[string][]*Channel
}{to: map[string][]*Channel{}}

// Start returns a Channel that records the metrics of source until Stop. It returns nil if the
// program has not set a recorder for the channel.
func Start(target string, recorder estats.MetricsRecorder, source Source) *Channel {
	if recorder == nil {
		return nil
	}
	x := &Channel{target: target, recorder: recorder, source: source, own: points{}, shared: points{}}
	var asked atomic.Int32
	var gauges []estats.AsyncMetric
	for _, m := range all {
		if m.Type == Gauge {
			for _, d := range m.names {
				gauges = append(gauges, probeGauge{(*estats.Int64AsyncGaugeHandle)(d), &asked})
			}
		}
	}
	x.unregister = recorder.RegisterAsyncReporter(estats.AsyncMetricReporterFunc(x.report), gauges...)
	if int(asked.Load()) <= len(gauges) && probesFindRecorders() {
		x.unregister()
		return nil
	}
	x.mu.Lock()
	x.timer = time.AfterFunc(flushPeriod, x.onTimer)
	x.mu.Unlock()
	channels.mu.Lock()
	defer channels.mu.Unlock()
	for _, to := range []string{target, ""} {
		channels.to[to] = append(channels.to[to], x)
	}
	return x
}

// Stop records the pending values, and ends the Channel.
func (x *Channel) Stop() {
	if x == nil {
		return
	}
	x.flush()
	channels.mu.Lock()
	for _, to := range []string{x.target, ""} {
		rest := slices.DeleteFunc(channels.to[to], func(other *Channel) bool { return other == x })
		if channels.to[to] = rest; len(rest) == 0 {
			delete(channels.to, to)
		}
	}
	channels.mu.Unlock()
	x.unregister()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.timer.Stop()
	x.timer = nil
}

func (x *Channel) onTimer() {
	x.flush()
	x.flushIn(flushPeriod)
}

func (x *Channel) flushIn(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.timer != nil {
		x.timer.Reset(d)
	}
}

// Count adds to a counter. A series that does not exist yet begins with n, which may be 0.
func (x *Channel) Count(m *Metric, n int64, labels ...string) {
	if x != nil && n >= 0 {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.own.emit(m, n, labels...)
	}
}

// CountShared adds to a counter shared by channels.
func (x *Channel) CountShared(m *Metric, n int64, labels ...string) {
	if x != nil && n >= 0 {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.shared.emit(m, n, labels...)
	}
}

// Observe adds values to a histogram.
func (x *Channel) Observe(m *Metric, values []float64, labels ...string) {
	if x == nil {
		return
	}
	x.mu.Lock()
	for _, v := range values {
		x.values = append(x.values, value{seriesOf(m, labels), v})
	}
	full := len(x.values) > maxValues
	x.mu.Unlock()
	if full {
		x.flushIn(1)
	}
}

// flush records the pending values.
func (x *Channel) flush() {
	if x.source.Fold != nil {
		x.source.Fold(x)
	}
	x.mu.Lock()
	own, shared, values := x.own, x.shared, x.values
	x.own, x.shared, x.values = points{}, points{}, nil
	x.mu.Unlock()
	for s, n := range own {
		s.metric.count(x.recorder, n, s.values())
	}
	for s, n := range shared {
		to := ""
		if s.metric.Labels[0] == target {
			to = x.target
		}
		if oldest := oldestOf(to); oldest != nil { // nil after Stop
			s.metric.count(oldest.recorder, n, s.values())
		}
	}
	for i := range values {
		values[i].metric.observe(x.recorder, values[i].v, values[i].series.values())
	}
}

// report is called when OpenTelemetry reads the gauges of the channel.
func (x *Channel) report(r estats.AsyncMetricsRecorder) error {
	x.flush()
	gauges := points{}
	if oldestOf("") == x {
		x.source.SharedGauges(gauges.emit)
	}
	if oldestOf(x.target) == x {
		x.source.TargetGauges(x.target, gauges.emit)
	}
	for s, v := range gauges {
		for _, d := range s.metric.names {
			(*estats.Int64AsyncGaugeHandle)(d).Record(r, v, s.values()...)
		}
	}
	return nil
}

// oldestOf returns the oldest channel of a target, or of the process for "", or nil.
func oldestOf(target string) *Channel {
	channels.mu.Lock()
	defer channels.mu.Unlock()
	if list := channels.to[target]; len(list) > 0 {
		return list[0]
	}
	return nil
}
