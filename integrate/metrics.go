// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"slices"
	"time"

	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/stats"

	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
)

// Metrics returns the names of this module's metrics, xdslb.*, which gRPC's
// OpenTelemetry plugin records if they are among its MetricsOptions.Metrics:
//
//	opentelemetry.DefaultMetrics().Join(integrate.Metrics())
//
// None is on by default. METRICS.md says what each is, and what it costs. Metrics do not
// add to what an RPC costs.
func Metrics() *stats.MetricSet {
	set := stats.NewMetricSet()
	for _, m := range metric.All() {
		set = set.Add(m.Name)
	}
	return set
}

// StockMetricName returns the name under which google.golang.org/grpc/xds has one of this
// module's metrics, with the same type, unit and labels, or "" if it does not have it. An
// OpenTelemetry View that renames goes by it; package stockmetrics needs no View.
func StockMetricName(name string) string {
	for _, m := range metric.All() {
		if m.Name == name {
			return m.StockName()
		}
	}
	return ""
}

// startMetrics starts recording the metrics of a channel, if it has a recorder. The caller
// holds no lock.
func startMetrics(target string, recorder estats.MetricsRecorder, fold func(*metric.Channel)) *metric.Channel {
	return metric.Start(target, recorder, metric.Source{Fold: fold, TargetGauges: targetGauges, SharedGauges: sharedGauges})
}

// measurePublicationLocked records the duration of a publication that ended just now, and
// the latency of the configuration, if it is a new one.
func (b *lb) measurePublicationLocked(now time.Time) {
	b.rec.metrics.Observe(metric.PublicationDuration, []float64{b.publishTime.Seconds()}, b.rec.target)
	if b.cfg == nil || !b.cfg.Received.After(b.received) {
		return
	}
	b.received = b.cfg.Received
	if b.received.After(b.rt.Start()) { // else it was there before the channel
		b.rec.metrics.Observe(metric.ConfigurationLatency, []float64{now.Sub(b.received).Seconds()}, b.rec.target)
	}
}

// countOutliersLocked records the findings of a sweep.
func (b *lb) countOutliersLocked(found outlier.Findings) {
	for method, v := range map[string]outlier.Verdicts{"success_rate": found.SuccessRate, "failure_percentage": found.FailurePercentage} {
		b.rec.metrics.Count(metric.EjectionsEnforced, int64(v.Ejected), b.rec.target, method)
		b.rec.metrics.Count(metric.EjectionsUnenforced, int64(v.Overflow), b.rec.target, method, "max_ejection_overflow")
		b.rec.metrics.Count(metric.EjectionsUnenforced, int64(v.Spared), b.rec.target, method, "enforcement_percentage")
	}
}

// measureWeights records the weights that READY endpoints have at an update of them, if the
// channel has a recorder: O(endpoints).
func (p *priority) measureWeights(how *wrrConfig, now int64) {
	b := p.cluster.lb
	if b.rec.metrics == nil {
		return
	}
	for _, l := range p.localities {
		var weights []float64
		var usable, stale int
		for _, e := range l.endpoints {
			if e.Connectivity != picker.Ready {
				continue
			}
			w := e.observers.Load().wrr
			weight := w.At(how.ClientWRR, now)
			switch {
			case weight > 0:
				usable++
			case w.Expired(how.ClientWRR, now):
				stale++
			}
			weights = append(weights, weight)
		}
		if len(weights) == 0 {
			continue
		}
		labels := []string{b.rec.target, localityName(l.id), p.leaf.cfg.Name}
		b.rec.metrics.Observe(metric.WRRWeights, weights, labels...)
		if usable < 2 {
			b.rec.metrics.Count(metric.WRRFallback, 1, labels...)
		}
		b.rec.metrics.Count(metric.WRRNotYetUsable, int64(len(weights)-usable-stale), labels...)
		b.rec.metrics.Count(metric.WRRStale, int64(stale), labels...)
	}
}

// localityName is what the label grpc.lb.locality says of a locality, as in grpc-go.
func localityName(id picker.LocalityID) string {
	return fmt.Sprintf("{region=%q, zone=%q, sub_zone=%q}", id.Region, id.Zone, id.SubZone)
}

// foldLoad folds what the RPCs of a cluster were counted with. Without load reports the
// counters of a locality may be those of its sequence only. Counters of load reports are
// shared by channels.
func foldLoad(to *metric.Channel, cfg *picker.Leaf, load *picker.ClusterLoad) {
	cluster, emit := cfg.Name, to.Count
	if cfg.Load.Server != "" {
		emit = to.CountShared
	}
	for id, l := range load.Localities() {
		metric.Fold(emit, metric.Picks, l, "", l.Snapshot().Issued, cluster, localityName(id))
	}
	for category, c := range load.Drops() {
		metric.Fold(emit, metric.Drops, c, "", c.Load(), cluster, category)
	}
	metric.Fold(emit, metric.BreakerRejections, load.Overload(), "", load.Overload().Load(), cluster)
}

