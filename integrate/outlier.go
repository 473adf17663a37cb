// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"time"

	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/picker"
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
func (l *leaf) detects() bool {
	o := l.cfg.Outlier
	return o != nil && (o.SuccessRate != nil || o.FailurePercentage != nil) && l.cfg.Policy.Kind != picker.PolicyPickFirst
}

// detect follows a change of the configuration. Counts of priorities have to be
// taken anew after it. b.mu is held.
func (l *leaf) detect(b *lb) {
	d := &l.detector
	if !l.detects() {
		if !d.began.IsZero() {
			d.stop()
			for e := range l.endpoints {
				e.Ejected = false
				e.tellEjection()
				e.retap(func(t *taps) { t.host = nil })
			}
		}
		return
	}
	if d.began.IsZero() {
		d.began = time.Now()
		for e := range l.endpoints {
			l.tap(e)
		}
	}
	if interval := max(l.cfg.Outlier.Interval, minInterval); interval != d.interval {
		l.await(b, interval)
	}
}

// await sets the timer for one interval after the last run.
func (l *leaf) await(b *lb, interval time.Duration) {
	d := &l.detector
	halt(&d.timer)
	d.interval = interval
	b.after(time.Until(d.began.Add(interval)), &d.timer, func() { l.sweep(b) })
}

func (d *detector) stop() {
	halt(&d.timer)
	*d = detector{}
}

// sweep judges the endpoints, once per interval. Ejections close no connection
// (T-OD-2): they change what the endpoint counts as. O(endpoints).
func (l *leaf) sweep(b *lb) {
	d := &l.detector
	d.began = time.Now()
	var hosts []*outlier.Host
	for e := range l.endpoints {
		hosts = append(hosts, e.taps.Load().host)
	}
	outlier.Sweep(l.cfg.Outlier, hosts, b.now(), b.draw)
	for _, p := range l.priorities {
		changed := false
		for e := range p.endpoints {
			if out := e.taps.Load().host.Ejected(); out != e.Ejected {
				changed = true
				e.count(-1)
				e.Ejected = out
				e.count(+1)
				e.tellEjection()
			}
		}
		if changed {
			p.cluster.onChange(p)
		}
	}
	l.await(b, d.interval)
	b.publishSoon()
}

// ejected returns how many endpoints are ejected: O(endpoints).
func (p *priority) ejected() (n int) {
	for e := range p.endpoints {
		if e.Ejected {
			n++
		}
	}
	return n
}

// endpoints visits the endpoints of all priorities.
func (l *leaf) endpoints(yield func(*endpoint) bool) {
	for _, p := range l.priorities {
		for e := range p.endpoints {
			if !yield(e) {
				return
			}
		}
	}
}

// endpoints visits the endpoints of all localities.
func (p *priority) endpoints(yield func(*endpoint) bool) {
	for _, l := range p.localities {
		for _, e := range l.endpoints {
			if !yield(e) {
				return
			}
		}
	}
}
