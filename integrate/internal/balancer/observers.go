// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/orca" // decodes the reports in trailers, once per RPC (A51)
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
)

// observers receive the ends of an endpoint's RPCs, in addition to its counters. Most endpoints
// have no observers, which costs their RPCs one nil check. Observers are immutable; endpoints
// may share them.
type observers struct {
	orca        *orcaRecorder  // of the locality, if its load is reported (A85)
	host        *outlier.Host  // if outliers are detected (A50)
	consecutive *consecutive   // if consecutive failures are, too
	wrr         *wrrWeight     // if weights depend on load reports (A58)
	calls       *endpointCalls // while the channel is watched
}

// onDone reports the end of an RPC to the observers. An RPC that was never sent is ignored, and
// a hedged attempt that was canceled in favor of another attempt does not count as success or
// failure.
func (t *observers) onDone(info *balancer.DoneInfo, result picker.CallResult) {
	if t.host != nil && (result == picker.CallOK || result == picker.CallFailed) {
		t.host.Count(result == picker.CallOK)
		if t.consecutive != nil && (info.BytesSent || info.BytesReceived) {
			t.consecutive.count(t.host, info.Err, info.BytesReceived)
		}
	}
	if t.calls != nil {
		t.calls.count(result)
	}
	if t.wrr != nil {
		t.wrr.onDone(info, result)
	}
	if t.orca != nil && info.ServerLoad != nil {
		t.orca.onDone(info.ServerLoad)
	}
}

// addObservers adds the observers that the leaf's configuration requires to an endpoint.
func (l *leafState) addObservers(e *endpoint) {
	detects, weighs, watched := l.detects(), l.cfg.Policy.Kind.Traits().Reports, l.watched
	if !detects && !weighs && !watched {
		return
	}
	e.updateObservers(func(t *observers) {
		if detects && t.host == nil {
			t.host, t.consecutive = new(outlier.Host), l.consecutive
		}
		if weighs && t.wrr == nil {
			t.wrr = &wrrWeight{leaf: l}
		}
		if watched && t.calls == nil {
			t.calls = new(endpointCalls)
		}
	})
}

// takeObservations takes over the observations of the endpoint that this endpoint replaces.
func (e *endpoint) takeObservations(from *endpoint) {
	e.Ejected, e.StateSince, e.Cold = from.Ejected, from.StateSince, from.Cold
	e.loc.changed()
	was := from.observers.Load()
	if was == nil || was.host == nil && was.wrr == nil && was.calls == nil {
		return
	}
	e.updateObservers(func(t *observers) {
		t.host, t.wrr, t.calls = cmp.Or(was.host, t.host), cmp.Or(was.wrr, t.wrr), cmp.Or(was.calls, t.calls)
	})
	if was.wrr != nil {
		e.SetWeight(was.wrr.published) // marked as changed, like the rest
	}
}

// updateObservers changes the observers of the endpoint's RPCs.
func (e *endpoint) updateObservers(change func(*observers)) {
	var next observers
	if t := e.observers.Load(); t != nil {
		next = *t
	}
	change(&next)
	if next == (observers{}) {
		e.observers.Store(nil)
		return
	}
	e.observers.Store(&next)
}

// orcaRecorder sums up the load that the backends of a locality report at the end of RPCs.
type orcaRecorder struct {
	metrics *picker.Metrics
	wanted  *atomic.Pointer[metricNames] // the leaf's; nil inside if there are no metrics
}

// metricNames selects the metrics that a cluster's load reports forward (A85).
type metricNames struct {
	cpu, mem, application bool
	allNamed              bool
	named                 map[string]bool
}

const namedPrefix = "named_metrics."

// newMetricNames parses CDS's lrs_report_endpoint_metrics. Unknown names are ignored.
func newMetricNames(names []string) *metricNames {
	if len(names) == 0 {
		return nil
	}
	m := &metricNames{named: map[string]bool{}}
	for _, name := range names {
		switch key, named := strings.CutPrefix(name, namedPrefix); {
		case named && key == "*":
			m.allNamed = true
		case named:
			m.named[key] = true
		case name == "cpu_utilization":
			m.cpu = true
		case name == "mem_utilization":
			m.mem = true
		case name == "application_utilization":
			m.application = true
		}
	}
	return m
}

// onDone adds a report to the sums, limited to the selected metrics. Utilizations that are not
// positive were not set. Numbers that are not finite are skipped, because one backend could
// spoil the sum for all of them.
func (s *orcaRecorder) onDone(load any) {
	report, ok := load.(*orcav3.OrcaLoadReport)
	wanted := s.wanted.Load()
	if !ok || report == nil || wanted == nil {
		return
	}
	for _, u := range []struct {
		wanted bool
		name   string
		value  float64
	}{
		{wanted.cpu, "cpu_utilization", report.GetCpuUtilization()},
		{wanted.mem, "mem_utilization", report.GetMemUtilization()},
		{wanted.application, "application_utilization", report.GetApplicationUtilization()},
	} {
		if u.wanted && u.value > 0 && finite(u.value) {
			s.metrics.Add(u.name, u.value)
		}
	}
	for key, value := range report.GetNamedMetrics() {
		if (wanted.allNamed || wanted.named[key]) && finite(value) {
			s.metrics.Add(namedPrefix+key, value)
		}
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

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
