// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// Maximum numbers of elements in a view.
const (
	viewEndpoints = 20 // of a cluster
	viewClusters  = 12
	viewEvents    = 10
	viewFindings  = 8
	viewResources = 40
)

// statusText writes a document as text, in lines of 80 columns.
type statusText struct {
	w        io.Writer
	d        *debug.Document
	previous map[string]report.EndpointStatus // by endpointKey
	since    time.Time                        // of previous
}

func newStatusText(w io.Writer, d, previous *debug.Document) *statusText {
	t := &statusText{w: w, d: d, previous: map[string]report.EndpointStatus{}}
	if previous == nil {
		return t
	}
	t.since = previous.Time
	for i := range previous.Channels {
		s := &previous.Channels[i]
		for k := range s.Clusters {
			for e := range report.Endpoints(&s.Clusters[k]) {
				t.previous[endpointKey(s, &s.Clusters[k], &e)] = *e.EndpointStatus
			}
		}
	}
	return t
}

// endpointKey identifies an endpoint and the time since which its RPCs are counted.
func endpointKey(s *integrate.TargetStatus, c *report.ClusterStatus, e *report.Located) string {
	return fmt.Sprintf("%d %s %q %q %s", s.Channel, s.Watched.Format(time.RFC3339Nano), c.Name, e.Leaf.Name, e.Address)
}

// calls returns the RPCs that ended at an endpoint since the previous view, or since counting began.
func (t *statusText) calls(s *integrate.TargetStatus, c *report.ClusterStatus, e *report.Located) (ok, failed uint64) {
	before := t.previous[endpointKey(s, c, e)]
	if before.OK > e.OK || before.FailedRPCs > e.FailedRPCs {
		before = report.EndpointStatus{}
	}
	return e.OK - before.OK, e.FailedRPCs - before.FailedRPCs
}

func (t *statusText) line(format string, args ...any) {
	fmt.Fprintln(t.w, sanitize.Text(strings.TrimRight(fmt.Sprintf(format, args...), " "), columns))
}

// all writes the channels of the document, out of total channels of the process.
func (t *statusText) all(total, failing int) {
	if p := t.d.Process; p.PID > 0 {
		t.line("%s, process %d on %s, %s UTC", p.Program, p.PID, p.Host, t.d.Time.UTC().Format("15:04:05"))
	} else {
		t.line("%s UTC", t.d.Time.UTC().Format("15:04:05"))
	}
	switch shown := len(t.d.Channels); {
	case total == 0:
		t.line("no active channel of the process uses xdslb; idle channels are not listed")
	case shown < total:
		t.line("%d of %s with errors; %d shown", failing, report.Count(total, "channel"), shown)
	case total > 1:
		t.line("%d of %s with errors", failing, report.Count(total, "channel"))
	}
	for i := range t.d.Channels {
		t.line("")
		t.channel(&t.d.Channels[i])
	}
}

func (t *statusText) channel(s *integrate.TargetStatus) {
	t.line("%s  %s", sanitize.Text(s.Target, 60), stateOf(s))
	list := diagnosis.Find(s)
	for _, x := range list[:min(len(list), viewFindings)] {
		head := "  note:"
		if x.Error {
			head = "  ERROR:"
		}
		wrap(t.w, head, sanitize.Text(x.Text, 400))
	}
	t.more(len(list), viewFindings, "problems")
	for i := range s.RouteTable {
		if i < viewClusters {
			r := &s.RouteTable[i]
			wrap(t.w, fmt.Sprintf("  route %d:", r.Index), sanitize.Text(report.Match(r)+" -> "+report.Destinations(r), 400))
		}
	}
	t.more(len(s.RouteTable), viewClusters, "routes")
	for i := range s.Clusters {
		if i < viewClusters {
			t.cluster(s, &s.Clusters[i])
		}
	}
	t.more(len(s.Clusters), viewClusters, "clusters")
	if len(s.Clusters) == 0 && len(s.Resources) > 0 {
		t.resources(s)
	}
	for i := range s.Overlay {
		if i < viewResources {
			p := &s.Overlay[i]
			wrap(t.w, "  overlay:", sanitize.Text(p.Patch+": "+p.Effect(), 600))
		}
	}
	t.more(len(s.Overlay), viewResources, "patches")
	for i := range s.StockDifferences {
		head := "  with grpc-go:"
		if s.StockDifferences[i].LosesRPCs {
			head = "  with grpc-go, RPCs fail:"
		}
		wrap(t.w, head, sanitize.Text(s.StockDifferences[i].String(), 600))
	}
	if n := len(s.Events); n > 0 {
		t.line("  events")
		for i := range s.Events[max(0, n-viewEvents):] {
			wrap(t.w, "   ", sanitize.Text(eventLine(&s.Events[max(0, n-viewEvents)+i]), 240))
		}
	}
}

// stateOf returns a channel's state, which is unknown for a channel that uses stock and does not have
// our interceptors.
func stateOf(s *integrate.TargetStatus) string {
	if s.Connectivity == "" && s.Stock != "" {
		return "UNKNOWN"
	}
	return s.Connectivity
}

func (t *statusText) more(n, shown int, what string) {
	if n > shown {
		t.line("  and %d more %s (use -o json)", n-shown, what)
	}
}

