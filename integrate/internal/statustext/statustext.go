// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package statustext writes the status of a channel as text, for the xdslb command and the debug page.
package statustext

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// Columns is the width of text for terminals, as in package report.
const Columns = 80

// limits are the maximum numbers of elements of a list and of characters of a name.
type limits struct {
	findings, routes, clusters, priorities, endpoints, resources, events, name int
}

var (
	brief = limits{findings: 8, routes: 12, clusters: 12, priorities: 12, endpoints: 20, resources: 40, events: 10}
	full  = limits{findings: 20, routes: 100, clusters: 50, priorities: 20, endpoints: 200, resources: 100, events: 128, name: 160}
)

// maxText is the maximum length of a text of the status, such as an error.
const maxText = 600

// maxTogether is about how many endpoints a full text has, if they are in many clusters.
const maxTogether = 400

// A Text writes channels as text.
type Text struct {
	W   io.Writer
	Now time.Time
	// Full is for the debug page: details of routes, endpoints and resources, longer lists and lines.
	// Otherwise lines have up to 80 columns.
	Full bool
	// Filter selects the clusters whose name contains it, and the endpoints whose address or
	// hostname does.
	Filter string

	previous map[string]report.EndpointStatus // by endpointKey
	since    time.Time                        // of previous
}

// CountSince counts the RPCs of endpoints since a previous status of the channels. Without it, they are
// counted since counting began.
func (t *Text) CountSince(at time.Time, previous []report.TargetStatus) {
	t.since, t.previous = at, map[string]report.EndpointStatus{}
	for i := range previous {
		s := &previous[i]
		for k := range s.Clusters {
			for e := range report.Endpoints(&s.Clusters[k]) {
				t.previous[endpointKey(s, &s.Clusters[k], &e)] = *e.EndpointStatus
			}
		}
	}
}

// endpointKey identifies an endpoint and the time since which its RPCs are counted.
func endpointKey(s *report.TargetStatus, c *report.ClusterStatus, e *report.Located) string {
	return fmt.Sprintf("%d %s %q %q %s", s.Channel, s.Watched.Format(time.RFC3339Nano), c.Name, e.Leaf.Name, e.Address)
}

// Calls returns the numbers of RPCs that ended at an endpoint.
func (t *Text) Calls(s *report.TargetStatus, c *report.ClusterStatus, e *report.Located) (ok, failed uint64) {
	if t.previous == nil {
		return e.OK, e.FailedRPCs
	}
	before := t.previous[endpointKey(s, c, e)]
	if before.OK > e.OK || before.FailedRPCs > e.FailedRPCs {
		before = report.EndpointStatus{}
	}
	return e.OK - before.OK, e.FailedRPCs - before.FailedRPCs
}

// Line writes a line. It is cut at 80 columns unless the text is full.
func (t *Text) Line(format string, args ...any) {
	width := Columns
	if t.Full {
		width = 0
	}
	fmt.Fprintln(t.W, sanitize.Text(strings.TrimRight(fmt.Sprintf(format, args...), " "), width))
}

// wrap writes a text after a head, broken into lines unless the text is full.
func (t *Text) wrap(head, text string) {
	head, text = sanitize.Text(head, 0), sanitize.Text(text, maxText)
	if t.Full {
		t.Line("%s %s", head, text)
	} else {
		Wrap(t.W, head, text)
	}
}

// Wrap writes a text after a head, broken into lines that begin below the first word.
func Wrap(w io.Writer, head, text string) {
	if head != "" {
		head += " "
	}
	report.Wrap(w, head, strings.Repeat(" ", utf8.RuneCountInString(head)), text)
}

func (t *Text) limits() *limits {
	if t.Full {
		return &full
	}
	return &brief
}

// name returns a name with at most width characters, or more if the text is full.
func (t *Text) name(s string, width int) string {
	return sanitize.Text(s, cmp.Or(t.limits().name, width))
}

// first calls f with the first elements of a list, at most limit.
func first[E any](t *Text, list []E, limit int, what string, f func(*E)) {
	for i := range list[:min(len(list), limit)] {
		f(&list[i])
	}
	if n := len(list) - limit; n > 0 {
		see := "use -o json"
		if t.Full {
			see = "see the JSON"
		}
		t.Line("  and %d more %s (%s)", n, what, see)
	}
}

// State returns a channel's state, which is unknown for a channel that uses stock and does not have
// our interceptors.
func State(s *report.TargetStatus) string {
	if s.Connectivity == "" && s.Stock != "" {
		return "UNKNOWN"
	}
	return s.Connectivity
}

// Event formats an event, with its times in UTC.
func Event(e *eventlog.Event) string {
	u := *e
	u.Time, u.Last = u.Time.UTC(), u.Last.UTC()
	return u.String()
}

