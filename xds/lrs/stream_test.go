// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A bubble ends only when all of its goroutines have, so each test that uses one
// is a leak check, too.

// A27-LRS-1, A27-LRS-2, A27-LRS-3, A27-LRS-4, T-LRS-3, T-LRS-4: two requests,
// field by field.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, requests := startRecorded(t)
		load, _ := r.Report("cluster", "service")
		tr := newTraffic(t, load, "b", "a", "idle")
		tr.begin(0, 5)
		tr.end(0, 2, picker.CallOK)
		tr.end(0, 1, picker.CallFailed)
		tr.rpcs(1, 4, picker.CallOK)
		load.Drop("lb").Add()
		load.Drop("lb").Add()
		load.Drop("never")
		load.Overload().Add()
		r.Report("silent", "")
		pass(10 * time.Second)
		tr.end(0, 2, picker.CallNotSent)
		tr.rpcs(0, 4, picker.CallOK) // 2 less than that, the two that were void
		pass(10 * time.Second)
		pass(10 * time.Second) // nothing

		locality := func(zone string) *corev3.Locality { return &corev3.Locality{Zone: zone} }
		want := []*lrsv3.LoadStatsRequest{
			{Node: node},
			{ClusterStats: []*endpointv3.ClusterStats{{
				ClusterName: "cluster", ClusterServiceName: "service",
				LoadReportInterval:   durationpb.New(10 * time.Second),
				TotalDroppedRequests: 3,
				DroppedRequests:      []*endpointv3.ClusterStats_DroppedRequests{{Category: "lb", DroppedCount: 2}},
				UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{
					{Locality: locality("a"), TotalIssuedRequests: 4, TotalSuccessfulRequests: 4},
					{Locality: locality("b"), TotalIssuedRequests: 5, TotalSuccessfulRequests: 2, TotalErrorRequests: 1, TotalRequestsInProgress: 2},
				},
			}}},
			{ClusterStats: []*endpointv3.ClusterStats{{
				ClusterName: "cluster", ClusterServiceName: "service",
				LoadReportInterval: durationpb.New(10 * time.Second),
				UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{
					{Locality: locality("b"), TotalIssuedRequests: 2, TotalSuccessfulRequests: 4},
				},
			}}},
			{},
		}
		got := requests.all()
		if len(got) != len(want) {
			t.Errorf("%d requests, want %d", len(got), len(want))
		}
		for i := range min(len(got), len(want)) {
			if !proto.Equal(got[i], want[i]) {
				t.Errorf("request %d is\n%v, want\n%v", i, got[i], want[i])
			}
		}
	})
}

// T-LRS-1, GD-14: with every interval of a server, there are reports, at most one each second.
func TestInterval(t *testing.T) {
	for name, tt := range map[string]struct {
		sent *durationpb.Duration
		want time.Duration
	}{
		"absent":   {nil, time.Second},
		"zero":     {durationpb.New(0), time.Second},
		"negative": {durationpb.New(-time.Hour), time.Second},
		"tiny":     {durationpb.New(time.Nanosecond), time.Second},
		"invalid":  {&durationpb.Duration{Seconds: -1, Nanos: 5e8}, time.Second},
		"as asked": {durationpb.New(1500 * time.Millisecond), 1500 * time.Millisecond},
		"huge":     {&durationpb.Duration{Seconds: 1 << 62}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r, requests := startRecorded(t)
				s.ConfigureLoads(&lrsv3.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: tt.sent})
				r.Report("cluster", "service")
				pass(6 * time.Second)
				want := 0
				if tt.want > 0 {
					want = int(6 * time.Second / tt.want)
				}
				if got := len(requests.reports()); got != want {
					t.Errorf("%d reports in 6 s, want %d", got, want)
				}
			})
		})
	}
}

// T-LRS-2: later responses change the interval and the clusters. The interval is
// that between two reports, so a server that repeats itself does not put them
// off. Counts go on while they are not wanted; the interval reported is the one
// that they were counted in.
func TestResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := start(t)
		one, _ := r.Report("one", "")
		two, _ := r.Report("two", "")
		ask := func(seconds int64, clusters ...string) {
			s.ConfigureLoads(&lrsv3.LoadStatsResponse{
				Clusters: clusters, LoadReportingInterval: &durationpb.Duration{Seconds: seconds},
			})
			synctest.Wait()
		}
		check := func(cluster string, ok uint64, interval time.Duration) {
			t.Helper()
			c := s.Loads(cluster, "")
			if c.Total.OK != ok || c.Interval != interval {
				t.Errorf("cluster %s: %d RPCs in %v reported, want %d in %v", cluster, c.Total.OK, c.Interval, ok, interval)
			}
		}
		ask(5, "one", "unknown")
		rpc1, rpc2 := newTraffic(t, one, "a"), newTraffic(t, two, "a")
		for range 15 {
			rpc1.rpcs(0, 1, picker.CallOK)
			rpc2.rpcs(0, 1, picker.CallOK)
			ask(5, "one")
			pass(time.Second)
		}
		check("one", 15, 15*time.Second)
		check("two", 0, 0)

		ask(2, "two")
		rpc1.rpcs(0, 1, picker.CallOK)
		pass(2 * time.Second)
		check("one", 15, 15*time.Second)
		check("two", 15, 17*time.Second)

		ask(1)
		rpc1.rpcs(0, 1, picker.CallOK)
		rpc2.rpcs(0, 1, picker.CallOK)
		pass(8 * time.Second)
		check("one", 15, 15*time.Second)
		check("two", 15, 17*time.Second)
		s.ConfigureLoads(&lrsv3.LoadStatsResponse{
			SendAllClusters: true, LoadReportingInterval: durationpb.New(time.Second),
		})
		pass(time.Second)
		check("one", 17, 26*time.Second)
		check("two", 16, 26*time.Second)
	})
}

