// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"reflect"
	"sync/atomic"
	"testing"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/xdslb/xdslb/picker"
)

// TestMetricNames checks A85's choice of the metrics in load reports.
func TestMetricNames(t *testing.T) {
	report := &orcav3.OrcaLoadReport{CpuUtilization: 0.8, MemUtilization: 0.5, NamedMetrics: map[string]float64{"db": 50, "other": 1}}
	tests := []struct {
		names []string
		want  map[string]picker.MetricSum
	}{
		{nil, nil},
		{[]string{"unknown", "named_metrics.absent"}, nil},
		{[]string{"cpu_utilization", "application_utilization"}, map[string]picker.MetricSum{"cpu_utilization": {Count: 1, Total: 0.8}}},
		{[]string{"mem_utilization", "named_metrics.db"}, map[string]picker.MetricSum{"mem_utilization": {Count: 1, Total: 0.5}, "named_metrics.db": {Count: 1, Total: 50}}},
		{[]string{"named_metrics.*"}, map[string]picker.MetricSum{"named_metrics.db": {Count: 1, Total: 50}, "named_metrics.other": {Count: 1, Total: 1}}},
	}
	for _, tt := range tests {
		var wanted atomic.Pointer[metricNames]
		wanted.Store(newMetricNames(tt.names))
		load := new(picker.ClusterLoad)
		s := &orcaRecorder{load.Metrics(picker.LocalityID{}), &wanted}
		s.onDone(report)
		s.onDone("not a report")
		if got := load.TakeMetrics()[picker.LocalityID{}]; !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: %v, want %v", tt.names, got, tt.want)
		}
	}
}
