// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/picker"
)

// Counts adds the counters of the channel and of the XdsClient, which is shared, to a channel's
// metrics.
func Counts(b *Balancer, to *metric.Channel) {
	own, shared := to.Count, to.CountShared
	link := b.src.Channel
	budget, throttle := link.RetriesDenied()
	metric.Fold(own, metric.NoRoute, b, "", b.picker.noRoute.Load(), b.rec.target)
	metric.Fold(own, metric.Retries, link, "", link.Retries(), b.rec.target)
	metric.Fold(own, metric.Hedges, link, "", link.Hedges(), b.rec.target)
	metric.Fold(own, metric.RetryRejections, link, "", budget, b.rec.target, "budget")
	metric.Fold(own, metric.RetryRejections, link, "", throttle, b.rec.target, "throttle")
	channelmetrics.FoldClient(shared, b.src.Client, b.rec.target)
	foldClusters(b, to)
}

// foldClusters adds the counters of clusters.
func foldClusters(b *Balancer, to *metric.Channel) {
	b.lock()
	defer b.unlock()
	for name, c := range b.clusters {
		// Events are counted when they occur; these series begin with 0.
		metric.Fold(to.Count, metric.PriorityChanges, c, "", 0, b.rec.target, name, "down")
		metric.Fold(to.Count, metric.PriorityChanges, c, "", 0, b.rec.target, name, "up")
		for _, l := range c.leaves {
			channelmetrics.FoldLoad(to, l.cfg, l.load)
			metric.Fold(to.Count, metric.ConnectionsFailed, c, "", 0, b.rec.target, l.cfg.Name)
			metric.Fold(to.Count, metric.ConnectionsLost, c, "", 0, b.rec.target, l.cfg.Name)
			if l.cfg.Outlier != nil {
				for d := range outlier.NumDetectors {
					metric.Fold(to.Count, metric.EjectionsEnforced, c, "", 0, b.rec.target, d.String())
				}
			}
		}
	}
	for load, cfg := range b.rec.retired {
		channelmetrics.FoldLoad(to, cfg, load)
	}
	clear(b.rec.retired)
}

// Gauges emits the gauges of the channel. O(endpoints).
func Gauges(b *Balancer, emit metric.Emit) {
	target, link := b.rec.target, b.src.Channel
	emit(metric.Channels, 1, target)
	missing := int64(0)
	if len(link.Unapplied(b.picker.table())) > 0 {
		missing = 1
	}
	emit(metric.MissingInterceptors, missing, target)
	b.lock()
	defer b.unlock()
	for name, c := range b.clusters {
		emit(metric.Priority, int64(slices.Index(c.priorities, c.inUse)), target, name)
		endpointGauges(c, target, emit)
	}
}

// stateLabels are the values of the label xdslb.state.
var stateLabels = [...]string{picker.Idle: "idle", picker.Connecting: "connecting", picker.Ready: "ready", picker.TransientFailure: "transient_failure"}

// endpointGauges emits the number of endpoints of the cluster by state, and the number of
// excluded endpoints by reason: O(endpoints).
func endpointGauges(c *cluster, target string, emit metric.Emit) {
	for i, l := range c.leaves {
		var states [len(stateLabels)]int64
		var draining, ejected, unused int64
		for _, p := range l.priorities {
			for e := range p.endpoints {
				states[e.Connectivity]++
				switch {
				case e.Draining:
					draining++
				case e.Ejected:
					ejected++
				case p != c.inUse:
					unused++
				}
			}
		}
		for s, n := range states {
			emit(metric.Endpoints, n, target, l.cfg.Name, stateLabels[s])
		}
		left := 0
		if l.cfg.Policy.Subset > 0 && len(l.cfg.Priorities) > 0 { // otherwise the credentials refuse the leaf
			for _, n := range explain.LeftOut(&c.received.Leaves[i], l.cfg) {
				left += n
			}
		}
		for _, r := range []struct {
			reason string
			n      int64
		}{{"draining", draining}, {"ejected", ejected}, {"priority", unused}, {"subset", int64(left)}} {
			emit(metric.EndpointsExcluded, r.n, target, l.cfg.Name, r.reason)
		}
	}
}
