// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package orcaweight provides the conversion of load reports from backends (ORCA, A51) into
// weights for client-side weighted round robin (A58, A114).
//
// A [Rule] is the formula, compiled from a policy's configuration; a [Weight] is its latest
// result for one endpoint, with its validity. The package does not depend on connections or
// timers. Times are nanoseconds on any monotonic clock, and above 0.
package orcaweight

import (
	"math"
	"strings"
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
	r := &Rule{penalty: cfg.ErrorPenalty}
	for _, name := range cfg.UtilizationFrom {
		field, key, _ := strings.Cut(name, ".")
		r.metrics = append(r.metrics, metric{field, key})
	}
	return r
}

// Weight returns the weight computed from a report: queries per second that the backend would
// serve at a utilization of 1, where errors count as utilization. It is positive and finite, or
// 0 if it cannot be computed (T-WRR-4): the queries or the utilization are 0, missing, or not a
// number. O(metrics).
//
// In A58 errors count only if the backend reports them. A backend that does not report errors
// and rejects RPCs immediately uses no CPU, and the formula would give it a large weight. So
// failing, the fraction of the backend's RPCs that failed as seen by the client (see Failures),
// is used if the report has no errors.
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

// utilization returns the application's utilization, otherwise the maximum of the configured
// metrics, otherwise the CPU utilization (A114); 0 if all are missing.
func (r *Rule) utilization(report *orcav3.OrcaLoadReport) float64 {
	if u := report.GetApplicationUtilization(); usable(u) {
		return u
	}
	most := 0.
	for _, m := range r.metrics {
		if u := m.of(report); usable(u) {
			most = max(most, u)
		}
	}
	if u := report.GetCpuUtilization(); most == 0 && usable(u) {
		return u
	}
	return most
}

// of returns the value of the metric; 0 if the report lacks it. A name without a dot has an
// empty key, which no backend reports.
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

// A Weight is the latest weight of one endpoint. It lives as long as the endpoint (T-WRR-5).
// The zero Weight has no reports. It must not be copied. It is safe for concurrent use.
type Weight struct {
	value   atomic.Uint64 // the bits of a float64
	updated atomic.Int64  // time of the last report; 0 means never
	since   atomic.Int64  // start of the reports without a gap; 0 before the first
}

// Report records a report's weight, unless it is 0. The first report, and a report after a gap
// of the expiration period or more, starts a new blackout period (A58). Of two concurrent
// reports, either weight remains. Does not allocate.
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

// Connect starts a new blackout period: the endpoint has become READY, and may be another
// process.
func (w *Weight) Connect() { w.since.Store(0) }

// Expired reports whether there have been reports and the last one has expired.
func (w *Weight) Expired(cfg *picker.ClientWRR, now int64) bool {
	updated := w.updated.Load()
	return updated != 0 && now-updated >= int64(cfg.Expiration)
}

// At returns the weight to use, or 0 if it is unknown: no report yet, the last one expired, or
// within the blackout period (T-WRR-3). A blackout period of 0 is disabled.
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

// Failures is the recent fraction of an endpoint's RPCs that failed, from 0 to 1: an average in
// which each RPC counts 1/64 less than the next one. The zero value reports no failures. A
// Failures must not be copied. It is safe for concurrent use.
type Failures struct {
	part atomic.Uint64 // the bits of a float64
}

// latestWeight is the weight of the latest RPC, and minPart the fraction that is rounded to
// zero.
const (
	latestWeight = 1. / 64
	minPart      = 1e-3
)

// Count records the end of an RPC. Of two concurrent calls one may be lost. It does not write
// while no RPC fails, and does not allocate.
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

// Part returns the fraction of the RPCs that failed.
func (f *Failures) Part() float64 { return math.Float64frombits(f.part.Load()) }

// Reset discards all RPCs.
func (f *Failures) Reset() { f.part.Store(0) }
