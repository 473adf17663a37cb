// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"runtime"
	"sync"
	"weak"
)

// folded has, for each counter in memory, the value up to which it has been recorded. It is
// kept for as long as the counter is, since counters outlive channels: XdsClients and the
// counters of load reports are shared.
var folded = struct {
	mu       sync.Mutex
	counters map[any]map[partSeries]int64 // by weak.Pointer to the counter's owner
}{counters: map[any]map[partSeries]int64{}}

type partSeries struct {
	part string
	series
}

// Fold emits by how much a counter of owner has grown since it was last folded; part tells
// apart counters of one owner that have the same series. total is its value. A value below
// the last one emits nothing until the counter has grown beyond that.
func Fold[T any](emit Emit, m *Metric, owner *T, part string, total uint64, labels ...string) {
	if total == 0 {
		return
	}
	folded.mu.Lock()
	key, s := any(weak.Make(owner)), partSeries{part, seriesOf(m, labels)}
	counters := folded.counters[key]
	if counters == nil {
		counters = map[partSeries]int64{}
		folded.counters[key] = counters
		runtime.AddCleanup(owner, forget, key)
	}
	n := max(int64(total)-counters[s], 0)
	counters[s] += n
	folded.mu.Unlock()
	if n > 0 {
		emit(m, n, labels...)
	}
}

// forget is called once the owner of counters is not in memory any more.
func forget(key any) {
	folded.mu.Lock()
	defer folded.mu.Unlock()
	delete(folded.counters, key)
}
