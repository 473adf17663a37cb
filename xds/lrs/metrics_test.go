// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/xdslb/xdslb/picker"
)

// TestMetricsOnce: metrics that were not sent are part of the next report, and
// of no other (A85), in the fields that LRS has for them.
func TestMetricsOnce(t *testing.T) {
	s, id := newSource(), picker.LocalityID{Zone: "z"}
	s.load.Metrics(id).Add("cpu_utilization", 0.5)
	s.readCounters()
	s.load.Metrics(id).Add("cpu_utilization", 0.25)
	s.load.Metrics(id).Add("named_metrics.db", 7)
	s.readCounters() // the first report did not leave
	var c counts
	c.addUnsent(s)
	var got endpointv3.UpstreamLocalityStats
	encodeMetrics(&got, c.metrics[id])
	if u := got.GetCpuUtilization(); u.GetNumRequestsFinishedWithMetric() != 2 || u.GetTotalMetricValue() != 0.75 {
		t.Errorf("cpu_utilization = %v, want 2 requests and 0.75", u)
	}
	if m := got.GetLoadMetricStats(); len(m) != 1 || m[0].GetMetricName() != "named_metrics.db" || m[0].GetTotalMetricValue() != 7 {
		t.Errorf("named metrics = %v, want db with 7", m)
	}
	if got.GetMemUtilization() != nil {
		t.Errorf("mem_utilization = %v, want none", got.GetMemUtilization())
	}
	s.commit()
	s.readCounters()
	var next counts
	next.addUnsent(s)
	if next.metrics != nil {
		t.Errorf("the next report has %v again", next.metrics)
	}
}
