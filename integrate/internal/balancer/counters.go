// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
)

// acquireCounters acquires the leaf's counters of RPCs.
func (l *leafState) acquireCounters() {
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
func (l *leafState) loadObserver(id picker.LocalityID) *observers {
	if l.load.Unreported || l.cfg.Load.Server == "" {
		return nil
	}
	return &observers{orca: &orcaRecorder{l.load.Metrics(id), &l.metrics}}
}

// releaseCounters releases the counters of acquireCounters once no published snapshot uses them:
// picks would use a circuit breaker that the next user of the pair of names does not find. RPCs in
// flight continue to be counted.
func (l *leafState) releaseCounters() {
	cfg, load, breaker, stop := l.cfg, l.load, l.breaker, l.stopReports
	l.out.unused = append(l.out.unused, func() {
		l.rec.retire(load, cfg)
		breaker.Unref()
		stop()
	})
}

func (l *leafState) dropCounters() (drops []*picker.Counter, overload *picker.Counter) {
	for _, d := range l.cfg.Drops {
		drops = append(drops, l.load.Drop(d.Category))
	}
	return drops, l.load.Overload()
}

// A counting selects what is counted for each endpoint, as its policy requires. If the
// selection changes, a new endpoint replaces the endpoint, so that the end of each RPC is
// counted in the same way as its start.
type counting struct {
	inFlight bool // the RPCs in flight
	timed    bool // their times
	breaker  bool // the RPCs in flight of the cluster
}

func countingOf(l *picker.Leaf) counting {
	return counting{l.Policy.CountsInFlight(), l.Policy.TimesRPCs(), l.CountsRPCs()}
}

// binding returns the binding of a locality with this counting. It requests a clock if RPCs are
// timed.
func (c counting) binding(load *picker.Load, breaker *picker.Breaker, clock func() *picker.Clock) *picker.Binding {
	if c.timed {
		return picker.NewTimedBinding(load, breaker, clock())
	}
	return picker.NewBinding(load, breaker, c.inFlight)
}

// watchTime is how long the RPCs of endpoints are counted after the latest status request.
const watchTime = time.Minute

// endpointCalls counts the finished RPCs of an endpoint while the channel is watched.
type endpointCalls struct{ ok, failed atomic.Uint64 }

// count counts an RPC. An RPC that was never sent is ignored.
func (c *endpointCalls) count(r picker.CallResult) {
	switch r {
	case picker.CallOK:
		c.ok.Add(1)
	case picker.CallFailed:
		c.failed.Add(1)
	}
}

// callWatch controls whether the RPCs of a channel are counted by endpoint:
//
//	       watchCalls                 watchCalls
//	off ──────────────────► on, timer ◄───┐
//	 ▲                          │ └───────┘
//	 └──────────────────────────┘
//	   watchTime without a status request
//
// The balancer's mutex guards it.
type callWatch struct {
	since time.Time // zero means off
	timer *time.Timer
}

func (w *callWatch) on() bool { return !w.since.IsZero() }

// watchCalls counts RPCs by endpoint for a while: O(endpoints) unless they are counted already.
func watchCalls(b *Balancer) {
	if !b.watch.on() {
		b.watch.since, b.watched = time.Now(), true
		setCalls(b, func() *endpointCalls { return new(endpointCalls) })
	}
	serial.Halt(&b.watch.timer)
	b.rt.After(watchTime, &b.watch.timer, func() { unwatchCalls(b) })
}

// unwatchCalls stops counting.
func unwatchCalls(b *Balancer) {
	serial.Halt(&b.watch.timer)
	b.watch.since, b.watched = time.Time{}, false
	setCalls(b, func() *endpointCalls { return nil })
}

func setCalls(b *Balancer, calls func() *endpointCalls) {
	for _, c := range b.clusters {
		for _, l := range c.leaves {
			for e := range l.endpoints {
				e.updateObservers(func(o *observers) { o.calls = calls() })
			}
		}
	}
}
