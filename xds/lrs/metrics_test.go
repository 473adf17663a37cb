// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// TestMetricsAlone: metrics of an RPC whose end was not counted yet when the counts were read are
// reported without counts.
func TestMetricsAlone(t *testing.T) {
	r := NewReporter(offline{}, node, Options{})
	defer r.Close()
	load, _ := r.Report("c", "s")
	load.Metrics(picker.LocalityID{Zone: "z"}).Add("mem_utilization", 0.5)
	read := r.collect(wanted{all: true}, time.Now())
	localities := read[0].stats.GetUpstreamLocalityStats()
	if len(localities) != 1 || localities[0].GetLocality().GetZone() != "z" || localities[0].GetMemUtilization().GetTotalMetricValue() != 0.5 {
		t.Errorf("reported %v, want the metric", localities)
	}
	r.commit(read)
	if read := r.collect(wanted{all: true}, time.Now()); read[0].stats != nil {
		t.Errorf("the next report has %v, want nothing", read[0].stats)
	}
}

// TestMetricsOfFailedReports: metric names that were not sent do not accumulate beyond the limits
// for a report, whether reports fail, or sources stop and are folded. Nor do those of several
// channels in one report.
func TestMetricsOfFailedReports(t *testing.T) {
	r := NewReporter(offline{}, node, Options{})
	defer r.Close()
	id := picker.LocalityID{Zone: "z"}
	r.Report("c", "s")
	load, _ := r.Report("c", "s")
	var read []clusterReport
	for i := range 50 {
		folded, stop := r.Report("c", "s")
		for k := range 1000 {
			load.Metrics(id).Add(fmt.Sprint(i, "-", k, strings.Repeat("m", 100)), 1)
			folded.Metrics(id).Add(fmt.Sprint(i, ".", k), 1)
		}
		stopFull(r, stop)
		read = r.collect(wanted{all: true}, time.Now())
	}
	size := func(sums map[string]picker.MetricSum) (n int) {
		for name := range sums {
			n += len(name)
		}
		return n
	}
	c := read[0].of
	for name, sums := range map[string]map[string]picker.MetricSum{"the source": c.sources[1].metrics[id], "folded sources": c.now.metrics[id]} {
		if n := size(sums); n == 0 || n > 64<<10 || len(sums) > 1000 {
			t.Errorf("%s: %d names of %d bytes are kept, want up to 1000 of 64 KiB", name, len(sums), n)
		}
	}
	metrics := read[0].stats.GetUpstreamLocalityStats()[0].GetLoadMetricStats()
	n := 0
	for _, m := range metrics {
		n += len(m.GetMetricName())
	}
	if n == 0 || n > 64<<10 || len(metrics) > 1000 {
		t.Errorf("%d names of %d bytes are reported, want up to 1000 of 64 KiB", len(metrics), n)
	}
}
