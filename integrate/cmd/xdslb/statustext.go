// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// How much a view shows of each part.
const (
	viewEndpoints = 20 // of a cluster
	viewClusters  = 12
	viewEvents    = 10
	viewTroubles  = 8
	viewResources = 40
)

// statusText writes a document for people, in lines of 80 columns.
type statusText struct {
	w        io.Writer
	d        *debug.Document
	previous map[string]report.EndpointStatus // by endpointKey
	since    time.Time                        // when previous was
}

func newStatusText(w io.Writer, d, previous *debug.Document) *statusText {
	t := &statusText{w: w, d: d, previous: map[string]report.EndpointStatus{}}
	if previous == nil {
		return t
	}
	t.since = previous.Time
	for i := range previous.Channels {
		s := &previous.Channels[i]
		eachEndpoint(s, func(key string, e *report.EndpointStatus) { t.previous[key] = *e })
	}
	return t
}

// eachEndpoint visits the endpoints of a channel, each with what identifies it.
func eachEndpoint(s *report.TargetStatus, visit func(key string, e *report.EndpointStatus)) {
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for _, l := range c.Leaves {
			for _, p := range l.Priorities {
				for k := range p.Localities {
					for n := range p.Localities[k].Endpoints {
						e := &p.Localities[k].Endpoints[n]
						visit(endpointKey(s, c, l.Name, e), e)
					}
				}
			}
		}
	}
}

// endpointKey identifies an endpoint, and what its RPCs are counted from.
func endpointKey(s *report.TargetStatus, c *report.ClusterStatus, leaf string, e *report.EndpointStatus) string {
	return fmt.Sprintf("%d %s %q %q %s", s.Channel, s.Watched.Format(time.RFC3339Nano), c.Name, leaf, e.Address)
}

// calls are the RPCs that ended at an endpoint since the view before, or else since they are
// counted.
func (t *statusText) calls(key string, e *report.EndpointStatus) (ok, failed uint64) {
	before := t.previous[key]
	if before.OK > e.OK || before.FailedRPCs > e.FailedRPCs {
		before = report.EndpointStatus{}
	}
	return e.OK - before.OK, e.FailedRPCs - before.FailedRPCs
}

func (t *statusText) line(format string, args ...any) {
	fmt.Fprintln(t.w, sanitize.Text(strings.TrimRight(fmt.Sprintf(format, args...), " "), columns))
}

func (t *statusText) all() {
	if p := t.d.Process; p.PID > 0 {
		t.line("%s, process %d on %s, %s UTC", p.Program, p.PID, p.Host, t.d.Time.UTC().Format("15:04:05"))
	} else {
		t.line("%s UTC", t.d.Time.UTC().Format("15:04:05"))
	}
	if len(t.d.Channels) == 0 {
		t.line("no channel of the process uses xdslb at the moment; idle ones do not show")
	}
	for i := range t.d.Channels {
		t.line("")
		t.channel(&t.d.Channels[i])
	}
}

