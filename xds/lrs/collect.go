// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/picker"
)

// key identifies load in reports.
type key struct{ cluster, service string }

// A cluster has the load to report for one key. It is guarded by Reporter.mu.
type cluster struct {
	key
	sources []*source
	since   time.Time // the end of the last report
	until   time.Time // the end of the report being made

	// Counts of sources that were removed before they were reported: now belongs to the current
	// report, later to the next one.
	now, later counts
}

// wanted is the set of clusters that the server requests.
type wanted struct {
	all   bool
	names map[string]bool
}

func wantedBy(resp *lrsv3.LoadStatsResponse) wanted {
	w := wanted{all: resp.GetSendAllClusters(), names: make(map[string]bool)}
	for _, name := range resp.GetClusters() {
		w.names[name] = true
	}
	return w
}

// A clusterReport is what was read of a cluster.
type clusterReport struct {
	of    *cluster
	stats *endpointv3.ClusterStats // nil if there is nothing to report
}

// collect reads the load of the wanted clusters. The result is ordered by cluster and EDS service.
func (r *Reporter) collect(w wanted, now time.Time) (read []clusterReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clusters {
		if !w.all && !w.names[c.key.cluster] {
			// The counts of current sources may be requested later. The counts of removed
			// sources would accumulate.
			c.now, c.later = counts{}, counts{}
			r.forgetLocked(c, func(s *source) bool { return s.stopped })
			continue
		}
		c.until = now
		c.now.add(&c.later)
		c.later = counts{}
		report := clusterReport{of: c}
		if sum := c.unsent(); !sum.empty() {
			report.stats = c.encode(&sum)
		}
		read = append(read, report)
	}
	slices.SortFunc(read, func(a, b clusterReport) int {
		return cmp.Or(cmp.Compare(a.of.key.cluster, b.of.key.cluster), cmp.Compare(a.of.service, b.of.service))
	})
	return read
}

// commit records that results of collect have been sent.
func (r *Reporter) commit(read []clusterReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, report := range read {
		c := report.of
		c.since = c.until
		c.now = counts{}
		r.forgetLocked(c, func(s *source) bool { return s.commit() && s.last })
	}
}

// unsent reads all counters of c and returns the counts to report.
func (c *cluster) unsent() counts {
	var sum counts
	sum.add(&c.now)
	for _, s := range c.sources {
		s.last = s.stopped
		s.readCounters()
		sum.addUnsent(s)
	}
	return sum
}

// fold adds the unreported counts of s to c, since s is about to be removed. A report of the
// counts already read may be in progress.
func (c *cluster) fold(s *source) {
	c.now.addUnsent(s)
	s.commit()
	s.readCounters()
	c.later.addUnsent(s)
}

// encode returns the message for counts of c, in a deterministic order.
func (c *cluster) encode(sum *counts) *endpointv3.ClusterStats {
	stats := &endpointv3.ClusterStats{
		ClusterName:          c.key.cluster,
		ClusterServiceName:   c.key.service,
		TotalDroppedRequests: sum.overloads,
		LoadReportInterval:   durationpb.New(c.until.Sub(c.since)),
	}
	ids := slices.Collect(maps.Keys(sum.localities))
	for id := range sum.metrics {
		if _, counted := sum.localities[id]; !counted {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		l := sum.localities[id]
		locality := &endpointv3.UpstreamLocalityStats{
			Locality:                &corev3.Locality{Region: id.Region, Zone: id.Zone, SubZone: id.SubZone},
			TotalIssuedRequests:     l.Issued,
			TotalSuccessfulRequests: l.OK,
			TotalErrorRequests:      l.Failed,
			TotalRequestsInProgress: l.InProgress,
		}
		encodeMetrics(locality, sum.metrics[id])
		stats.UpstreamLocalityStats = append(stats.UpstreamLocalityStats, locality)
	}
	for category, n := range sum.drops {
		stats.TotalDroppedRequests += n
		stats.DroppedRequests = append(stats.DroppedRequests, &endpointv3.ClusterStats_DroppedRequests{
			Category: category, DroppedCount: n,
		})
	}
	slices.SortFunc(stats.UpstreamLocalityStats, func(a, b *endpointv3.UpstreamLocalityStats) int {
		x, y := a.GetLocality(), b.GetLocality()
		return cmp.Or(
			cmp.Compare(x.GetRegion(), y.GetRegion()),
			cmp.Compare(x.GetZone(), y.GetZone()),
			cmp.Compare(x.GetSubZone(), y.GetSubZone()),
		)
	})
	slices.SortFunc(stats.DroppedRequests, func(a, b *endpointv3.ClusterStats_DroppedRequests) int {
		return cmp.Compare(a.GetCategory(), b.GetCategory())
	})
	return stats
}

// encodeMetrics adds a locality's ORCA metrics: utilizations have their own fields, all other
// metrics are listed by name (A85).
func encodeMetrics(to *endpointv3.UpstreamLocalityStats, sums map[string]picker.MetricSum) {
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		unnamed := &endpointv3.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: s.Count, TotalMetricValue: s.Total}
		switch name {
		case "cpu_utilization":
			to.CpuUtilization = unnamed
		case "mem_utilization":
			to.MemUtilization = unnamed
		case "application_utilization":
			to.ApplicationUtilization = unnamed
		default:
			to.LoadMetricStats = append(to.LoadMetricStats, &endpointv3.EndpointLoadMetricStats{
				MetricName: name, NumRequestsFinishedWithMetric: s.Count, TotalMetricValue: s.Total,
			})
		}
	}
}
