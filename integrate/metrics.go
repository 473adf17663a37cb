// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"slices"
	"time"

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
// add to what an RPC costs, unless [Config.CountCalls] is set.
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

// measurePublication measures a publication that ended just now, and the latency of the
// configuration, if it is a new one.
func (b *lb) measurePublication(now time.Time) {
	if b.rec.target == "" {
		return
	}
	metric.PublicationDuration.Observe([]float64{b.publishTime.Seconds()}, b.rec.target)
	if b.cfg == nil || !b.cfg.Received.After(b.received) {
		return
	}
	b.received = b.cfg.Received
	if b.received.After(b.start) { // else it was there before the channel
		metric.ConfigurationLatency.Observe([]float64{now.Sub(b.received).Seconds()}, b.rec.target)
	}
}

// countOutliers counts what a sweep found.
func (b *lb) countOutliers(found outlier.Findings) {
	if b.rec.target == "" {
		return
	}
	for _, by := range []struct {
		method string
		outlier.Verdicts
	}{{"success_rate", found.SuccessRate}, {"failure_percentage", found.FailurePercentage}} {
		if by.Ejected > 0 {
			metric.EjectionsEnforced.Add(int64(by.Ejected), b.rec.target, by.method)
		}
		if by.Overflow > 0 {
			metric.EjectionsUnenforced.Add(int64(by.Overflow), b.rec.target, by.method, "max_ejection_overflow")
		}
		if by.Spared > 0 {
			metric.EjectionsUnenforced.Add(int64(by.Spared), b.rec.target, by.method, "enforcement_percentage")
		}
	}
}

// measureWeights measures the weights that READY endpoints have at an update of them, if
// somebody may want to know: O(endpoints).
func (p *priority) measureWeights(how *wrrConfig, now int64) {
	b := p.cluster.lb
	if b.rec.target == "" || !metric.Watched() {
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
		metric.WRRWeights.Observe(weights, labels...)
		if usable < 2 {
			metric.WRRFallback.Add(1, labels...)
		}
		if n := len(weights) - usable - stale; n > 0 {
			metric.WRRNotYetUsable.Add(int64(n), labels...)
		}
		if stale > 0 {
			metric.WRRStale.Add(int64(stale), labels...)
		}
	}
}

// localityName is what the label grpc.lb.locality says of a locality, as in grpc-go.
func localityName(id picker.LocalityID) string {
	return fmt.Sprintf("{region=%q, zone=%q, sub_zone=%q}", id.Region, id.Zone, id.SubZone)
}

// foldCounts folds what is counted at the channel, at its end.
func (b *lb) foldCounts() {
	if b.rec.target == "" || !metric.Watched() {
		return
	}
	metric.NoRoute.Fold(metric.SourceOf(&b.picker, ""), int64(b.picker.noRoute.Load()), b.rec.target)
	metric.Retries.Fold(metric.SourceOf(b.src.link, ""), int64(b.src.link.Retries()), b.rec.target)
	budget, throttle := b.src.link.Unmade()
	metric.Hedges.Fold(metric.SourceOf(b.src.link, ""), int64(b.src.link.Hedges()), b.rec.target)
	metric.RetryRejections.Fold(metric.SourceOf(b.src.link, "budget"), int64(budget), b.rec.target, "budget")
	metric.RetryRejections.Fold(metric.SourceOf(b.src.link, "throttle"), int64(throttle), b.rec.target, "throttle")
	metric.Late.Fold(metric.SourceOf(b.src.link, ""), int64(b.src.link.Late()), b.rec.target)
	metric.Refused.Fold(metric.SourceOf(b.src.link, ""), int64(b.src.link.Refused()), b.rec.target)
	metric.ConcurrencyRefused.Fold(metric.SourceOf(b.src.link, ""), int64(b.src.link.Unsent()), b.rec.target)
	foldClient(b.src.client, b.rec.target)
}

// foldCounts folds what the leaf has counted, before localities are forgotten.
func (l *leaf) foldCounts() {
	if metric.Watched() || l.ownCounters() {
		foldLoad(l.cfg.Name, l.load, l.ownCounters())
	}
}

// ownCounters reports whether the leaf counts RPCs that are not in a load report. Then
// nobody else forgets localities that are not in use any more.
func (l *leaf) ownCounters() bool { return l.cfg.Load.Server == "" && !l.load.Unreported }

// foldLoad folds what the RPCs of a cluster were counted with. Without load reports the
// counters of a locality may be those of its sequence only. If forget is set, what is
// not in use any more and counts no RPC in flight is forgotten.
func foldLoad(cluster string, load *picker.ClusterLoad, forget bool) {
	for id, l := range load.Localities() {
		n := l.Snapshot()
		source, where := metric.SourceOf(l, ""), localityName(id)
		metric.Picks.Fold(source, int64(n.Issued), cluster, where)
		metric.Calls.Fold(source, int64(n.OK), cluster, where, "ok")
		metric.Calls.Fold(source, int64(n.Failed), cluster, where, "failed")
		if forget {
			load.Forget(id, n)
		}
	}
	for category, n := range load.Drops() {
		dropped := n.Load()
		metric.Drops.Fold(metric.SourceOf(n, ""), int64(dropped), cluster, category)
		if forget {
			load.ForgetDrop(category, dropped)
		}
	}
	metric.BreakerRejections.Fold(metric.SourceOf(load.Overload(), ""), int64(load.Overload().Load()), cluster)
}

func init() { metric.SetProcess(process{}) }

// process reads the state of the process for metrics. It implements metric.Process.
type process struct{}

// balancers returns those of the channels of some links.
func balancers(links []*perrpc.Link) (all []*lb) {
	for _, r := range resolversOf[*xdsResolver](links) {
		if b := r.balancer.Load(); b != nil {
			all = append(all, b)
		}
	}
	return all
}

// Targets implements metric.Process.
func (process) Targets() (all []string) {
	seen := map[string]bool{}
	for _, l := range perrpc.Links() {
		if !seen[l.Canonical] {
			seen[l.Canonical], all = true, append(all, l.Canonical)
		}
	}
	return all
}

// Fold implements metric.Process.
func (process) Fold() {
	for _, b := range balancers(perrpc.Links()) {
		b.foldCounts()
		b.lock()
		for _, c := range b.clusters {
			for _, l := range c.leaves {
				foldLoad(l.cfg.Name, l.load, l.ownCounters())
			}
		}
		b.unlock()
	}
	retiredLoads.mu.Lock()
	defer retiredLoads.mu.Unlock()
	foldRetiredLocked()
}

// SharedGauges implements metric.Process.
func (process) SharedGauges(emit metric.Emit) {
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

// TargetGauges implements metric.Process. It costs nothing for other targets: each is asked
// for.
func (process) TargetGauges(target string, emit metric.Emit) {
	links := perrpc.LinksTo(target)
	for _, r := range resolversOf[*stockResolver](links) {
		emit(metric.HandedOver, 1, target, r.rollout.Variable)
	}
	clients := map[*xds.Client]bool{}
	for _, b := range balancers(links) {
		if c := b.src.client; !clients[c] {
			clients[c] = true
			clientGauges(c, target, emit)
		}
		emit(metric.Channels, 1, target)
		missing := int64(0)
		if len(b.src.link.Unapplied(b.picker.table())) > 0 {
			missing = 1
		}
		emit(metric.MissingInterceptors, missing, target)
		if t := b.src.link.Current(); t != nil {
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