// T-LRS-3: a locality that the configuration lost is reported with the next
// report, and forgotten when it is idle.
func TestRemovedLocality(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := start(t)
		load, _ := r.Report("cluster", "service")
		tr := newTraffic(t, load, "a", "b")
		pass(time.Second)
		tr.begin(0, 2)
		tr.rpcs(1, 5, picker.CallOK)
		load.Drop("x").Add()
		retain(load, []string{"b"}, nil)
		tr.end(0, 1, picker.CallOK)
		pass(10 * time.Second)
		if n := len(maps.Collect(load.Localities())); n != 2 {
			t.Errorf("%d localities while one is busy, want 2", n)
		}
		if n := len(maps.Collect(load.Drops())); n != 0 {
			t.Errorf("%d drop categories after they were reported, want 0", n)
		}
		tr.end(0, 1, picker.CallOK)
		pass(10 * time.Second)
		if n := len(maps.Collect(load.Localities())); n != 1 {
			t.Errorf("%d localities after both were reported, want 1", n)
		}
		// The locality comes back, with counters that start over.
		retain(load, []string{"a", "b"}, nil)
		newTraffic(t, load, "a", "b").rpcs(0, 3, picker.CallOK)
		pass(10 * time.Second)
		c := s.Loads("cluster", "service")
		a := c.Localities[xdstest.Place{Zone: "a"}]
		if want := (xdstest.LocalityCounts{Issued: 5, OK: 5}); a != want || c.Dropped != 1 {
			t.Errorf("locality a %+v, dropped %d; want %+v, 1", a, c.Dropped, want)
		}
		if got := censusOf(r).counters; got != 2 {
			t.Errorf("reporter remembers %d localities and drop categories, want 2", got)
		}
	})
}

// Counts from the time without a stream are reported once there is one again, with the interval
// in which they were counted.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := start(t)
		load, _ := r.Report("cluster", "service")
		tr := newTraffic(t, load, "a")
		pass(time.Second)
		for range 5 {
			tr.rpcs(0, 7, picker.CallOK)
			s.BreakStreams()
			pass(12 * time.Second) // up to one of them without a stream
		}
		s.Stop()
		tr.rpcs(0, 100, picker.CallFailed)
		pass(time.Hour)
		kit.Must(t, s.Restart())
		pass(5 * time.Minute) // two of them for the channel to connect
		c := s.Loads("cluster", "service")
		if got := c.Total; got.OK != 35 || got.Failed != 100 || got.Issued != 135 {
			t.Errorf("reported %+v, want 35 OK and 100 failed", got)
		}
		if c.Interval < time.Hour+time.Minute || c.Interval > time.Hour+4*time.Minute {
			t.Errorf("intervals add up to %v, want a minute and the hour without a server", c.Interval)
		}
		if _, total := s.LoadStreams(); total != 7 {
			t.Errorf("%d streams, want 7", total)
		}
	})
}

// T-LRS-3: under concurrency, at quiescence, totals are exact:
// over loopback, with several sources for the same cluster that come and go, more
// of them between two reports than may wait to be reported.
func TestConcurrent(t *testing.T) {
	leak.Check(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s := xdstest.New(t, xdstest.Options{LoadInterval: time.Millisecond})
	cc := dial(t, s.Addr())
	r := NewReporter(cc, node, Options{MinInterval: time.Millisecond, BackoffBase: time.Millisecond, FinalTimeout: 5 * time.Second})
	r.Report("stays", "") // keeps the stream open
	const workers, rounds = 8, 400
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range rounds {
				load, stop := r.Report("cluster", "service")
				tr := newTraffic(t, load, "a", "b")
				for i := range 100 {
					tr.begin(i%2, 1)
					tr.end(i%2, 1, picker.CallResult(w%2))
					if i%10 == 0 {
						load.Drop("x").Add()
						load.Overload().Add()
					}
				}
				stop()
			}
		})
	}
	wg.Wait()
	want := xdstest.LocalityCounts{Issued: workers * rounds * 100, OK: workers * rounds * 50, Failed: workers * rounds * 50}
	err := s.Wait(ctx, func() bool {
		c := s.Loads("cluster", "service")
		return c.Total == want && c.Dropped == workers*rounds*20 && c.Drops["x"] == workers*rounds*10
	})
	if err != nil {
		t.Errorf("%v: %+v, want %+v", err, s.Loads("cluster", "service"), want)
	}
	r.Close()
}

// TestMetricsOnce: metrics that were not sent are part of the next report, and
// of no other (A85), in the fields that LRS has for them.
func TestMetricsOnce(t *testing.T) {
	s, id := newSource(), picker.LocalityID{Zone: "z"}
	s.load.Metrics(id).Add("cpu_utilization", 0.5)
	s.readCounters()
	s.load.Metrics(id).Add("cpu_utilization", 0.25)
	s.load.Metrics(id).Add("named_metrics.db", 7)
	s.load.Metrics(id).Add("mem_utilization", 0.5)
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
	if m := got.GetMemUtilization().GetTotalMetricValue(); m != 0.5 || got.GetApplicationUtilization() != nil {
		t.Errorf("mem_utilization = %v, application_utilization = %v, want 0.5 and none", m, got.GetApplicationUtilization())
	}
	s.commit()
	s.readCounters()
	var next counts
	next.addUnsent(s)
	if next.metrics != nil {
		t.Errorf("the next report has %v again", next.metrics)
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
