// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"cmp"
	"slices"
)

// Process is where the state of the process is read. Package integrate implements it.
// The methods are called with no lock held, by any number of goroutines.
type Process interface {
	// Fold folds the counters that there are into the series.
	Fold()
	// Targets returns the targets of the channels that there are.
	Targets() []string
	// TargetGauges emits the gauges of the channels of a target.
	TargetGauges(target string, emit Emit)
	// SharedGauges emits the gauges that belong to no target.
	SharedGauges(emit Emit)
}

// Emit takes the value of a gauge. Values of a gauge with the same labels are added up,
// or the greatest or the least counts.
type Emit func(m *Metric, value int64, labels ...string)

var process Process

// SetProcess says where the state is read. It is called from an init function.
func SetProcess(p Process) { process = p }

// Sample is the value of a series.
type Sample struct {
	Labels  Labels
	Value   int64    // of a count or gauge
	Buckets []uint64 // of a histogram, one more than Bounds; each without those below
	Sum     float64
}

// Family is a metric with its samples.
type Family struct {
	*Metric
	Bounds  []float64
	Samples []Sample
}

// Gather reads everything: the metrics that have samples, in the order of All, each with
// its samples in the order of their labels.
func Gather() []Family {
	process.Fold()
	gauges := map[seriesKey]int64{}
	emit := merge(gauges)
	process.SharedGauges(emit)
	for _, t := range process.Targets() {
		process.TargetGauges(t, emit)
	}
	families := make([]Family, len(all))
	for i, m := range all {
		families[i] = Family{Metric: m}
		if m.Kind == Histogram {
			families[i].Bounds = m.bounds()
		}
	}
	for k, v := range gauges {
		f := &families[k.metric]
		f.Samples = append(f.Samples, Sample{Labels: k.labels, Value: v})
	}
	store.mu.Lock()
	for k, s := range store.series {
		f := &families[k.metric]
		f.Samples = append(f.Samples, Sample{Labels: k.labels, Value: s.total, Buckets: slices.Clone(s.buckets), Sum: s.sum})
	}
	store.mu.Unlock()
	for _, f := range families {
		slices.SortFunc(f.Samples, func(a, b Sample) int { return slices.Compare(a.Labels[:], b.Labels[:]) })
	}
	return slices.DeleteFunc(families, func(f Family) bool { return len(f.Samples) == 0 })
}

// merge returns an Emit that puts values together in a map.
func merge(into map[seriesKey]int64) Emit {
	return func(m *Metric, value int64, labels ...string) {
		k := seriesKey{metric: m.index}
		copy(k.labels[:], labels)
		if was, ok := into[k]; ok {
			value = m.join(was, value)
		}
		into[k] = value
	}
}

// compareKeys orders series.
func compareKeys(a, b seriesKey) int {
	return cmp.Or(cmp.Compare(a.metric, b.metric), slices.Compare(a.labels[:], b.labels[:]))
}
