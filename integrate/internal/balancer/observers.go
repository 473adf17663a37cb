// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"math"
	"strings"
	"sync/atomic"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/orca" // decodes the reports in trailers, once per RPC (A51)

	"github.com/xdslb/xdslb/integrate/internal/outlier"
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