func (t *statusText) cluster(s *integrate.TargetStatus, c *report.ClusterStatus) {
	all := uint64(0)
	for e := range report.Endpoints(c) {
		ok, failed := t.calls(s, c, &e)
		all += ok + failed
	}
	rate := ""
	if d := t.d.Time.Sub(t.since); !t.since.IsZero() && d > 0 && s.Connectivity != "" {
		rate = fmt.Sprintf(", %.0f RPCs/s", float64(all)/d.Seconds())
	}
	t.line("  cluster %s  %s%s", sanitize.Text(c.Name, 50), c.State, rate)
	for i := range c.Leaves {
		l := &c.Leaves[i]
		for _, f := range report.Facts(l) {
			wrap(t.w, "    "+f.Name+":", sanitize.Text(f.Value, 240))
		}
		for k := range l.Priorities {
			p := &l.Priorities[k]
			mark := " "
			if p.InUse {
				mark = "*"
			}
			if p.Phase == "" { // only the resource is known
				t.line("    priority %d: %s, %d draining", p.Priority, report.Count(p.Endpoints.Total, "endpoint"), p.Endpoints.Draining)
			} else {
				t.line("   %spriority %d %s: %s", mark, p.Priority, p.Phase, report.Counts(&p.Endpoints))
			}
		}
	}
	shown := 0
	var locality *report.LocalityStatus
	for e := range report.Endpoints(c) {
		if shown++; shown > viewEndpoints {
			continue
		}
		if e.Locality != locality {
			locality = e.Locality
			observed := ""
			if e.Priority.Phase != "" {
				observed = fmt.Sprintf(" observed %6s %4s", "OK", "fail")
			}
			t.line("    %-39s weight expected%s", sanitize.Text(report.Place(locality.Region, locality.Zone, locality.SubZone), 39), observed)
		}
		t.endpoint(s, c, &e, all)
	}
	if shown > viewEndpoints {
		t.line("    and %d more endpoints (use -o json)", shown-viewEndpoints)
	}
}

// endpoint writes an endpoint. all is the number of RPCs at all endpoints of the cluster.
func (t *statusText) endpoint(s *integrate.TargetStatus, c *report.ClusterStatus, e *report.Located, all uint64) {
	observed := ""
	if e.Priority.Phase != "" {
		ok, failed := t.calls(s, c, e)
		share := "–"
		if all > 0 {
			share = report.Percent(float64(ok+failed) / float64(all))
		}
		observed = fmt.Sprintf(" %8s %6d %4d", share, ok, failed)
	}
	t.line("    %-21s %-17s %6d %8s%s", sanitize.Text(e.Address, 21), sanitize.Text(report.Condition(e.EndpointStatus), 17), e.Weight, report.Percent(e.Share), observed)
	if e.Out != "" && e.Priority.InUse && e.State == "READY" && !e.Draining {
		wrap(t.w, "     ", sanitize.Text(e.Out, 200))
	}
}

func (t *statusText) resources(s *integrate.TargetStatus) {
	for i := range s.Resources {
		if i == viewResources {
			break
		}
		r := &s.Resources[i]
		t.line("  %-22s %-14s version %-12s %s", r.Type, r.State, sanitize.Text(r.Version, 12), sanitize.Text(r.Name, 40))
		if r.Error != "" {
			wrap(t.w, "     ", sanitize.Text(r.Error, 400))
		}
	}
	t.more(len(s.Resources), viewResources, "resources")
}

// eventLine formats an event, with its times in UTC.
func eventLine(e *eventlog.Event) string {
	u := *e
	u.Time, u.Last = u.Time.UTC(), u.Last.UTC()
	return u.String()
}

// lines writes a line for each channel, and for each event since the previous call.
func (v *viewer) lines(w io.Writer, d *debug.Document) {
	t := newStatusText(w, d, v.previous)
	last := v.lastEvent
	for i := range d.Channels {
		s := &d.Channels[i]
		for k := range s.Events {
			e := &s.Events[k]
			if at := latest(e); at.After(v.lastEvent) {
				fmt.Fprintln(w, sanitize.Text(s.Target, 40), sanitize.Text(eventLine(e), 0))
				if at.After(last) {
					last = at
				}
			}
		}
		if r := s.Rollout; r != nil && s.Stock != "" {
			fmt.Fprintf(w, "%s %s %s handed_over_by=%s\n", sanitize.Text(s.Target, 40), d.Time.UTC().Format("15:04:05"), sanitize.Text(stateOf(s), 20), sanitize.Text(r.Variable, 40))
			continue
		}
		var active report.EndpointCounts
		ok, failed := uint64(0), uint64(0)
		for k := range s.Clusters {
			c := &s.Clusters[k]
			n := report.Active(c)
			active.Ready, active.Total = active.Ready+n.Ready, active.Total+n.Total
			for e := range report.Endpoints(c) {
				a, b := t.calls(s, c, &e)
				ok, failed = ok+a, failed+b
			}
		}
		problems := diagnosis.Find(s)
		errors, notes := diagnosis.Count(problems)
		first := ""
		if errors > 0 {
			first = fmt.Sprintf(" error=%q", sanitize.Text(problems[0].Text, 300))
		}
		fmt.Fprintf(w, "%s %s %s endpoints=%d/%d ok=%d failed=%d errors=%d notes=%d%s\n", sanitize.Text(s.Target, 40), d.Time.UTC().Format("15:04:05"), sanitize.Text(stateOf(s), 20), active.Ready, active.Total, ok, failed, errors, notes, first)
	}
	v.lastEvent = last
}

func latest(e *eventlog.Event) time.Time {
	if e.Last.After(e.Time) {
		return e.Last
	}
	return e.Time
}

// hasErrors reports whether a channel has errors.
func hasErrors(s *integrate.TargetStatus) bool {
	errors, _ := diagnosis.Count(diagnosis.Find(s))
	return errors > 0
}
