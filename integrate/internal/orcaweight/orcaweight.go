// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package orcaweight turns what backends report of their load (ORCA, A51) into
// weights for client-side weighted round robin (A58, A114), and into utilizations
// of localities for Envoy's load_aware_locality.
//
// A [Rule] is the formula, compiled from a policy's configuration; a [Weight] is
// what it has come to for one endpoint, and for how long it may be used; so are
// [Utilization] and [Sample], and [Smoothed] is that of a locality. None
// knows of connections or timers. Times are nanoseconds on any monotonic clock,
// and above 0.
package orcaweight

import (
	"math"
	"sync/atomic"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/xdslb/xdslb/picker"
)

// A Rule computes weights from reports. It is immutable.
type Rule struct {
	penalty float64
	metrics []metric
}

// metric is one of A114's names: a field, or a key of a map.
type metric struct{ field, key string }

// NewRule returns the rule of a policy.
func NewRule(cfg *picker.ClientWRR) *Rule {
	return &Rule{penalty: cfg.ErrorPenalty, metrics: newMetrics(cfg.UtilizationFrom)}
}

// Weight returns the weight that a report amounts to: queries per second that the
// backend would serve at a utilization of 1, errors counting as utilization. It is
// positive and finite, or 0 if the report says nothing (T-WRR-4): its queries or
// its utilization are 0, missing, or not a number. O(metrics).
//
// A58 knows of errors only what the backend reports. One that does not report them and
// refuses RPCs at once uses no CPU, and the formula would give it a great weight. So
// failing, the part of the backend's RPCs that the client saw fail (see Failures), counts
// where the report has no errors.
func (r *Rule) Weight(report *orcav3.OrcaLoadReport, failing float64) float64 {
	qps, u := report.GetRpsFractional(), r.utilization(report)
	if !usable(qps) || u == 0 {
		return 0
	}
	if eps := report.GetEps(); usable(eps) {
		failing = eps / qps
	}
	u += failing * r.penalty
	if w := qps / u; usable(w) {
		return w
	}
	return 0
}

// utilization returns the application's utilization, or else the greatest of the
// metrics that are configured, or else the processor's (A114); 0 if it is none of
// them.
func (r *Rule) utilization(report *orcav3.OrcaLoadReport) float64 {
	if u := report.GetApplicationUtilization(); usable(u) {
		return u
	}
	most := greatest(r.metrics, report)
	if u := report.GetCpuUtilization(); most == 0 && usable(u) {
		return u
	}
	return most
}

// of returns the value of the metric; 0 if the report lacks it. A name without a
// dot has no key, which no backend reports.
func (m metric) of(report *orcav3.OrcaLoadReport) float64 {
	switch m.field {
	case "named_metrics":
		return report.GetNamedMetrics()[m.key]
	case "utilization":
		return report.GetUtilization()[m.key]
	}
	if m.key != "" {
		return 0
	}
	switch m.field {
	case "cpu_utilization":
		return report.GetCpuUtilization()
	case "mem_utilization":
		return report.GetMemUtilization()
	case "application_utilization":
		return report.GetApplicationUtilization()
	}
	return 0
}

// usable reports whether v is a positive, finite number.
func usable(v float64) bool { return v > 0 && v <= math.MaxFloat64 }

// A Weight is the latest weight of one endpoint. It lives as long as the endpoint
// does (T-WRR-5). The zero Weight is one without reports; it must not be copied.
// Any number of goroutines may call its methods.
type Weight struct {
	value   atomic.Uint64 // the bits of a float64
	updated atomic.Int64  // when the last report came; 0 is never
	since   atomic.Int64  // from when on reports have come without a gap; 0 is not yet
}

// Report takes note of a report's weight, unless that is 0. Reports after a gap of
// the expiration period or more begin a new blackout period (A58). Two reports at
// the same time leave either weight. Does not allocate.
func (w *Weight) Report(cfg *picker.ClientWRR, value float64, now int64) {
	if value == 0 {
		return
	}
	w.value.Store(math.Float64bits(value))
	last := w.updated.Swap(now)
	if w.since.Load() == 0 || now-last >= int64(cfg.Expiration) {
		w.since.Store(now)
	}
}

// Connect begins a new blackout period: the endpoint has become READY, and may be
// another process.
func (w *Weight) Connect() { w.since.Store(0) }

// Expired reports whether reports have come, and the last one too long ago.
func (w *Weight) Expired(cfg *picker.ClientWRR, now int64) bool {
	updated := w.updated.Load()
	return updated != 0 && now-updated >= int64(cfg.Expiration)
}

// At returns the weight to use, or 0 if it is not known: no report yet, the last one
// too long ago, or the first one too recent (T-WRR-3). A blackout period of 0 is
// none.
func (w *Weight) At(cfg *picker.ClientWRR, now int64) float64 {
	updated, since := w.updated.Load(), w.since.Load()
	switch {
	case updated == 0 || now-updated >= int64(cfg.Expiration):
		return 0
	case cfg.Blackout > 0 && (since == 0 || now-since < int64(cfg.Blackout)):
		return 0
	}
	return math.Float64frombits(w.value.Load())
}

// Failures is the part of an endpoint's RPCs that failed of late, from 0 to 1: the
// average over its RPCs, of which each counts 1/64 less than the one after it. The zero
// Failures is none; it must not be copied. Any number of goroutines may call its methods.
type Failures struct {
	part atomic.Uint64 // the bits of a float64
}

// latestWeight is what the latest RPC counts, and minPart what is no failure any more.
const (
	latestWeight = 1. / 64
	minPart      = 1e-3
)

// Count counts the end of an RPC. Of two at the same time one may be lost. It writes
// nothing while no RPC fails, and does not allocate.
func (f *Failures) Count(failed bool) {
	part := math.Float64frombits(f.part.Load())
	switch {
	case failed:
		part += (1 - part) * latestWeight
	case part == 0:
		return
	default:
		if part -= part * latestWeight; part < minPart {
			part = 0
		}
	}
	f.part.Store(math.Float64bits(part))
}

// Part returns the part of the RPCs that failed.
func (f *Failures) Part() float64 { return math.Float64frombits(f.part.Load()) }

// Reset forgets all RPCs.
func (f *Failures) Reset() { f.part.Store(0) }
