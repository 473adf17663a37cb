// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	estats "google.golang.org/grpc/experimental/stats"
)

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
