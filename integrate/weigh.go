// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/orca"

	"github.com/xdslb/xdslb/integrate/internal/orcaweight"
	"github.com/xdslb/xdslb/picker"
)

// This file is client-side weighted round robin (A58): reports of endpoints become
// weights as they come, at the end of RPCs or out of band, and the snapshot learns
// of them once per update period.

// weighing is how the endpoints of a leaf are weighed. It is immutable.
type weighing struct {
	*picker.ClientWRR
	rule *orcaweight.Rule
}

// weigher is where what an endpoint reports becomes its weight. It implements
// orca.OOBListener.
type weigher struct {
	orcaweight.Weight
	b    *lb
	leaf *leaf

	// Guarded by the balancer's mutex.
	told float64 // what the snapshots know
	stop func()  // ends the reports out of band; nil while there are none
}

// note takes note of a report at the end of an RPC.
func (w *weigher) note(load any) {
	report, ok := load.(*orcav3.OrcaLoadReport)
	if how := w.leaf.weighing.Load(); ok && report != nil && how != nil && !how.OutOfBand {
		w.Report(how.ClientWRR, how.rule.Weight(report), w.b.now())
	}
}

// OnLoadReport takes note of a report out of band.
func (w *weigher) OnLoadReport(report *orcav3.OrcaLoadReport) {
	if how := w.leaf.weighing.Load(); how != nil && how.OutOfBand {
		w.Report(how.ClientWRR, how.rule.Weight(report), w.b.now())
	}
}

// weigh follows a change of the configuration. b.mu is held.
func (l *leaf) weigh() {
	was := l.weighing.Load()
	if l.cfg.Policy.Kind != picker.PolicyClientWRR {
		if was != nil {
			l.weighing.Store(nil)
			for e := range l.endpoints {
				e.hush()
				e.retap(func(t *taps) { t.weigher = nil })
				e.SetWeight(0)
			}
		}
		return
	}
	cfg := l.cfg.Policy.WRR
	l.weighing.Store(&weighing{cfg, orcaweight.NewRule(cfg)})
	if was != nil && was.OutOfBand == cfg.OutOfBand && was.OOBPeriod == cfg.OOBPeriod {
		return
	}
	for e := range l.endpoints {
		l.tap(e)
		e.hush()
		if e.Connectivity == picker.Ready && e.loc.prio.groups == nil { // else reclaim says what is READY
			e.listen()
		}
	}
}

// listen asks for reports out of band of an endpoint that is READY, if the policy
// wants them. They come over the endpoint's connection, whichever of its addresses
// that leads to (T-WRR-5), until hush. b.mu is held.
func (e *endpoint) listen() {
	t, how := e.taps.Load(), e.loc.prio.leaf.weighing.Load()
	if t == nil || t.weigher == nil || how == nil || !how.OutOfBand {
		return
	}
	e.hush()
	w, conn, options := t.weigher, e.conn, orca.OOBListenerOptions{ReportInterval: how.OOBPeriod}
	var stop func()
	w.b.later = append(w.b.later, func() { stop = orca.RegisterOOBListener(conn, w, options) })
	w.stop = func() { stop() }
}

// hush ends reports out of band. b.mu is held.
func (e *endpoint) hush() {
	if t := e.taps.Load(); t != nil && t.weigher != nil && t.weigher.stop != nil {
		w := t.weigher
		w.b.later = append(w.b.later, w.stop)
		w.stop = nil
	}
}

// arrive follows an endpoint's becoming READY, for all that counts from there. b.mu
// is held.
func (e *endpoint) arrive() {
	e.ReadySince = e.loc.prio.cluster.lb.now()
	if t := e.taps.Load(); t != nil && t.weigher != nil {
		t.weigher.Connect()
		e.listen()
	}
}

// reweigh tells the endpoints' states their weights of the moment, and reports
// whether one changed that picks look at. O(endpoints).
func (p *priority) reweigh() (changed bool) {
	how := p.leaf.weighing.Load()
	if how == nil {
		return false
	}
	now := p.cluster.lb.now()
	for e := range p.endpoints {
		if e.Connectivity != picker.Ready {
			continue
		}
		w := e.taps.Load().weigher
		if weight := w.At(how.ClientWRR, now); weight != w.told {
			w.told, changed = weight, true
			e.SetWeight(weight)
		}
	}
	return changed
}

// paceWeights keeps a timer of the update period running while weights matter: the
// cluster picks by them, and has two endpoints to choose from. b.mu is held.
func (c *cluster) paceWeights() {
	var how *weighing
	if c.inUse != nil && c.inUse.counts[picker.Ready] > 1 {
		how = c.inUse.leaf.weighing.Load()
	}
	if how == nil {
		halt(&c.weighing)
	} else if c.weighing == nil {
		c.lb.after(how.UpdatePeriod, &c.weighing, func() {
			if c.inUse != nil && c.inUse.reweigh() { // an update may not be published yet
				c.dirty = true
				c.lb.publishSoon()
			}
			c.paceWeights()
		})
	}
}
