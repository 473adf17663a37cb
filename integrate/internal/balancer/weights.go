// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/orcaweight"
	"github.com/xdslb/xdslb/picker"
)

// This file is client-side weighted round robin (A58): reports of endpoints become weights on
// arrival, at the end of RPCs or out of band, and snapshots get the weights once per update
// period.

// wrrConfig defines how the endpoints of a leaf are weighed. It is immutable.
type wrrConfig struct {
	*picker.ClientWRR
	rule *orcaweight.Rule
}

// wrrWeight converts the load reports of an endpoint to its weight. It implements
// orca.OOBListener.
type wrrWeight struct {
	orcaweight.Weight
	failures orcaweight.Failures

	leaf *leafState

	// Guarded by the balancer's mutex.
	published float64 // the weight in the snapshots
	stopOOB   func()  // ends out-of-band reports; nil if there are none
}

// onDone records the end of an RPC, and the report that came with it.
func (w *wrrWeight) onDone(info *balancer.DoneInfo, result picker.CallResult) {
	if result == picker.CallOK || result == picker.CallFailed {
		w.failures.Count(result == picker.CallFailed && serverFault(info.Err))
	}
	if info.ServerLoad == nil {
		return
	}
	report, ok := info.ServerLoad.(*orcav3.OrcaLoadReport)
	if how := w.leaf.wrr.Load(); ok && report != nil && how != nil && !how.OutOfBand {
		w.report(how, report)
	}
}

// serverFault reports whether the error of a failed RPC is due to the server rather than to the
// request. Nil means a lost connection.
func serverFault(err error) bool {
	if err == nil {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.Internal, codes.Unknown, codes.DataLoss:
		return true
	}
	return false
}

// connect records that the endpoint has become READY, and may be another process.
func (w *wrrWeight) connect() {
	w.Connect()
	w.failures.Reset()
}

func (w *wrrWeight) report(how *wrrConfig, report *orcav3.OrcaLoadReport) {
	w.Report(how.ClientWRR, how.rule.Weight(report, w.failures.Part()), w.leaf.rt.Now())
}

// OnLoadReport records an out-of-band report.
func (w *wrrWeight) OnLoadReport(report *orcav3.OrcaLoadReport) {
	if how := w.leaf.wrr.Load(); how != nil && how.OutOfBand {
		w.report(how, report)
	}
}

// updateWRR applies a change of the configuration.
func (l *leaf) updateWRR() {
	was := l.wrr.Load()
	if !l.cfg.Policy.Kind.Traits().Reports {
		if was != nil {
			l.wrr.Store(nil)
			for e := range l.endpoints {
				e.stopOOB()
				e.updateObservers(func(t *observers) { t.wrr = nil })
				e.SetWeight(0)
				e.loc.changed()
			}
		}
		return
	}
	cfg := l.cfg.Policy.WRR
	l.wrr.Store(&wrrConfig{cfg, orcaweight.NewRule(cfg)})
	if was == nil || was.OutOfBand != cfg.OutOfBand || was.OOBPeriod != cfg.OOBPeriod {
		l.restartReports()
	}
}

// restartReports updates the observers of the endpoints and restarts out-of-band reports with the
// current configuration.
func (l *leaf) restartReports() {
	for _, p := range l.priorities {
		for e := range p.endpoints {
			l.addObservers(e)
			e.stopOOB()
			if e.Connectivity == picker.Ready && p.groups == nil { // otherwise see closeGroups
				e.startOOB()
			}
		}
	}
}

// startOOB requests out-of-band reports from a READY endpoint, if the policy uses them, until
// stopOOB. They are received over the endpoint's connection, whichever of its addresses it uses
// (T-WRR-5).
func (e *endpoint) startOOB() {
	e.stopOOB()
	l, conn := e.loc.leaf, e.conn.subConn()
	t, how := e.observers.Load(), l.wrr.Load()
	if t == nil || t.wrr == nil || how == nil || !how.OutOfBand || conn == nil {
		return
	}
	var stop func()
	l.rt.Call(func() {
		stop = orca.RegisterOOBListener(conn, t.wrr, orca.OOBListenerOptions{ReportInterval: how.OOBPeriod})
	})
	t.wrr.stopOOB = func() { stop() }
}

// stopOOB stops out-of-band reports.
func (e *endpoint) stopOOB() {
	if t := e.observers.Load(); t != nil && t.wrr != nil && t.wrr.stopOOB != nil {
		e.loc.leaf.rt.Call(t.wrr.stopOOB)
		t.wrr.stopOOB = nil
	}
}

// onReady starts the periods that begin when an endpoint becomes READY: slow start, the
// blackout period of its weight, and out-of-band reports.
func (e *endpoint) onReady() {
	e.StateSince = e.loc.leaf.rt.Now()
	e.loc.changed()
	if t := e.observers.Load(); t != nil && t.wrr != nil {
		t.wrr.connect()
	}
	e.startOOB()
}

// updateWeights sets the current weights in the endpoints' states, and reports whether a weight
// changed that picks use. O(endpoints).
func (p *priority) updateWeights() (changed bool) {
	how := p.leaf.wrr.Load()
	if how == nil {
		return false
	}
	now := p.leaf.rt.Now()
	p.measureWeights(how, now)
	for e := range p.endpoints {
		if e.Connectivity != picker.Ready {
			continue
		}
		w := e.observers.Load().wrr
		if weight := w.At(how.ClientWRR, now); weight != w.published {
			w.published, changed = weight, true
			e.SetWeight(weight)
			e.loc.changed()
		}
	}
	return changed
}

// measureWeights records the weights of READY endpoints after an update of the weights, if the
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
