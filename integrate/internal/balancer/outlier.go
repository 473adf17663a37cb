// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math/rand/v2"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// detector runs A50's interval timer for one leaf: outliers are told by all
// endpoints of a cluster, whatever their priority (A75).
type detector struct {
	timer    *time.Timer
	interval time.Duration // that timer runs for
	// began is when detection was switched on, or last ran; zero while it is off.
	// A change of the interval counts from here.
	began time.Time
}

// minInterval keeps an interval of 0, which A50 allows, from keeping a processor
// busy (T-OD-2).
const minInterval = 10 * time.Millisecond

// detects reports whether the configuration has outliers detected. Without an
// algorithm nothing is counted either. pick_first takes no notice: it has but one
// endpoint (A61).
func (l *common) detects() bool {
	o := l.cfg.Outlier
	return o != nil && (o.SuccessRate != nil || o.FailurePercentage != nil) && l.cfg.Policy.Kind != picker.PolicyPickFirst
}

// updateDetection follows a change of the configuration. Counts of priorities have to be
// taken anew after it.
func (l *leaf) updateDetection() {
	d := &l.detector
	if !l.detects() {
		if !d.began.IsZero() {
			d.stop()
			for _, p := range l.priorities {
				for e := range p.endpoints {
					e.Ejected = false
					e.loc.changed()
					p.onEjection(e)
					e.updateObservers(func(t *observers) { t.host = nil })
				}
			}
		}
		return
	}
	if d.began.IsZero() {
		d.began = time.Now()
		for e := range l.endpoints {
			l.addObservers(e)
		}
	}
	if interval := max(l.cfg.Outlier.Interval, minInterval); interval != d.interval {
		l.await(interval)
	}
}

// await sets the timer for one interval after the last run.
func (l *leaf) await(interval time.Duration) {
	d := &l.detector
	serial.Halt(&d.timer)
	d.interval = interval
	l.entry.after(time.Until(d.began.Add(interval)), &d.timer, l.sweep)
}

func (d *detector) stop() {
	serial.Halt(&d.timer)
	*d = detector{}
}

// sweep judges the endpoints, once per interval. Ejections close no connection
// (T-OD-2): they change what the endpoint counts as. O(endpoints).
func (l *leaf) sweep() {
	d := &l.detector
	d.began = time.Now()
	var hosts []*outlier.Host
	for e := range l.endpoints {
		hosts = append(hosts, e.observers.Load().host)
	}
	l.rec.countOutliers(outlier.Sweep(l.cfg.Outlier, hosts, l.rt.Now(), rand.Uint32N))
	for _, p := range l.priorities {
		for e := range p.endpoints {
			if out := e.observers.Load().host.Ejected(); out != e.Ejected {
				p.note(states)
				e.count(-1)
				e.Ejected = out
				e.loc.changed()
				e.count(+1)
				p.onEjection(e)
				l.recordEjection(e)
			}
		}
	}
	l.await(d.interval)
}

// recordEjection records that an endpoint was ejected, or returned.
func (l *common) recordEjection(e *endpoint) {
	ev := eventlog.Event{Kind: eventlog.EndpointReturned, Cluster: l.cluster}
	if e.Ejected {
		ev.Kind = eventlog.EndpointEjected
	}
	l.rec.record(ev, e.addr)
}