// clock formats a time of the day.
func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// Channel writes a channel without its target and state.
func (t *Text) Channel(s *report.TargetStatus) {
	l := t.limits()
	first(t, diagnosis.Find(s), l.findings, "problems", func(f *diagnosis.Finding) {
		head := "  note:"
		if f.Error {
			head = "  ERROR:"
		}
		t.wrap(head, f.Text)
	})
	if r := s.Rollout; r != nil && s.Stock != "" {
		t.wrap("  decided by:", r.Variable+"="+r.Value)
		return
	}
	if t.Full {
		t.origin(s)
	}
	first(t, s.RouteTable, l.routes, "routes", t.route)
	clusters := t.clusters(s)
	limit := min(l.endpoints, max(4, maxTogether/max(1, min(len(clusters), l.clusters))))
	first(t, clusters, l.clusters, "clusters", func(c *clusterView) { t.cluster(s, c, limit) })
	first(t, s.Overlay, l.resources, "patches", func(p *report.PatchStatus) {
		of := ""
		if t.Full {
			of = fmt.Sprintf(" of %s %q, target %q", p.Resource, t.name(p.Name, 0), t.name(p.Target, 0))
		}
		t.wrap("  overlay:", p.Patch+of+": "+p.Effect())
	})
	first(t, s.StockDifferences, l.resources, "differences", func(d *report.StockDifference) {
		head := "  with grpc-go:"
		if d.LosesRPCs {
			head = "  with grpc-go, RPCs fail:"
		}
		t.wrap(head, d.String())
	})
	if t.Full {
		first(t, s.ShareShifts, l.clusters, "clusters with other shares", func(x *report.ShareShift) {
			t.wrap("  with grpc-go:", "cluster "+x.Cluster+": "+x.String())
		})
	}
	if t.Full || len(s.Clusters) == 0 {
		first(t, s.Resources, l.resources, "resources", t.resource)
	}
	if n := len(s.Events); n > 0 {
		t.Line("  events")
		for i := range s.Events[max(0, n-l.events):] {
			t.wrap("   ", Event(&s.Events[max(0, n-l.events)+i]))
		}
	}
}

// origin writes where the configuration comes from.
func (t *Text) origin(s *report.TargetStatus) {
	t.wrap("  listener:", s.Listener+", virtual host of "+s.Authority)
	t.wrap("  node:", s.Node)
	text := "none yet"
	switch {
	case s.Since.IsZero():
	case s.Received.IsZero():
		text = "none since " + clock(s.Since)
	default:
		text = "in force since " + clock(s.Since) + ", received " + clock(s.Received)
	}
	if s.Pending {
		text += "; a later one is about to come into force"
	}
	t.wrap("  configuration:", text)
	for _, x := range s.Servers {
		text := "not in use"
		if x.Connected && x.InUse {
			text = "connected"
		} else if x.InUse {
			text = "not connected"
		}
		if !x.Since.IsZero() {
			text += " since " + clock(x.Since)
		}
		if x.Error != "" {
			text += "; last error: " + x.Error
		}
		t.wrap("  xDS server "+sanitize.Text(x.URI, full.name)+":", text)
	}
	if !s.Watched.IsZero() {
		t.wrap("  RPCs by endpoint:", "counted since "+clock(s.Watched))
	}
}

func (t *Text) route(r *report.RouteStatus) {
	head := fmt.Sprintf("  route %d:", r.Index)
	if r.Name != "" && t.Full {
		head = fmt.Sprintf("  route %d %q:", r.Index, t.name(r.Name, 0))
	}
	t.wrap(head, report.Match(r)+" -> "+report.Destinations(r))
	if t.Full {
		for _, action := range report.Actions(r) {
			t.wrap("   ", action)
		}
	}
}

// clusterView is a cluster with the endpoints that the filter selects.
type clusterView struct {
	*report.ClusterStatus
	endpoints  []report.Located
	ok, failed uint64 // RPCs at all endpoints
}

// clusters returns the clusters that the filter selects, those with the worst problems first.
func (t *Text) clusters(s *report.TargetStatus) (list []clusterView) {
	for i := range s.Clusters {
		v := clusterView{ClusterStatus: &s.Clusters[i]}
		named := strings.Contains(v.Name, t.Filter)
		for e := range report.Endpoints(v.ClusterStatus) {
			ok, failed := t.Calls(s, v.ClusterStatus, &e)
			v.ok, v.failed = v.ok+ok, v.failed+failed
			if named || strings.Contains(e.Address, t.Filter) || strings.Contains(e.Hostname, t.Filter) {
				v.endpoints = append(v.endpoints, e)
			}
		}
		if named || v.endpoints != nil {
			list = append(list, v)
		}
	}
	slices.SortStableFunc(list, func(a, b clusterView) int { return b.severity() - a.severity() })
	return list
}

// severity orders clusters: those whose RPCs fail, those that failed over, and those with endpoints
// or RPCs that failed.
func (v *clusterView) severity() int {
	active := report.Active(v.ClusterStatus)
	switch {
	case v.State == "TRANSIENT_FAILURE":
		return 3
	case v.Priority > 0:
		return 2
	case active.Failed+active.Ejected > 0 || v.failed > 0:
		return 1
	}
	return 0
}

