// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package orcaweight

import (
	"math"
	"strings"
	"sync/atomic"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
)

// A Utilization is the rule for the utilization in reports, for load_aware_locality. It is
// immutable.
type Utilization struct{ metrics []metric }

// NewUtilization returns a Utilization that prefers the given metrics.
func NewUtilization(names []string) *Utilization {
	return &Utilization{newMetrics(names)}
}

// maxUtilization limits a reported utilization before it is averaged. An endpoint is full at 1.
// A larger limit would only delay the recovery of a locality after an absurd report, since the
// moving average approaches later reports exponentially.
const maxUtilization = 10

// Of returns the maximum of the metrics, otherwise the application's utilization, otherwise the
// CPU utilization: the first that is positive and finite, as in Envoy, or 0. Values are capped
// at maxUtilization.
func (u *Utilization) Of(report *orcav3.OrcaLoadReport) float64 {
	for _, value := range []float64{greatest(u.metrics, report), report.GetApplicationUtilization(), report.GetCpuUtilization()} {
		if usable(value) {
			return min(value, maxUtilization)
		}
	}
	return 0
}

func newMetrics(names []string) (list []metric) {
	for _, name := range names {
		field, key, _ := strings.Cut(name, ".")
		list = append(list, metric{field, key})
	}
	return list
}

// greatest returns the maximum of the usable metrics, or 0.
func greatest(metrics []metric, report *orcav3.OrcaLoadReport) (most float64) {
	for _, m := range metrics {
		if u := m.of(report); usable(u) {
			most = max(most, u)
		}
	}
	return most
}

// A Sample is the latest utilization that one endpoint has reported. The zero Sample has no
// reports. It must not be copied. It is safe for concurrent use.
type Sample struct {
	value   atomic.Uint64 // the bits of a float64
	updated atomic.Int64  // time of the last report; 0 means never
}

// Report records a utilization, unless it is 0. Does not allocate.
func (s *Sample) Report(utilization float64, now int64) {
	if utilization == 0 {
		return
	}
	s.value.Store(math.Float64bits(utilization))
	s.updated.Store(now)
}

// At returns the utilization, or 0 if there was no report within the expiration period. An
// expiration of 0 means never.
func (s *Sample) At(expiration time.Duration, now int64) float64 {
	updated := s.updated.Load()
	if updated == 0 || expiration > 0 && now-updated > int64(expiration) {
		return 0
	}
	return math.Float64frombits(s.value.Load())
}

// Smoothed is the moving average of a locality's utilization. The zero Smoothed has no samples.
type Smoothed struct {
	Value float64
	known bool
}

// Add adds a sample that follows the previous one after period: the first is used unchanged,
// further ones have the weight 1 − exp(−period/constant), so that the result does not depend on
// the sampling rate.
func (s *Smoothed) Add(sample float64, period, constant time.Duration) {
	if !s.known {
		s.Value, s.known = sample, true
		return
	}
	s.Value -= math.Expm1(-float64(period)/float64(constant)) * (sample - s.Value)
}
