// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	estats "google.golang.org/grpc/experimental/stats"
)

// flushPeriod is how late a count may be where OpenTelemetry reads no gauge of ours.
const flushPeriod = 10 * time.Second

// An Export is a channel's part in what recorders are told. Many channels may share a
// target, an XdsClient or the clusters behind it, and OpenTelemetry wants each series
// from one reporter only. So the oldest channel of a target speaks for all of them, and
// the oldest channel of all for what belongs to no target.
type Export struct {
	target     string
	recorder   estats.MetricsRecorder
	unregister func()
	all, same  *list.Element // in exports
}

// exports are those of the process, oldest first. The first of a list speaks for it.
var exports = struct {
	mu       sync.Mutex
	all      *list.List            // of *Export
	byTarget map[string]*list.List // the same; none is empty
	timer    *time.Timer           // runs while there are any
}{all: list.New(), byTarget: map[string]*list.List{}}

// recording says that there are exports.
var recording atomic.Bool

// Start starts to tell the recorder of a channel about its target. It returns nil if
// nobody has asked gRPC for metrics of the channel. The caller holds no lock, neither
// here nor in Stop.
func Start(target string, recorder estats.MetricsRecorder) *Export {
	x := &Export{target: target, recorder: recorder}
	var asked atomic.Int32
	var gauges []estats.AsyncMetric
	for _, m := range all {
		for _, h := range m.handles {
			if m.Kind == Gauge {
				gauges = append(gauges, asking{h.gauge, &asked})
			}
		}
	}
	x.unregister = recorder.RegisterAsyncReporter(estats.AsyncMetricReporterFunc(x.report), gauges...)
	if int(asked.Load()) <= len(gauges) {
		x.unregister()
		return nil
	}
	Watch()
	exports.mu.Lock()
	defer exports.mu.Unlock()
	same := exports.byTarget[target]
	if same == nil {
		same = list.New()
		exports.byTarget[target] = same
	}
	x.all, x.same = exports.all.PushBack(x), same.PushBack(x)
	recording.Store(true)
	if exports.timer == nil {
		exports.timer = time.AfterFunc(flushPeriod, onTimer)
	}
	return x
}

// asking is a gauge that notices who looks at it. gRPC's list of recorders looks at
// each gauge once, and then each recorder in the list does: so one knows whether there
// are any.
type asking struct {
	*estats.Int64AsyncGaugeHandle
	asked *atomic.Int32
}

// Descriptor implements estats.AsyncMetric.
func (a asking) Descriptor() *estats.MetricDescriptor {
	a.asked.Add(1)
	return a.Int64AsyncGaugeHandle.Descriptor()
}

// Stop ends the channel's part. The recorder is told what is folded so far, if it is the one
// that is told. Stop does nothing if x is nil.
func (x *Export) Stop() {
	if x == nil {
		return
	}
	if forAll, forTarget := x.speaks(); forAll || forTarget {
		tell()
	}
	exports.mu.Lock()
	exports.all.Remove(x.all)
	if same := exports.byTarget[x.target]; same.Len() > 1 {
		same.Remove(x.same)
	} else {
		delete(exports.byTarget, x.target)
	}
	if exports.all.Len() == 0 {
		recording.Store(false)
		exports.timer.Stop()
		exports.timer = nil
	}
	exports.mu.Unlock()
	x.unregister()
}

func onTimer() {
	flush()
	exports.mu.Lock()
	defer exports.mu.Unlock()
	if exports.timer != nil {
		exports.timer.Reset(flushPeriod)
	}
}

// flushSoon has flush called by another goroutine.
func flushSoon() {
	exports.mu.Lock()
	defer exports.mu.Unlock()
	if exports.timer != nil {
		exports.timer.Reset(1)
	}
}

// speakers returns the export that speaks for each target. The one for "" speaks for
// what belongs to none.
func speakers() map[string]*Export {
	exports.mu.Lock()
	defer exports.mu.Unlock()
	m := make(map[string]*Export, len(exports.byTarget)+1)
	for target, same := range exports.byTarget {
		m[target] = same.Front().Value.(*Export)
	}
	if first := exports.all.Front(); first != nil {
		m[""] = first.Value.(*Export)
	}
	return m
}

// speaks reports whether x speaks for all, which is for what belongs to no target, and
// whether it speaks for its target.
func (x *Export) speaks() (forAll, forTarget bool) {
	exports.mu.Lock()
	defer exports.mu.Unlock()
	same := exports.byTarget[x.target]
	return exports.all.Len() > 0 && exports.all.Front() == x.all, same != nil && same.Front() == x.same
}

// increment is what a recorder has to be told of a series.
type increment struct {
	seriesKey
	to     *Export
	n      int64
	values []float64
}

// flush reads the counters of RPCs and tells recorders what has been counted.
func flush() {
	process.Fold()
	tell()
}

// tell tells recorders what has been counted since the last time. What nobody is there
// to hear is not told later.
func tell() {
	to := speakers()
	var list []increment
	store.mu.Lock()
	for k, s := range store.series {
		inc := increment{seriesKey: k, n: s.total - s.flushed, values: s.values}
		s.flushed, s.values = s.total, nil
		if inc.to = to[""]; all[k.metric].Labels[0] == target && k.labels[0] != overflow {
			inc.to = to[k.labels[0]]
		}
		if inc.to != nil && (inc.n > 0 || len(inc.values) > 0) {
			list = append(list, inc)
		}
	}
	store.mu.Unlock()
	slices.SortFunc(list, func(a, b increment) int { return compareKeys(a.seriesKey, b.seriesKey) })
	for i := range list {
		list[i].record()
	}
}

func (inc *increment) record() {
	m := all[inc.metric]
	labels := inc.labels[:len(m.Labels)+len(m.OptionalLabels)]
	for _, h := range m.handles {
		if m.Kind == Count {
			h.count.Record(inc.to.recorder, inc.n, labels...)
		}
		for _, v := range inc.values {
			h.histogram.Record(inc.to.recorder, v, labels...)
		}
	}
}

// report is called when OpenTelemetry reads the gauges of the channel.
func (x *Export) report(r estats.AsyncMetricsRecorder) error {
	forAll, forTarget := x.speaks()
	gauges := map[seriesKey]int64{}
	if forAll {
		flush()
		process.SharedGauges(merge(gauges))
	}
	if forTarget {
		process.TargetGauges(x.target, merge(gauges))
	}
	for k, v := range gauges {
		m := all[k.metric]
		for _, h := range m.handles {
			h.gauge.Record(r, v, k.labels[:len(m.Labels)+len(m.OptionalLabels)]...)
		}
	}
	return nil
}
