// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"math"
	"strings"
	"sync/atomic"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	_ "google.golang.org/grpc/orca" // decodes the reports in trailers, once per RPC (A51)

	"github.com/xdslb/xdslb/picker"
)

// orcaSink is where the endpoints of a locality leave what backends say about
// their load at the end of RPCs.
type orcaSink struct {
	metrics *picker.Metrics
	wanted  *atomic.Pointer[metricNames] // the leaf's; nil inside is none
}

// metricNames says which metrics a cluster's load reports pass on (A85).
type metricNames struct {
	cpu, mem, application bool
	allNamed              bool
	named                 map[string]bool
}

const namedPrefix = "named_metrics."

// newMetricNames reads CDS's lrs_report_endpoint_metrics. Names that it does
// not know are ignored.
func newMetricNames(names []string) *metricNames {
	if len(names) == 0 {
		return nil
	}
	m := &metricNames{named: map[string]bool{}}
	for _, name := range names {
		switch key, named := strings.CutPrefix(name, namedPrefix); {
		case named && key == "*":
			m.allNamed = true
		case named:
			m.named[key] = true
		case name == "cpu_utilization":
			m.cpu = true
		case name == "mem_utilization":
			m.mem = true
		case name == "application_utilization":
			m.application = true
		}
	}
	return m
}

// note adds a report to the sums, as far as the cluster wants it. Utilizations
// that are not positive were not set. What is not a finite number is left out: one
// backend could spoil the sum of all.
func (s *orcaSink) note(load any) {
	report, ok := load.(*orcav3.OrcaLoadReport)
	wanted := s.wanted.Load()
	if !ok || report == nil || wanted == nil {
		return
	}
	for _, u := range []struct {
		wanted bool
		name   string
		value  float64
	}{
		{wanted.cpu, "cpu_utilization", report.GetCpuUtilization()},
		{wanted.mem, "mem_utilization", report.GetMemUtilization()},
		{wanted.application, "application_utilization", report.GetApplicationUtilization()},
	} {
		if u.wanted && u.value > 0 && finite(u.value) {
			s.metrics.Add(u.name, u.value)
		}
	}
	for key, value := range report.GetNamedMetrics() {
		if (wanted.allNamed || wanted.named[key]) && finite(value) {
			s.metrics.Add(namedPrefix+key, value)
		}
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