// cluster writes a cluster, with at most limit endpoints.
func (t *Text) cluster(s *report.TargetStatus, v *clusterView, limit int) {
	text := ""
	since := t.since
	if since.IsZero() {
		since = s.Watched
	}
	if d := t.Now.Sub(since); !since.IsZero() && d > 0 && s.Connectivity != "" {
		text = fmt.Sprintf(", %.0f RPCs/s", float64(v.ok+v.failed)/d.Seconds())
	}
	if v.failed > 0 {
		text += fmt.Sprintf(", %d failed", v.failed)
	}
	t.Line("  cluster %s  %s%s", t.name(v.Name, 50), v.State, text)
	if t.Full && v.Error != "" {
		t.wrap("    error:", v.Error)
	}
	for i := range v.Leaves {
		l := &v.Leaves[i]
		if len(v.Leaves) > 1 {
			t.wrap("    leaf:", l.Name)
		}
		for name, value := range report.Facts(l) {
			t.wrap("    "+name+":", value)
		}
		first(t, l.Priorities, t.limits().priorities, "priorities", t.priority)
	}
	if v.Zones != nil {
		t.wrap("    zones:", report.Zones(v.Zones))
	}
	if len(v.endpoints) > limit {
		slices.SortStableFunc(v.endpoints, func(a, b report.Located) int { return cmp.Compare(t.rank(s, v, &a), t.rank(s, v, &b)) })
	}
	var locality *report.LocalityStatus
	first(t, v.endpoints, limit, "endpoints", func(e *report.Located) {
		if e.Locality != locality {
			locality = e.Locality
			t.locality(e)
		}
		t.endpoint(s, v, e)
	})
}

// rank orders the endpoints of a cluster that does not show all: first those with failed RPCs, and
// those of the active priority that get no RPCs.
func (t *Text) rank(s *report.TargetStatus, v *clusterView, e *report.Located) int {
	if _, failed := t.Calls(s, v.ClusterStatus, e); failed > 0 || e.Priority.InUse && e.Out != "" {
		return 0
	}
	return 1
}

func (t *Text) priority(p *report.PriorityStatus) {
	if p.Phase == "" { // only the resource is known
		t.Line("    priority %d: %s, %d draining", p.Priority, report.Count(p.Endpoints.Total, "endpoint"), p.Endpoints.Draining)
		return
	}
	mark, reason := " ", ""
	if p.InUse {
		mark = "*"
	}
	if t.Full && p.Reason != "" {
		reason = "; " + sanitize.Text(p.Reason, maxText)
	}
	t.Line("   %spriority %d %s: %s%s", mark, p.Priority, p.Phase, report.Counts(&p.Endpoints), reason)
}

// locality writes the head of the rows of a locality's endpoints.
func (t *Text) locality(e *report.Located) {
	l, more := e.Locality, ""
	if e.Priority.Phase != "" {
		more = fmt.Sprintf(" observed %6s %4s", "OK", "fail")
	}
	if t.Full {
		more += fmt.Sprintf("  priority %d, locality weight %d: %s of the cluster", e.Priority.Priority, l.Weight, report.Percent(l.Share))
		if l.Child != "" {
			more += "; child policy " + sanitize.Text(l.Child, full.name)
		}
	}
	t.Line("    %-39s weight expected%s", t.name(report.Place(l.Region, l.Zone, l.SubZone), 39), more)
}

// endpoint writes the row of an endpoint.
func (t *Text) endpoint(s *report.TargetStatus, v *clusterView, e *report.Located) {
	address, more := t.name(e.Address, Columns-4), ""
	if utf8.RuneCountInString(address) > 21 {
		t.Line("    %s", address)
		address = ""
	}
	if e.Priority.Phase != "" {
		ok, failed := t.Calls(s, v.ClusterStatus, e)
		share := "–"
		if all := v.ok + v.failed; all > 0 {
			share = report.Percent(float64(ok+failed) / float64(all))
		}
		more = fmt.Sprintf(" %8s %6d %4d", share, ok, failed)
	}
	if notes := e.Notes(); t.Full && notes != nil {
		more += "  " + sanitize.Text(strings.Join(notes, "; "), maxText)
	}
	t.Line("    %-21s %-17s %6d %8s%s", address, sanitize.Text(report.Condition(e.EndpointStatus), 17), e.Weight, report.Percent(e.Share), more)
	if !t.Full && e.Out != "" && e.Priority.InUse && e.State == "READY" && !e.Draining {
		t.wrap("     ", e.Out)
	}
}

func (t *Text) resource(r *report.ResourceStatus) {
	more := ""
	if t.Full && !r.Updated.IsZero() {
		more = "  received " + r.Updated.UTC().Format(time.RFC3339) + " from " + t.name(r.Server, 0)
	}
	t.Line("  %-22s %-14s version %-12s %s%s", r.Type, r.State, t.name(r.Version, 12), t.name(r.Name, 40), more)
	if r.Error != "" {
		t.wrap("     ", r.Error)
	}
	if t.Full && r.Refused != "" {
		t.wrap("     ", "version "+r.Refused+" was rejected")
	}
	if t.Full {
		for _, p := range r.Patches {
			t.wrap("     ", "changed by "+p)
		}
	}
}
