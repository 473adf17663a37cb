// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"runtime"
	"sync"
	"weak"
)

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
// lower than the last one, nothing is emitted until it exceeds the last one.
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

// forget is called after the owner of counters has been garbage-collected.
func forget(key any) {
	folded.mu.Lock()
	defer folded.mu.Unlock()
	delete(folded.counters, key)
}
