// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// Maximum numbers of elements.
const (
	maxRoutes    = 100
	maxResources = 100
	maxEvents    = 128
	maxItems     = 8 // in a list within a row
	maxFindings  = 20
	maxShifts    = 20
	minFilter    = 10 // tables with more rows have a filter
)

// channelView is a channel in detail.
type channelView struct {
	*integrate.TargetStatus
	Since, Received string // how long ago
	Findings        []diagnosis.Finding
	MoreFindings    int
	Routing         []routeRow
	RoutesTable     tableView
	clustersView
	Origin         []resourceRow
	ResourcesTable tableView
	Log            []eventRow // newest first
	EventsTable    tableView
	Shifts         []report.ShareShift
	Explain        explainView
}

type routeRow struct {
	*report.RouteStatus
	Match   string
	Actions []string
	Targets []routeTarget
	More    int // further targets
}

type routeTarget struct {
	Name  string
	Share float64
	Link  template.URL
}

type resourceRow struct {
	report.ResourceStatus
	Age string
}

type eventRow struct {
	eventlog.Event
	Title string
	Bad   bool
}

var (
	routeTable = table[report.RouteStatus]{name: "route", noun: "route", section: "routes", columns: []column[report.RouteStatus]{
		{title: "No.", bare: true}, {title: "Matches"}, {title: "Clusters"}, {title: "Actions"},
	}}
	eventTable = table[eventRow]{name: "event", noun: "event", section: "events", columns: []column[eventRow]{
		{title: "Time", bare: true}, {title: "Event", bare: true}, {title: "Subject", bare: true}, {title: "Details", bare: true},
	}}
	resourceTable = table[report.ResourceStatus]{name: "resource", noun: "resource", section: "resources", columns: []column[report.ResourceStatus]{
		{title: "Type", bare: true}, {title: "Name", bare: true}, {title: "State", bare: true}, {title: "Version"}, {title: "Changed"}, {title: "Error"},
	}}
)

// explainView is the form that explains an RPC, and its result.
type explainView struct {
	Hidden          []field
	Method, Headers string
	Text, Error     string
	JSON            template.URL
	Cut             bool
}

// newChannelView returns a channel in detail.
func newChannelView(s *integrate.TargetStatus, q url.Values) *channelView {
	v := &channelView{
		TargetStatus: s, Since: ago(s.Time, s.Since), Received: ago(s.Time, s.Received),
		Findings: diagnosis.Find(s), clustersView: newClustersView(s, q), Explain: explainView{Hidden: hidden(q)},
	}
	if n := len(v.Findings); n > maxFindings {
		v.Findings, v.MoreFindings = v.Findings[:maxFindings], n-maxFindings
	}
	v.Shifts = s.ShareShifts[:min(len(s.ShareShifts), maxShifts)]
	v.addRoutes(q)
	var resources []report.ResourceStatus
	resources, v.ResourcesTable = resourceTable.arrange(s.Resources, maxResources, q)
	for _, r := range resources {
		v.Origin = append(v.Origin, resourceRow{r, ago(s.Time, r.Updated)})
	}
	for _, e := range slices.Backward(s.Events) {
		v.Log = append(v.Log, newEventRow(e))
	}
	v.Log, v.EventsTable = eventTable.arrange(v.Log, maxEvents, q)
	return v
}

func (v *channelView) addRoutes(q url.Values) {
	var routes []report.RouteStatus
	routes, v.RoutesTable = routeTable.arrange(v.TargetStatus.RouteTable, maxRoutes, q)
	for i := range routes {
		r := &routes[i]
		row := routeRow{RouteStatus: r, Match: report.Match(r), Actions: report.Actions(r)}
		for i, c := range r.Clusters {
			if i == maxItems {
				row.More = len(r.Clusters) - i
				break
			}
			row.Targets = append(row.Targets, routeTarget{c.Cluster, c.Share, clusterLink(q, c.Cluster)})
		}
		v.Routing = append(v.Routing, row)
	}
}

// newEventRow puts an event into columns.
func newEventRow(e eventlog.Event) eventRow {
	row := eventRow{Event: e, Title: words(string(e.Kind))}
	switch e.Kind {
	case "TargetFailed", "ClusterFailed", "Rejected", "EndpointEjected", "ConnectionLost", "ConnectionFailed":
		row.Bad = true
	}
	row.Bad = row.Bad || e.Error != ""
	return row
}

// words turns "ConfigurationApplied" into "configuration applied".
func words(kind string) string {
	var b strings.Builder
	for i, r := range kind {
		if r >= 'A' && r <= 'Z' && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strings.ToLower(string(r)))
	}
	return b.String()
}

// maxExplanation is the maximum length of the text of an explanation, in bytes.
const maxExplanation = 200_000

// maxInput is the maximum length of the form's fields.
const maxInput = 4000

// explain fills in the form and its result.
func (v *channelView) explain(r *http.Request, c integrate.Channel) {
	q := r.URL.Query()
	x := &v.Explain
	x.Method, x.Headers = sanitize.Text(q.Get("method"), maxInput), lines(clip(q.Get("headers"), maxInput))
	if x.Method == "" {
		return
	}
	answer, err := explain(r, c)
	if err != nil {
		x.Error = err.Error()
		return
	}
	text := answer.String()
	x.Cut = len(text) > maxExplanation
	x.Text = lines(clip(text, maxExplanation))
	x.JSON = link(nil, "format", "explain", "channel", strconv.FormatInt(v.Channel, 10), "method", clip(q.Get("method"), maxInput), "headers", clip(q.Get("headers"), maxInput))
}

// clip cuts a text between characters.
func clip(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return strings.ToValidUTF8(s[:max], "")
}
