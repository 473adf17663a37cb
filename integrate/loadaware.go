// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/xdslb/xdslb/integrate/internal/orcaweight"
	"github.com/xdslb/xdslb/picker"
)

// This file is Envoy's load_aware_locality: endpoints report their utilization, at the end of
// RPCs or out of band, and once per update period localities get their shares by it.

// loadAwareConfig is how the endpoints of a leaf are asked. It is immutable.
type loadAwareConfig struct {
	*picker.LoadAware
	rule *orcaweight.Utilization
}

// utilization is where what an endpoint reports becomes its utilization. It implements
// orca.OOBListener.
type utilization struct {
	orcaweight.Sample
	leaf *common
	oob  oobReports // guarded by the balancer's mutex
}

// onDone takes note of a report at the end of an RPC.
func (u *utilization) onDone(load any) {
	report, ok := load.(*orcav3.OrcaLoadReport)
	if how := u.leaf.loadAware.Load(); ok && report != nil && how != nil && !how.OutOfBand {
		u.Report(how.rule.Of(report), u.leaf.rt.Now())
	}
}

// OnLoadReport takes note of a report out of band.
func (u *utilization) OnLoadReport(report *orcav3.OrcaLoadReport) {
	if how := u.leaf.loadAware.Load(); how != nil && how.OutOfBand {
		u.Report(how.rule.Of(report), u.leaf.rt.Now())
	}
}

// busyness is how busy a locality is.
type busyness struct {
	orcaweight.Smoothed
	stale bool // no endpoint has reported within the expiration period
}

// updateLoadAware follows a change of the configuration.
func (l *leaf) updateLoadAware() {
	was, cfg := l.loadAware.Load(), l.cfg.Policy.LoadAware
	if cfg == nil {
		if was != nil {
			l.loadAware.Store(nil)
			for e := range l.endpoints {
				e.updateObservers(func(t *observers) {
					if t.util != nil {
						t.util.oob.end(l.rt)
					}
					t.util = nil
				})
				e.loc.busy = busyness{}
			}
		}
		return
	}
	l.loadAware.Store(&loadAwareConfig{cfg, orcaweight.NewUtilization(cfg.UtilizationFrom)})
	if was == nil || was.OutOfBand != cfg.OutOfBand || was.OOBPeriod != cfg.OOBPeriod {
		l.askAnew()
	}
}

// updateUtilizations adds what the endpoints of each locality have reported to its
// utilization, and reports whether that makes a difference. It is to be called once per
// update period. O(endpoints).
func (p *priority) updateUtilizations() (changed bool) {
	how := p.leaf.loadAware.Load()
	if how == nil {
		return false
	}
	now := p.leaf.rt.Now()
	for _, l := range p.localities {
		sum, reporting := 0., 0.
		for _, e := range l.endpoints {
			if t := e.observers.Load(); e.serves() && t != nil && t.util != nil {
				if u := t.util.At(how.Expiration, now); u > 0 {
					sum, reporting = sum+u, reporting+1
				}
			}
		}
		was := l.busy
		if l.busy.stale = reporting == 0; !l.busy.stale {
			l.busy.Add(sum/reporting, how.UpdatePeriod, how.Smoothing)
		}
		changed = changed || l.busy != was
	}
	return changed
}

// tellUtilizations tells the localities' states how busy they are.
func (p *priority) tellUtilizations() {
	if p.leaf.cfg.Policy.LoadAware == nil {
		return
	}
	for i, l := range p.localities {
		p.state[i].Utilization, p.state[i].Stale = l.busy.Value, l.busy.stale
	}
}

// scheduleLoads keeps a timer of the update period running while utilizations matter: the
// cluster goes by them, and has two localities to choose from.
func (c *cluster) scheduleLoads() {
	period := time.Duration(0)
	if c.inUse != nil && c.inUse.counts[picker.Ready] > 0 && len(c.inUse.localities) > 1 {
		if how := c.inUse.leaf.loadAware.Load(); how != nil {
			period = how.UpdatePeriod
		}
	}
	c.updateEvery(period, &c.loadTimer, (*priority).updateUtilizations, (*cluster).scheduleLoads)
}
