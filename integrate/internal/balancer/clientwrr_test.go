// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/orcaweight"
	"github.com/xdslb/xdslb/picker"
)

// weighed returns c with client-side weighted round robin, A58's defaults but for an
// expiration of 60 s.
func weighed(c *picker.Cluster) *picker.Cluster {
	c.Leaves[0].Policy = picker.Policy{Kind: picker.PolicyClientWRR, Flat: true, WRR: &picker.ClientWRR{
		Blackout: 10 * time.Second, Expiration: 60 * time.Second, UpdatePeriod: time.Second, ErrorPenalty: 1,
	}}
	return c
}

// TestReports: weights follow the load reports of endpoints at the end of RPCs, from the end of the
// blackout period on, at each update period, until they expire; an unknown weight counts as the
// mean (A58, T-WRR-3).
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := connected(t, weighed(clusterOf("c", prio(eps(1, 2), eps(3)))), 1, 2, 3)
		kit.Pass(500 * time.Millisecond)
		b.wantShares(t, 1, 1, 1)
		b.serve(t, 30, map[int]float64{1: 0.5, 2: 0.25})
		kit.Pass(9 * time.Second) // 9.5 s
		b.serve(t, 30, map[int]float64{1: 0.5, 2: 0.25})
		b.wantShares(t, 1, 1, 1)
		kit.Pass(2 * time.Second) // 11.5 s: the blackout was over at 10.5 s
		b.wantShares(t, 2, 4, 3)
		b.serve(t, 30, map[int]float64{1: 1, 2: 0.25, 3: 0.25})
		b.wantShares(t, 2, 4, 3) // until the next update
		kit.Pass(time.Second)    // 12.5 s
		b.wantShares(t, 1, 4, 2.5)
		kit.Pass(10 * time.Second) // 22.5 s
		b.wantShares(t, 1, 4, 4)
		kit.Pass(40 * time.Second) // 62.5 s
		b.serve(t, 30, map[int]float64{2: 0.5})
		kit.Pass(10 * time.Second) // 72.5 s: reports 1 and 3 expired at 71.5 s
		b.wantShares(t, 1, 1, 1)   // fewer than two are known
		b.serve(t, 30, map[int]float64{1: 0.25})
		kit.Pass(9 * time.Second) // 81.5 s: another blackout
		b.wantShares(t, 1, 1, 1)
		kit.Pass(2 * time.Second) // 83.5 s
		b.wantShares(t, 4, 2, 3)
	})
}

// TestUnreportedErrors: a backend that refuses RPCs at once, uses next to no CPU for that and
// reports no errors gets no more than its fair share, and less once the client has counted enough
// errors; errors that the request causes change nothing; a new connection resets the counts.
func TestUnreportedErrors(t *testing.T) {
	for code, want := range map[codes.Code][]float64{
		codes.Unavailable: {1 / 1.02, 1 / 0.5, 1 / 0.5},
		codes.NotFound:    {1 / 0.02, 1 / 0.5, 1 / 0.5},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, cc := connected(t, weighed(clusterOf("c", prio(eps(1, 2, 3)))), 1, 2, 3)
			b.flush()
			serve := func() {
				b.rpcs(t, 3000, func(endpoint int, info *balancer.DoneInfo) {
					report := &orcav3.OrcaLoadReport{RpsFractional: 100, CpuUtilization: 0.5}
					if endpoint == 1 {
						info.Err, report.CpuUtilization = status.Error(code, "refused"), 0.02
					}
					info.ServerLoad = report
				})
			}
			serve()
			kit.Pass(11 * time.Second)
			serve()
			kit.Pass(time.Second)
			b.wantShares(t, want...)

			cc.conn(t, 1).To(idle)
			cc.conn(t, 1).To(ready)
			b.flush()
			b.serve(t, 30, map[int]float64{1: 0.5, 2: 0.5, 3: 0.5})
			kit.Pass(11 * time.Second)
			b.wantShares(t, 1, 1, 1)
		})
	}
}

// TestWeightSurvives is T-WRR-5: a weight stays with its endpoint when the order, the
// locality or the weights of the configuration change, and when it moves to another
// priority and back; a new connection has its blackout period.
func TestWeightSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		update := func(prios ...picker.Priority) {
			b.Update(configOf(weighed(clusterOf("c", prios...))))
			b.flush()
		}
		update(prio(eps(1, 2)))
		b.ready(t, 1, 2)
		b.flush()
		b.serve(t, 30, map[int]float64{1: 0.5, 2: 0.25})
		kit.Pass(11500 * time.Millisecond)
		b.wantShares(t, 1, 2)
		update(prio(eps(2, 1)))
		b.wantShares(t, 1, 2)
		update(prio(eps(2), eps(1)))
		b.wantShares(t, 1, 2)
		update(prio(eps(2)), prio(eps(1)))
		b.wantShares(t, 0, 1)
		update(prio(eps(1, 2)))
		b.wantShares(t, 1, 2)
		cc.conn(t, 1).To(idle)
		cc.conn(t, 1).To(ready)
		b.flush()
		b.wantShares(t, 1, 1)
		b.serve(t, 30, map[int]float64{1: 0.5, 2: 0.25})
		kit.Pass(11500 * time.Millisecond)
		b.wantShares(t, 1, 2)

		plain := configOf(clusterOf("c", prio(eps(1, 2))))
		b.Update(plain)
		b.flush()
		b.wantShares(t, 1, 1)
		b.serve(t, 30, map[int]float64{1: 0.5, 2: 0.25})
		b.wantUnobserved(t, "under another policy")
		update(prio(eps(1, 2)))
		b.wantShares(t, 1, 1)
	})
}

