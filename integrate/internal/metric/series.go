// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

// maxSeries limits the series of the process: a control plane chooses the names of
// clusters and localities. What is beyond counts in the series of its metric all of
// whose labels are overflow.
const (
	maxSeries = 10000
	overflow  = "other"
)

// store has the series of counts and histograms. Its mutex is held for no longer than
// it takes to look at memory.
var store = struct {
	mu     sync.Mutex
	series map[seriesKey]*series
	// cursors remember what Fold has read.
	cursors map[Source]map[seriesKey]int64
}{series: map[seriesKey]*series{}, cursors: map[Source]map[seriesKey]int64{}}

type seriesKey struct {
	metric int // index in all
	labels Labels
}

// series is a count or a histogram.
type series struct {
	total   int64 // a count
	flushed int64 // of total: what recorders have

	buckets []uint64 // of a histogram, one more than bounds
	sum     float64
	values  []float64 // that recorders do not have yet; empty while there are none
}

// maxValues is how many values of a histogram wait for the next flush. One more makes it
// come at once.
const maxValues = 256

// watched says that somebody may read metrics: a channel has a recorder, or there is
// a handler of package prometheus. Until then no series is made, since nobody would
// ever read or forget it.
var watched atomic.Bool

// Watched reports whether somebody may read metrics. What costs more than a count
// asks before.
func Watched() bool { return watched.Load() }

// Watch has Watched report true from now on.
func Watch() { watched.Store(true) }

// Add adds n to a count, if somebody may read it.
func (m *Metric) Add(n int64, labels ...string) {
	if !Watched() {
		return
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	m.seriesLocked(labels).total += n
}

// Observe adds values to a histogram, if somebody may read it.
func (m *Metric) Observe(values []float64, labels ...string) {
	if !Watched() {
		return
	}
	store.mu.Lock()
	s := m.seriesLocked(labels)
	if s.buckets == nil {
		s.buckets = make([]uint64, len(m.bounds())+1)
	}
	full := false
	for _, v := range values {
		i, _ := slices.BinarySearch(m.bounds(), v)
		s.buckets[i]++
		s.sum += v
		if recording.Load() {
			s.values = append(s.values, v)
			full = len(s.values) > maxValues
		}
	}
	store.mu.Unlock()
	if full {
		flushSoon()
	}
}

// bounds returns the bounds of a histogram's buckets, those of the OpenTelemetry SDK if
// the metric has none of its own.
func (m *Metric) bounds() []float64 {
	if m.Bounds == nil {
		return defaultBounds
	}
	return m.Bounds
}

var defaultBounds = []float64{0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000}

// seriesLocked returns the series with some labels.
func (m *Metric) seriesLocked(labels []string) *series {
	k := seriesKey{metric: m.index}
	n := copy(k.labels[:], labels)
	s := store.series[k]
	if s == nil && len(store.series) >= maxSeries {
		for i := range n {
			k.labels[i] = overflow
		}
		s = store.series[k]
	}
	if s == nil {
		s = new(series)
		store.series[k] = s
	}
	return s
}

// A Source names a counter of which a series counts the increments. It does not keep the
// counter in memory, and is equal to all others of the same counter.
type Source interface {
	// whenGone has f called once the counter is not in memory any more.
	whenGone(f func())
}

// SourceOf returns the Source of an object, or of a part of it if that has several.
func SourceOf[T any](object *T, part string) Source {
	return source[T]{weak.Make(object), part}
}

type source[T any] struct {
	object weak.Pointer[T]
	part   string
}

func (s source[T]) whenGone(f func()) {
	if object := s.object.Value(); object != nil {
		runtime.AddCleanup(object, func(f func()) { f() }, f)
	} else {
		go f() // not at once: the caller holds the store's mutex
	}
}

// Fold adds to a count what source has counted since the last Fold; total is what it has
// counted in all. A total that is less than before adds nothing until it is more. Nothing is
// added for a counter that is 0.
//
// What was read is remembered for as long as the counter is in memory, whether or not it is
// in use: a channel that closes, a client whose channels are idle.
func (m *Metric) Fold(source Source, total int64, labels ...string) {
	if total == 0 {
		return
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	cursors := store.cursors[source]
	if cursors == nil {
		cursors = map[seriesKey]int64{}
		store.cursors[source] = cursors
		source.whenGone(func() { forget(source) })
	}
	k := seriesKey{metric: m.index}
	copy(k.labels[:], labels)
	if read := cursors[k]; total > read {
		m.seriesLocked(labels).total += total - read
		cursors[k] = total
	}
}

// forget forgets what was read of a counter that is gone.
func forget(source Source) {
	store.mu.Lock()
	defer store.mu.Unlock()
	delete(store.cursors, source)
}
