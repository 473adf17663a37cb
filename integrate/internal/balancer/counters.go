// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"log/slog"

	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/picker"
)

// acquireCounters acquires the leaf's counters of RPCs.
func (l *common) acquireCounters() {
	switch {
	case !l.cfg.CountsRPCs():
		l.breaker = counters.NewUnlimited()
	case l.simulated:
		l.breaker = counters.NewBreaker()
	default:
		l.breaker = counters.AcquireBreaker(l.cfg.Name, l.cfg.Service)
	}
	l.load, l.stopReports = &picker.ClusterLoad{Unreported: true}, func() {}
	if server := l.cfg.Load.Server; server != "" && l.client != nil {
		load, stop, err := counters.ReportLoad(l.client, l.bootstrap, server, l.cfg.Name, l.cfg.Service)
		if err != nil {
			l.rec.write(slog.LevelError, "xdslb: a cluster's load is not reported", l.cfg.Name, slog.String("server", server), slog.String("error", err.Error()))
			return
		}
		l.load, l.stopReports = load, stop
	}
}

// loadObserver returns the collector of ORCA reports for a locality's endpoints, or nil if load
// is not reported.
func (l *common) loadObserver(id picker.LocalityID) *observers {
	if l.load.Unreported || l.cfg.Load.Server == "" {
		return nil
	}
	return &observers{orca: &orcaRecorder{l.load.Metrics(id), &l.metrics}}
}

// releaseCounters releases the counters of acquireCounters once no published snapshot uses them:
// picks would use a circuit breaker that the next user of the pair of names does not find. RPCs in
// flight continue to be counted.
func (l *common) releaseCounters() {
	cfg, load, breaker, stop := l.cfg, l.load, l.breaker, l.stopReports
	l.out.unused = append(l.out.unused, func() {
		l.rec.retire(load, cfg)
		breaker.Unref()
		stop()
	})
}

func (l *common) dropCounters() (drops []*picker.Counter, overload *picker.Counter) {
	for _, d := range l.cfg.Drops {
		drops = append(drops, l.load.Drop(d.Category))
	}
	return drops, l.load.Overload()
}
