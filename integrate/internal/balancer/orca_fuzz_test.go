// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math"
	"strings"
	"sync/atomic"
	"testing"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/orcaweight"
	"github.com/xdslb/xdslb/picker"
)

// FuzzLoadReport passes a backend's load report to the custom metrics (A85) and to its weight
// (A58): with any report, sums remain numbers, only of metrics that the cluster selects and of no
// more than the limit, and a weight is usable or 0. It is not in package fuzz because no report
// reaches these but through an RPC.
func FuzzLoadReport(f *testing.F) {
	for _, report := range []*orcav3.OrcaLoadReport{
		{},
		{CpuUtilization: 0.8, MemUtilization: 0.5, ApplicationUtilization: 2, RpsFractional: 100, Eps: 3},
		{CpuUtilization: math.NaN(), MemUtilization: math.Inf(1), ApplicationUtilization: -1, RpsFractional: math.Inf(1), Eps: math.NaN()},
		{NamedMetrics: map[string]float64{"a": math.NaN(), "b": math.Inf(-1), "": 1e308}, Utilization: map[string]float64{"a": 1e-308}, RpsFractional: 1e308},
		{RequestCost: map[string]float64{"a": 5e-324}, CpuUtilization: 5e-324, RpsFractional: math.MaxFloat64},
	} {
		b, err := proto.Marshal(report)
		kit.Must(f, err)
		f.Add(b, "cpu_utilization,named_metrics.*,utilization.a", 1.)
		f.Add(b, "mem_utilization,named_metrics.a,named_metrics.,x", math.NaN())
	}
	f.Fuzz(func(t *testing.T, b []byte, names string, penalty float64) {
		report := new(orcav3.OrcaLoadReport)
		if proto.Unmarshal(b, report) != nil {
			return
		}
		list := strings.Split(names, ",")
		var wanted atomic.Pointer[metricNames]
		wanted.Store(newMetricNames(list))
		load := new(picker.ClusterLoad)
		s := &orcaRecorder{load.Metrics(picker.LocalityID{}), &wanted}
		for range 2 {
			s.onDone(report)
		}
		sums := load.TakeMetrics()[picker.LocalityID{}]
		if len(sums) > 3+len(report.GetNamedMetrics()) || len(sums) > 1000 {
			t.Errorf("%d sums of %v", len(sums), report)
		}
		all := map[string]float64{
			"cpu_utilization": report.GetCpuUtilization(), "mem_utilization": report.GetMemUtilization(),
			"application_utilization": report.GetApplicationUtilization(),
		}
		for key, value := range report.GetNamedMetrics() {
			all[namedPrefix+key] = value
		}
		for name, sum := range sums {
			value := all[name]
			if want := min(max(2*value, -math.MaxFloat64), math.MaxFloat64); sum.Count != 2 || sum.Total != want {
				t.Errorf("the sum of %q, which is %v twice, is %v", name, value, sum)
			}
		}
		rule := orcaweight.NewRule(&picker.ClientWRR{ErrorPenalty: penalty, UtilizationFrom: list})
		if w := rule.Weight(report, 1); !(w >= 0) || math.IsInf(w, 0) {
			t.Errorf("weight is %v by %q of %v", w, names, report)
		}
	})
}
