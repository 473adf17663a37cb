// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/montanaflynn/stats"
)

// Implementations whose ratio is claimed alternate in many short rounds, since the drift of a
// shared machine within a second exceeds their difference. All are measured when the
// benchmark's first row runs, and each row reports its own result, so b.N and -count have no
// effect.

// turns measures all entries of a map alternately in the given number of rounds, and returns
// the results of measure for each. A warm-up round is not in the result.
func turns[C, R any](all map[string]C, rounds int, measure func(C) R) map[string][]R {
	if testing.Short() {
		rounds = 1
	}
	names := slices.Sorted(maps.Keys(all))
	results := make(map[string][]R)
	for round := range rounds + 1 {
		for i := range names {
			name := names[(round+i)%len(names)]
			if r := measure(all[name]); round > 0 {
				results[name] = append(results[name], r)
			}
		}
	}
	return results
}

// quantile returns that of a value of the list, which is not empty.
func quantile[R any](list []R, q float64, value func(R) float64) float64 {
	values := make([]float64, len(list))
	for i, r := range list {
		values[i] = value(r)
	}
	result, err := stats.Percentile(values, 100*q)
	if err != nil {
		return math.NaN() // an empty list
	}
	return result
}

// A round includes interference of other processes. For long rounds with pauses and garbage
// collections, the median is reported; for rounds shorter than the scheduler's time slice, the
// lower decile.
const (
	median      = .5
	lowerDecile = .1
)

// A series has results of implementations that are measured together. Each repetition of a
// benchmark (-count) takes the next result, which is measured when needed.
type series[R any] struct {
	measure func() map[string]R
	left    map[string][]R // not taken yet
	now     map[string]R   // of the current repetition
}

func newSeries[R any](measure func() map[string]R) *series[R] {
	return &series[R]{measure: measure, left: map[string][]R{}, now: map[string]R{}}
}

// begin begins a repetition, which package testing does with b.N = 1.
func (s *series[R]) begin(impl string) { delete(s.now, impl) }

// of returns the result of an implementation in the current repetition.
func (s *series[R]) of(impl string) R {
	r, ok := s.now[impl]
	if !ok {
		if len(s.left[impl]) == 0 {
			for name, r := range s.measure() {
				s.left[name] = append(s.left[name], r)
			}
		}
		r = s.left[impl][0]
		s.left[impl], s.now[impl] = s.left[impl][1:], r
	}
	return r
}

// whole is the cost of one operation.
type whole struct{ ns, cpu, bytes, allocs float64 }

// costs returns a quantile of each figure.
func costs(all map[string][]whole, q float64) map[string]whole {
	result := make(map[string]whole)
	for name, list := range all {
		result[name] = whole{
			ns:     quantile(list, q, func(w whole) float64 { return w.ns }),
			cpu:    quantile(list, q, func(w whole) float64 { return w.cpu }),
			bytes:  quantile(list, q, func(w whole) float64 { return w.bytes }),
			allocs: quantile(list, q, func(w whole) float64 { return w.allocs }),
		}
	}
	return result
}

// report reports the cost as that of an operation; ns is 0 if there is no such figure.
func (w whole) report(b *testing.B) {
	b.ReportMetric(w.ns, "ns/op")
	b.ReportMetric(w.cpu, "cpu-ns/op")
	b.ReportMetric(w.bytes, "B/op")
	b.ReportMetric(w.allocs, "allocs/op")
}
