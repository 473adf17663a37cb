// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/xdslb/xdslb/integrate/internal/orcaweight"
	"github.com/xdslb/xdslb/picker"
)

// This file implements Envoy's load_aware_locality: endpoints report their utilization, at the
// end of RPCs or out of band, and once per update period the shares of localities are computed
// from it.

// loadAwareConfig defines how the endpoints of a leaf report. It is immutable.
type loadAwareConfig struct {
	*picker.LoadAware
	rule *orcaweight.Utilization
}

// utilization converts the load reports of an endpoint to its utilization. It implements
// orca.OOBListener.
type utilization struct {
	orcaweight.Sample
	leaf *common
	oob  oobReports // guarded by the balancer's mutex
}

// onDone records a report received at the end of an RPC.
func (u *utilization) onDone(load any) {
	report, ok := load.(*orcav3.OrcaLoadReport)
	if how := u.leaf.loadAware.Load(); ok && report != nil && how != nil && !how.OutOfBand {
		u.Report(how.rule.Of(report), u.leaf.rt.Now())
	}
}

// OnLoadReport records an out-of-band report.
func (u *utilization) OnLoadReport(report *orcav3.OrcaLoadReport) {
	if how := u.leaf.loadAware.Load(); how != nil && how.OutOfBand {
		u.Report(how.rule.Of(report), u.leaf.rt.Now())
	}
}

// localityUtilization is the utilization of a locality.
type localityUtilization struct {
	orcaweight.Smoothed
	stale bool // no endpoint has reported within the expiration period
}

// updateLoadAware applies a change of the configuration.
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
				e.loc.utilization = localityUtilization{}
			}
		}
		return
	}
	l.loadAware.Store(&loadAwareConfig{cfg, orcaweight.NewUtilization(cfg.UtilizationFrom)})
	if was == nil || was.OutOfBand != cfg.OutOfBand || was.OOBPeriod != cfg.OOBPeriod {
		l.restartReports()
	}
}
