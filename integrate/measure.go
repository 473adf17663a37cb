// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"time"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/picker"
)

// measurePublication records the duration of a publication that ended just now, and the latency
// of the configuration, which may be nil, if it is a new one.
func (r *recorder) measurePublication(took time.Duration, now time.Time, cfg *picker.Config) {
	r.metrics.Observe(metric.PublicationDuration, []float64{took.Seconds()}, r.target)
	if cfg == nil || !cfg.Received.After(r.received) {
		return
	}
	r.received = cfg.Received
	if r.received.After(r.start) { // else it was there before the channel
		r.metrics.Observe(metric.ConfigurationLatency, []float64{now.Sub(r.received).Seconds()}, r.target)
	}
}

// countOutliers records the findings of a sweep.
func (r *recorder) countOutliers(found outlier.Findings) {
	for method, v := range map[string]outlier.Verdicts{"success_rate": found.SuccessRate, "failure_percentage": found.FailurePercentage} {
		r.metrics.Count(metric.EjectionsEnforced, int64(v.Ejected), r.target, method)
		r.metrics.Count(metric.EjectionsUnenforced, int64(v.Overflow), r.target, method, "max_ejection_overflow")
		r.metrics.Count(metric.EjectionsUnenforced, int64(v.Spared), r.target, method, "enforcement_percentage")
	}
}

// measureWeights records the weights that READY endpoints have at an update of them, if the
// channel has a recorder: O(endpoints).
func (p *priority) measureWeights(how *wrrConfig, now int64) {
	b := p.leaf
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
		labels := []string{b.rec.target, channelmetrics.LocalityName(l.id), p.leaf.name}
		b.rec.metrics.Observe(metric.WRRWeights, weights, labels...)
		if usable < 2 {
			b.rec.metrics.Count(metric.WRRFallback, 1, labels...)
		}
		b.rec.metrics.Count(metric.WRRNotYetUsable, int64(len(weights)-usable-stale), labels...)
		b.rec.metrics.Count(metric.WRRStale, int64(stale), labels...)
	}
}