// foldCounts folds the counters of the channel, and those of the XdsClient, which is shared.
func (b *lb) foldCounts(to *metric.Channel) {
	own, shared := to.Count, to.CountShared
	link := b.src.Link
	budget, throttle := link.Unmade()
	metric.Fold(own, metric.NoRoute, b, "", b.picker.noRoute.Load(), b.rec.target)
	metric.Fold(own, metric.Retries, link, "", link.Retries(), b.rec.target)
	metric.Fold(own, metric.Hedges, link, "", link.Hedges(), b.rec.target)
	metric.Fold(own, metric.RetryRejections, link, "", budget, b.rec.target, "budget")
	metric.Fold(own, metric.RetryRejections, link, "", throttle, b.rec.target, "throttle")
	metric.Fold(own, metric.Refused, link, "", link.Refused(), b.rec.target)
	metric.Fold(own, metric.ConcurrencyRefused, link, "", link.Unsent(), b.rec.target)
	foldClient(shared, b.src.Client, b.rec.target)
	b.foldClusters(to)
}

// foldClusters folds the counters of clusters.
func (b *lb) foldClusters(to *metric.Channel) {
	b.lock()
	defer b.unlock()
	for _, c := range b.clusters {
		for _, l := range c.leaves {
			foldLoad(to, l.cfg, l.load)
		}
	}
	for load, cfg := range b.retired {
		foldLoad(to, cfg, load)
	}
	clear(b.retired)
}

// sharedGauges emits the gauges of the process.
func sharedGauges(emit metric.Emit) {
	for _, c := range xds.Clients() {
		ageGauges(c, emit)
	}
	breakers.mu.Lock()
	defer breakers.mu.Unlock()
	forgetIdleBreakersLocked()
	for k, b := range breakers.m {
		emit(metric.BreakerInFlight, b.InFlight(), k.cluster, k.service)
	}
}

// targetGauges emits the gauges of the channels of a target. The channels of other targets
// add nothing to its cost.
func targetGauges(target string, emit metric.Emit) {
	links := perrpc.LinksTo(target)
	for _, r := range resolversOf[*stockResolver](links) {
		emit(metric.HandedOver, 1, target, r.rollout.Variable)
	}
	clients := map[*xds.Client]bool{}
	for _, r := range resolversOf[*xdsResolver](links) {
		b := r.balancer.Load()
		if b == nil {
			continue
		}
		if c := b.src.Client; !clients[c] {
			clients[c] = true
			clientGauges(c, target, emit)
		}
		emit(metric.Channels, 1, target)
		missing := int64(0)
		if len(b.src.Link.Unapplied(b.picker.table())) > 0 {
			missing = 1
		}
		emit(metric.MissingInterceptors, missing, target)
		if t := b.src.Link.Current(); t != nil {
			for _, c := range t.Plans.Concurrencies() {
				emit(metric.ConcurrencyLimit, int64(c.Limit), target, c.Cluster)
			}
		}
		b.lock()
		for name, c := range b.clusters {
			emit(metric.Priority, int64(slices.Index(c.order, c.inUse)), target, name)
			c.endpointGauges(emit)
		}
		b.unlock()
	}
}

// stateLabels are the values of the label xdslb.state.
var stateLabels = [...]string{picker.Idle: "idle", picker.Connecting: "connecting", picker.Ready: "ready", picker.TransientFailure: "transient_failure"}

// endpointGauges emits how many endpoints the cluster has in which state, and how many
// are excluded and why: O(endpoints).
func (c *cluster) endpointGauges(emit metric.Emit) {
	target := c.lb.rec.target
	for i, l := range c.leaves {
		var states [len(stateLabels)]int64
		var draining, ejected, unused int64
		for _, p := range l.priorities {
			used := p == c.inUse || slices.ContainsFunc(c.shares, func(s loadShare) bool { return s.p == p })
			for e := range p.endpoints {
				states[e.Connectivity]++
				switch {
				case e.Draining:
					draining++
				case e.Ejected:
					ejected++
				case !used:
					unused++
				}
			}
		}
		for s, n := range states {
			emit(metric.Endpoints, n, target, l.cfg.Name, stateLabels[s])
		}
		left := int64(0)
		if l.cfg.Policy.Subset > 0 && len(l.cfg.Priorities) > 0 { // else what is left out was refused
			left = int64(countEndpoints(&c.received.Leaves[i]) - countEndpoints(l.cfg))
		}
		for _, r := range []struct {
			reason string
			n      int64
		}{{"draining", draining}, {"ejected", ejected}, {"priority", unused}, {"subset", left}} {
			emit(metric.EndpointsExcluded, r.n, target, l.cfg.Name, r.reason)
		}
	}
}

func countEndpoints(l *picker.Leaf) (n int) {
	for i := range l.Priorities {
		for k := range l.Priorities[i].Localities {
			n += l.Priorities[i].Localities[k].Endpoints.Len()
		}
	}
	return n
}