func (t *statusText) channel(s *report.TargetStatus) {
	t.line("%s  %s", sanitize.Text(s.Target, 60), stateOf(s))
	list := diagnosis.Find(s)
	for _, x := range list[:min(len(list), viewTroubles)] {
		head := "  to know:"
		if x.Error {
			head = "  TO MEND:"
		}
		wrap(t.w, head, sanitize.Text(x.Text, 400))
	}
	t.more(len(list), viewTroubles, "troubles")
	for i := range s.RouteTable {
		if i < viewClusters {
			t.route(&s.RouteTable[i])
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
	if n := len(s.Events); n > 0 {
		t.line("  events")
		for i := range s.Events[max(0, n-viewEvents):] {
			wrap(t.w, "   ", sanitize.Text(eventLine(&s.Events[max(0, n-viewEvents)+i]), 240))
		}
	}
}

// stateOf is a channel's state. Nobody knows it of a channel of stock's that has no
// interceptors of ours.
func stateOf(s *report.TargetStatus) string {
	if s.Connectivity == "" && s.Rollout != nil {
		return "UNKNOWN"
	}
	return s.Connectivity
}

func (t *statusText) more(n, shown int, what string) {
	if n > shown {
		t.line("  and %d more %s (-o json has all)", n-shown, what)
	}
}

func (t *statusText) route(r *report.RouteStatus) {
	text := fmt.Sprintf("  route %d: path %s", r.Index, sanitize.Text(r.Path, 40))
	for _, c := range r.Conditions {
		text += ", " + sanitize.Text(c, 40)
	}
	if r.Fraction != nil {
		text += fmt.Sprintf(", %s of RPCs", percent(*r.Fraction))
	}
	var to []string
	for _, c := range r.Clusters {
		name := sanitize.Text(c.Cluster, 30)
		if c.Share < 1 {
			name += " " + percent(c.Share)
		}
		to = append(to, name)
	}
	if r.NotForwarding {
		to = []string{"nowhere: its RPCs fail"}
	}
	t.line("%s -> %s", text, strings.Join(to, ", "))
}

func (t *statusText) cluster(s *report.TargetStatus, c *report.ClusterStatus) {
	policy, all := "", uint64(0)
	for i := range c.Leaves {
		policy = c.Leaves[i].Policy
	}
	one := &report.TargetStatus{Channel: s.Channel, Watched: s.Watched, Clusters: []report.ClusterStatus{*c}}
	eachEndpoint(one, func(key string, e *report.EndpointStatus) {
		ok, failed := t.calls(key, e)
		all += ok + failed
	})
	rate := ""
	if d := t.d.Time.Sub(t.since); !t.since.IsZero() && d > 0 {
		rate = fmt.Sprintf(", %.0f RPCs/s", float64(all)/d.Seconds())
	}
	t.line("  cluster %s  %s, %s%s", sanitize.Text(c.Name, 34), c.State, policy, rate)
	shown := 0
	for i := range c.Leaves {
		l := &c.Leaves[i]
		if n := len(l.Unhealthy); n > 0 {
			u := l.Unhealthy[0]
			t.line("    %d endpoints get no RPCs, since EDS says so: %s %s …", n, sanitize.Text(u.Address, 30), sanitize.Text(u.Health, 20))
		}
		for k := range l.Priorities {
			t.priority(one, c, l, &l.Priorities[k], all, &shown)
		}
	}
	if shown > viewEndpoints {
		t.line("      and %d more endpoints (-o json has all)", shown-viewEndpoints)
	}
}

func (t *statusText) priority(s *report.TargetStatus, c *report.ClusterStatus, l *report.LeafStatus, p *report.PriorityStatus, all uint64, shown *int) {
	mark, n := " ", p.Endpoints
	if p.Phase == "" {
		t.resourcePriority(p, shown)
		return
	}
	if p.InUse {
		mark = "*"
	}
	counts := ""
	for _, c := range []struct {
		n    int
		name string
	}{{n.Connecting, "connecting"}, {n.Idle, "idle"}, {n.Failed, "failed"}, {n.Ejected, "ejected"}, {n.Draining, "draining"}, {n.Subset, "left to others"}} {
		if c.n > 0 {
			counts += fmt.Sprintf(", %d %s", c.n, c.name)
		}
	}
	t.line("   %spriority %d %s: %d of %d READY%s", mark, p.Priority, p.Phase, n.Ready, n.Total, counts)
	for i := range p.Localities {
		loc := &p.Localities[i]
		if *shown < viewEndpoints {
			t.line("      %-32s expected observed %6s %5s", sanitize.Text(place(loc.Region, loc.Zone, loc.SubZone), 32), "OK", "fail")
		}
		for k := range loc.Endpoints {
			if *shown++; *shown > viewEndpoints {
				continue
			}
			e := &loc.Endpoints[k]
			ok, failed := t.calls(endpointKey(s, c, l.Name, e), e)
			observed := "–"
			if all > 0 {
				observed = percent(float64(ok+failed) / float64(all))
			}
			t.line("      %-21s %-10s %8s %8s %6d %5d", sanitize.Text(e.Address, 21), condition(e), percent(e.Share), observed, ok, failed)
			if e.Out != "" && (e.Ejected || e.State == "READY") && !e.Draining && p.InUse {
				wrap(t.w, "       ", sanitize.Text(e.Out, 200))
			}
		}
	}
}

// resourcePriority is a priority of which nothing is known but its resource.
func (t *statusText) resourcePriority(p *report.PriorityStatus, shown *int) {
	t.line("    priority %d: %d endpoints, %d draining", p.Priority, p.Endpoints.Total, p.Endpoints.Draining)
	for i := range p.Localities {
		loc := &p.Localities[i]
		if *shown < viewEndpoints {
			t.line("      %-32s weight expected", sanitize.Text(place(loc.Region, loc.Zone, loc.SubZone), 32))
		}
		for k := range loc.Endpoints {
			if *shown++; *shown <= viewEndpoints {
				e := &loc.Endpoints[k]
				t.line("      %-21s %-10s %6d %8s", sanitize.Text(e.Address, 21), condition(e), e.Weight, percent(e.Share))
			}
		}
	}
}

// condition is an endpoint's state in ten columns.
func condition(e *report.EndpointStatus) string {
	switch {
	case e.Draining:
		return "draining"
	case e.Ejected && e.State == "READY":
		return "ejected"
	case e.State == "TRANSIENT_FAILURE":
		return "failed"
	}
	return e.State
}

func (t *statusText) resources(s *report.TargetStatus) {
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

// eventLine is an event in UTC.
func eventLine(e *eventlog.Event) string {
	u := *e
	u.Time, u.Last = u.Time.UTC(), u.Last.UTC()
	return u.String()
}

// lines writes a line for each channel, and for each event since the latest ones.
func (v *viewer) lines(w io.Writer, d *debug.Document) {
	t := newStatusText(w, d, v.previous)
	last := v.told
	for i := range d.Channels {
		s := &d.Channels[i]
		for k := range s.Events {
			e := &s.Events[k]
			if at := latest(e); at.After(v.told) {
				fmt.Fprintln(w, sanitize.Text(s.Target, 40), sanitize.Text(eventLine(e), 0))
				if at.After(last) {
					last = at
				}
			}
		}
		if r := s.Rollout; r != nil {
			fmt.Fprintf(w, "%s %s %s handed_over_by=%s\n", sanitize.Text(s.Target, 40), d.Time.UTC().Format("15:04:05"), sanitize.Text(stateOf(s), 20), sanitize.Text(r.Variable, 40))
			continue
		}
		ready, total, ok, failed := 0, 0, uint64(0), uint64(0)
		for _, c := range s.Clusters {
			for _, l := range c.Leaves {
				for _, p := range l.Priorities {
					if p.InUse {
						ready, total = ready+p.Endpoints.Ready, total+p.Endpoints.Total
					}
				}
			}
		}
		eachEndpoint(s, func(key string, e *report.EndpointStatus) {
			a, b := t.calls(key, e)
			ok, failed = ok+a, failed+b
		})
		mend := 0
		for _, x := range diagnosis.Find(s) {
			if x.Error {
				mend++
			}
		}
		fmt.Fprintf(w, "%s %s %s endpoints=%d/%d ok=%d failed=%d to_mend=%d\n", sanitize.Text(s.Target, 40), d.Time.UTC().Format("15:04:05"), sanitize.Text(stateOf(s), 20), ready, total, ok, failed, mend)
	}
	v.told = last
}

func latest(e *eventlog.Event) time.Time {
	if e.Last.After(e.Time) {
		return e.Last
	}
	return e.Time
}

// needsMending reports whether something is wrong.
func needsMending(d *debug.Document) bool {
	for i := range d.Channels {
		for _, x := range diagnosis.Find(&d.Channels[i]) {
			if x.Error {
				return true
			}
		}
	}
	return false
}