// TestUpdatePeriod: the timer runs only while weights matter, and a period in which no
// weight changes publishes nothing.
func TestUpdatePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(weighed(clusterOf("c", prio(eps(1, 2))))))
		running := func(want bool) {
			t.Helper()
			b.flush()
			b.lock()
			defer b.unlock()
			if got := b.clusters["c"].weightTimer != nil; got != want {
				t.Errorf("the timer runs: %v, want %v", got, want)
			}
		}
		running(false)
		cc.conn(t, 1).To(ready)
		running(false)
		cc.conn(t, 2).To(ready)
		running(true)
		kit.Pass(100 * time.Millisecond)
		b.serve(t, 30, map[int]float64{1: 0.5, 2: 0.25})
		for period := range 30 {
			before := b.picker.current.Load()
			kit.Pass(time.Second)
			b.serve(t, 30, map[int]float64{1: 0.5, 2: 0.25})
			if published, want := b.picker.current.Load() != before, period == 10; published != want {
				t.Errorf("period %d published: %v, want %v", period, published, want)
			}
		}
		cc.conn(t, 2).To(failure)
		running(false)
		cc.conn(t, 2).To(ready)
		running(true)
		b.Update(configOf(clusterOf("c", prio(eps(1, 2)))))
		running(false)
	})
}

// TestUpdatePeriodEmpty: the period may end between an update that takes all
// endpoints away and its publication.
func TestUpdatePeriodEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := connected(t, weighed(clusterOf("c", prio(eps(1, 2)))), 1, 2)
		b.flush()
		kit.Pass(time.Second - publishPause/2)
		b.flush() // the next publication has to wait
		b.Update(configOf(weighed(clusterOf("c"))))
		kit.Pass(2 * publishPause)
		if got, err := b.pick(); err == nil {
			t.Errorf("a cluster without endpoints: picked %s", got)
		}
	})
}

// TestOutOfBand: each connection has one stream of reports while it is READY and the policy wants
// it. A new stream replaces it if the period changes; reports of RPCs do not count then (A58).
func TestOutOfBand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		update := func(period time.Duration, prios ...picker.Priority) {
			c := weighed(clusterOf("c", prios...))
			c.Leaves[0].Policy.WRR.OutOfBand = period > 0
			c.Leaves[0].Policy.WRR.OOBPeriod = period
			b.Update(configOf(c))
			b.flush()
		}
		want := func(open, opened int) {
			t.Helper()
			synctest.Wait()
			cc.Mu.Lock()
			defer cc.Mu.Unlock()
			if cc.Streams != open || cc.Streamed != opened {
				t.Errorf("%d streams are open of %d, want %d of %d", cc.Streams, cc.Streamed, open, opened)
			}
		}
		update(time.Second, prio(eps(1, 2)))
		want(0, 0)
		cc.conn(t, 1).To(ready)
		want(1, 1)
		cc.conn(t, 2).To(ready)
		want(2, 2)
		update(time.Second, prio(eps(1), eps(2)))
		want(2, 2)
		update(2*time.Second, prio(eps(1), eps(2)))
		want(2, 4)
		cc.conn(t, 1).To(idle)
		want(1, 4)
		cc.conn(t, 1).To(ready)
		want(2, 5)
		b.serve(t, 30, map[int]float64{1: 0.5, 2: 0.25})
		kit.Pass(12 * time.Second)
		b.wantShares(t, 1, 1)
		update(2*time.Second, prio(eps(1)))
		want(1, 5)
		update(0, prio(eps(1)))
		want(0, 5)
		update(time.Second, prio(eps(1)))
		want(1, 6)
		b.Update(configOf(clusterOf("c", prio(eps(1)))))
		want(0, 6)
		update(time.Second, prio(eps(1)))
		want(1, 7)
		b.set(configOf(customOf(true, stubA, `{}`, prio(eps(1, 2))))) // 2 is not READY, their policy is
		want(0, 7)
		update(time.Second, prio(eps(1, 2)))
		want(1, 8)
		b.Close()
		want(0, 8)
	})
}

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
