// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
)

// detector runs A50's interval timer for one leaf. Outliers are detected among all endpoints of
// a cluster, whatever their priority (A75).
type detector struct {
	timer    *time.Timer
	interval time.Duration // of the running timer
	// began is when detection was enabled, or last ran; zero if disabled. A change of the
	// interval counts from this time.
	began time.Time
}

// consecutive detects consecutive failures at the end of RPCs, as in Envoy. It is immutable, and
// shared by the endpoints of a leaf.
type consecutive struct {
	cfg *picker.OutlierDetection
	// onThreshold is called without the mutex when RPCs of a host have failed often enough.
	onThreshold func(*outlier.Host, outlier.Detectors)
}

// count counts an RPC that has been sent and has ended with err. answered is whether the server sent
// a response.
func (c *consecutive) count(h *outlier.Host, err error, answered bool) {
	if by := h.CountRun(c.cfg, status.Code(err), answered); by != 0 {
		c.onThreshold(h, by)
	}
}

// minInterval keeps an interval of 0, which A50 allows, from keeping a processor
// busy (T-OD-2).
const minInterval = 10 * time.Millisecond

// detects reports whether outliers are detected. Without a detector nothing is counted either.
// pick_first ignores outlier detection: it has only one endpoint (A61).
func (l *leafState) detects() bool {
	return l.cfg.Outlier.Detects() && !selects(l.cfg.Policy.Kind)
}

// updateDetection applies a change of the configuration. The counts of priorities must be
// recomputed afterwards.
func (l *leaf) updateDetection() {
	d := &l.detector
	if !l.detects() {
		if !d.began.IsZero() {
			d.stop()
			l.consecutive = nil
			for _, p := range l.priorities {
				for e := range p.endpoints {
					e.Ejected = false
					e.loc.changed()
					p.onEjection(e)
					e.updateObservers(func(t *observers) { t.host, t.consecutive = nil, nil })
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
	l.updateConsecutive()
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

// updateConsecutive follows a change of the detectors of consecutive failures: O(endpoints) if the
// configuration differs.
func (l *leaf) updateConsecutive() {
	was := l.consecutive
	switch {
	case !l.cfg.Outlier.DetectsConsecutive():
		l.consecutive = nil
	case was == nil || was.cfg != l.cfg.Outlier:
		l.consecutive = &consecutive{l.cfg.Outlier, l.onConsecutiveErrors}
	}
	if l.consecutive != was {
		for e := range l.endpoints {
			e.updateObservers(func(t *observers) { t.consecutive = l.consecutive })
		}
	}
}

// onConsecutiveErrors starts a decision about a host whose consecutive RPCs failed
// often enough. RPCs do not wait for it.
func (l *leaf) onConsecutiveErrors(h *outlier.Host, by outlier.Detectors) {
	go l.entry.do(func() { l.decide(h, by) })
}

// decide ejects the endpoint of a host, if it is still in the leaf and the configuration permits it:
// O(endpoints).
func (l *leaf) decide(h *outlier.Host, by outlier.Detectors) {
	if !l.detects() {
		return
	}
	ejected, total, here := 0, 0, false
	for e := range l.endpoints {
		o := e.observers.Load()
		here = here || o.host == h
		total++
		if o.host.Ejected() {
			ejected++
		}
	}
	if here {
		l.rec.countOutliers(outlier.Eject(l.cfg.Outlier, h, by, ejected, total, l.rt.Now(), rand.Uint32N))
		l.applyEjections()
	}
}

// sweep evaluates the endpoints, once per interval. O(endpoints).
func (l *leaf) sweep() {
	d := &l.detector
	d.began = time.Now()
	var hosts []*outlier.Host
	for e := range l.endpoints {
		hosts = append(hosts, e.observers.Load().host)
	}
	l.rec.countOutliers(outlier.Sweep(l.cfg.Outlier, hosts, l.rt.Now(), rand.Uint32N))
	l.applyEjections()
	l.await(d.interval)
}

// applyEjections has endpoints follow their hosts, which were ejected or have returned. Ejections
// close no connection (T-OD-2): they change what the endpoint counts as. O(endpoints).
func (l *leaf) applyEjections() {
	for _, p := range l.priorities {
		for e := range p.endpoints {
			if h := e.observers.Load().host; h.Ejected() != e.Ejected {
				p.note(states)
				e.count(-1)
				e.Ejected = h.Ejected()
				e.loc.changed()
				e.count(+1)
				p.onEjection(e)
				l.rec.recordEjection(l.cluster, e.addr(), e.Ejected, h.Cause())
			}
		}
	}
}
