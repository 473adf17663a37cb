// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"slices"
	"sync"

	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/stats"
)

// A Recorder stores the metrics of its channels, as OpenTelemetry would:
//
//	grpc.WithStatsHandler(recorder)
//
// The zero Recorder is ready to use. It must not be copied.
type Recorder struct {
	estats.UnimplementedMetricsRecorder

	mu        sync.Mutex
	recorded  []sample
	reporters map[*estats.AsyncMetricReporter]struct{}
}

// sample is one recorded value.
type sample struct {
	name   string
	labels []string
	value  float64
}

// Sum returns the sum of a metric's values with the given label values; for a histogram, the
// number of values. Gauges are read at the time of the call.
func (r *Recorder) Sum(name string, labels ...string) (sum float64) {
	g := &gauges{Recorder: r}
	for _, reporter := range r.all() {
		_ = (*reporter).Report(g) // gRPC also ignores the error
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range append(g.samples, r.recorded...) {
		lacks := func(label string) bool { return !slices.Contains(s.labels, label) }
		if s.name == name && !slices.ContainsFunc(labels, lacks) {
			sum += s.value
		}
	}
	return sum
}

// Has reports whether a count or a histogram has been recorded with the given label values, even as 0.
func (r *Recorder) Has(name string, labels ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.recorded, func(s sample) bool {
		return s.name == name && !slices.ContainsFunc(labels, func(label string) bool { return !slices.Contains(s.labels, label) })
	})
}

func (r *Recorder) all() (all []*estats.AsyncMetricReporter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for reporter := range r.reporters {
		all = append(all, reporter)
	}
	return all
}

func (r *Recorder) record(name string, value float64, labels []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.recorded {
		if s := &r.recorded[i]; s.name == name && slices.Equal(s.labels, labels) {
			s.value += value
			return
		}
	}
	r.recorded = append(r.recorded, sample{name, slices.Clone(labels), value})
}

// RecordInt64Count implements estats.MetricsRecorder.
func (r *Recorder) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	r.record(h.Name, float64(n), labels)
}

// RecordFloat64Histo implements estats.MetricsRecorder.
func (r *Recorder) RecordFloat64Histo(h *estats.Float64HistoHandle, _ float64, labels ...string) {
	r.record(h.Name, 1, labels)
}

// RegisterAsyncReporter implements estats.MetricsRecorder.
func (r *Recorder) RegisterAsyncReporter(reporter estats.AsyncMetricReporter, metrics ...estats.AsyncMetric) func() {
	for _, m := range metrics {
		_ = m.Descriptor() // as in OpenTelemetry's plugin
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reporters == nil {
		r.reporters = map[*estats.AsyncMetricReporter]struct{}{}
	}
	key := &reporter
	r.reporters[key] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.reporters, key)
	}
}

// gauges receives the values of gauges.
type gauges struct {
	*Recorder
	samples []sample
}

// RecordInt64AsyncGauge implements estats.AsyncMetricsRecorder.
func (g *gauges) RecordInt64AsyncGauge(h *estats.Int64AsyncGaugeHandle, n int64, labels ...string) {
	g.samples = append(g.samples, sample{h.Name, slices.Clone(labels), float64(n)})
}

// TagRPC implements stats.Handler.
func (*Recorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (*Recorder) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler.
func (*Recorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (*Recorder) HandleConn(context.Context, stats.ConnStats) {}
