// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// Maximum numbers of rows of each table.
const (
	maxChannels  = 200
	maxClusters  = 100
	maxRoutes    = 100
	maxResources = 100
	maxEvents    = 128
	maxItems     = 8 // in a list within a row
	maxFindings  = 20
	maxOpen      = 6 // clusters that show their endpoints if the user selects no cluster
)

// page is the data of the template.
type page struct {
	Time     time.Time
	Process  Process
	Error    string // of the request
	Channels []channelRow
	Pages    *pager
	Total    int // channels
	Failing  int // channels with errors
	Channel  *channelView
	JSON     template.URL
	Refresh  int // seconds; 0 is off
	Toggle   template.URL
}

// channelRow is a row of the table of channels.
type channelRow struct {
	integrate.TargetStatus
	Link    template.URL
	Current bool
	Errors  int
	Notes   int
	Active  report.EndpointCounts // of the active priorities
}

// channelView is a channel in detail.
type channelView struct {
	*integrate.TargetStatus
	Since, Received, Watched string // how long ago
	Findings                 []diagnosis.Finding
	MoreFindings             int
	Table                    []routeRow
	RoutePages               *pager
	Rows                     []clusterRow // all clusters
	ClusterPages             *pager
	Open                     []*clusterView // clusters that show their endpoints
	AllLink                  template.URL   // to all clusters, if one is selected
	Resources                []resourceRow
	ResourcePages            *pager
	Log                      []eventRow // newest first
	Explain                  explainView
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

type clusterRow struct {
	report.ClusterStatus
	Link             template.URL
	Current          bool
	Policies         string
	Active           report.EndpointCounts // of the active priorities
	PriorityText     string
	InFlight         int64
	Dropped, Refused uint64
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

// explainView is the form that explains an RPC, and its result.
type explainView struct {
	Method, Headers string
	Text, Error     string
	JSON            template.URL
	Cut             bool
}

// pager has the links between the pages of a table.
type pager struct {
	First, Last, Total int
	Previous, Next     template.URL // empty at the ends
	What               string
}

// page returns the data of the template, and the status code.
func (h *handler) page(r *http.Request) (*page, int) {
	q := r.URL.Query()
	p := &page{Time: h.now(), Process: h.process, JSON: link(nil, "format", "json")}
	p.setRefresh(q)
	chosen, err := channels(r)
	if err != nil {
		p.Error = err.Error()
	}
	p.addChannels(q)
	if len(chosen) == 1 {
		s := chosen[0].Inspect()
		for i := range p.Channels {
			p.Channels[i].Current = p.Channels[i].Channel == s.Channel
		}
		p.Channel = newChannelView(&s, q)
		p.Channel.explain(r, chosen[0])
		p.JSON = link(nil, "format", "json", "channel", strconv.FormatInt(s.Channel, 10))
	}
	if err != nil {
		return p, http.StatusNotFound
	}
	return p, http.StatusOK
}

// addChannels adds the table of channels, with the channels with the most errors first.
func (p *page) addChannels(q url.Values) {
	var rows []channelRow
	for _, c := range integrate.Channels() {
		rows = append(rows, newChannelRow(c.Status()))
	}
	slices.SortStableFunc(rows, func(a, b channelRow) int { return cmp.Or(b.Errors-a.Errors, b.Notes-a.Notes) })
	p.Total = len(rows)
	for i := range rows {
		if rows[i].Errors > 0 {
			p.Failing++
		}
	}
	s := pieces(len(rows), maxChannels, "np", "channel", q, &p.Pages)
	p.Channels = rows[s.first:s.last]
}

// setRefresh reads the interval of automatic reloads, which are off by default.
func (p *page) setRefresh(q url.Values) {
	if n, err := strconv.Atoi(q.Get("refresh")); err == nil && n > 0 {
		p.Refresh = min(max(n, 2), 3600)
		p.Toggle = link(q, "refresh", "")
	} else {
		p.Toggle = link(q, "refresh", "5")
	}
}

func newChannelRow(s integrate.TargetStatus) channelRow {
	row := channelRow{TargetStatus: s, Link: link(nil, "channel", strconv.FormatInt(s.Channel, 10))}
	row.Errors, row.Notes = diagnosis.Count(diagnosis.Find(&s))
	for i := range s.Clusters {
		n := report.Active(&s.Clusters[i])
		row.Active.Ready, row.Active.Total = row.Active.Ready+n.Ready, row.Active.Total+n.Total
	}
	return row
}

// newChannelView returns a channel in detail.
func newChannelView(s *integrate.TargetStatus, q url.Values) *channelView {
	v := &channelView{
		TargetStatus: s, Since: ago(s.Time, s.Since), Received: ago(s.Time, s.Received), Watched: s.Time.Sub(s.Watched).Round(time.Second).String(),
		Findings: diagnosis.Find(s),
	}
	if n := len(v.Findings); n > maxFindings {
		v.Findings, v.MoreFindings = v.Findings[:maxFindings], n-maxFindings
	}
	q = keep(q, s.Channel)
	v.addRoutes(q)
	v.addClusters(q)
	resources := pieces(len(s.Resources), maxResources, "rp", "resource", q, &v.ResourcePages)
	for _, r := range s.Resources[resources.first:resources.last] {
		v.Resources = append(v.Resources, resourceRow{r, ago(s.Time, r.Updated)})
	}
	for _, e := range slices.Backward(s.Events) {
		v.Log = append(v.Log, newEventRow(e))
	}
	return v
}

// keep returns the parameters that links within the page of a channel preserve.
func keep(q url.Values, channel int64) url.Values {
	kept := url.Values{"channel": {strconv.FormatInt(channel, 10)}}
	for _, name := range []string{"cluster", "state", "q", "refresh", "np", "cp", "ep", "tp", "rp"} {
		if v := q.Get(name); v != "" && len(v) <= maxName {
			kept.Set(name, v)
		}
	}
	return kept
}

// span is a page of a table.
type span struct{ first, last int }

// pieces returns the page of n rows that a parameter selects, and sets the pager if there are
// several.
func pieces(n, size int, parameter, what string, q url.Values, p **pager) span {
	at, err := strconv.Atoi(q.Get(parameter))
	if at = min(max(at-1, 0), max(n-1, 0)/size); err != nil {
		at = 0
	}
	s := span{at * size, min((at+1)*size, n)}
	if n > size {
		*p = &pager{First: s.first + 1, Last: s.last, Total: n, What: what}
		if at > 0 {
			(*p).Previous = link(q, parameter, strconv.Itoa(at))
		}
		if s.last < n {
			(*p).Next = link(q, parameter, strconv.Itoa(at+2))
		}
	}
	return s
}

func (v *channelView) addRoutes(q url.Values) {
	s := pieces(len(v.RouteTable), maxRoutes, "tp", "route", q, &v.RoutePages)
	for i := s.first; i < s.last; i++ {
		r := &v.RouteTable[i]
		row := routeRow{RouteStatus: r, Match: report.Match(r), Actions: report.Actions(r)}
		for i, c := range r.Clusters {
			if i == maxItems {
				row.More = len(r.Clusters) - i
				break
			}
			row.Targets = append(row.Targets, routeTarget{c.Cluster, c.Share, clusterLink(q, c.Cluster)})
		}
		v.Table = append(v.Table, row)
	}
}

// clusterKey identifies a cluster in links: its name, or a hash if the name is long or has
// characters that do not show.
func clusterKey(name string) string {
	if len(name) <= maxName && sanitize.Text(name, 0) == name {
		return name
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return fmt.Sprintf("fnv:%x", h.Sum64())
}

func clusterLink(q url.Values, name string) template.URL {
	return link(q, "cluster", clusterKey(name), "ep", "", "state", "", "q", "") + "#clusters"
}

// addClusters adds the table of clusters, and the open clusters: the selected one, or the first
// few, failing ones first.
func (v *channelView) addClusters(q url.Values) {
	chosen := q.Get("cluster")
	s := pieces(len(v.Clusters), maxClusters, "cp", "cluster", q, &v.ClusterPages)
	for _, c := range v.Clusters[s.first:s.last] {
		row := newClusterRow(c, clusterLink(q, c.Name))
		row.Current = clusterKey(c.Name) == chosen
		v.Rows = append(v.Rows, row)
	}
	var open []*report.ClusterStatus
	for i := range v.Clusters {
		if c := &v.Clusters[i]; chosen == "" || clusterKey(c.Name) == chosen {
			open = append(open, c)
		}
	}
	if chosen != "" {
		v.AllLink = link(q, "cluster", "", "ep", "", "state", "", "q", "") + "#clusters"
	}
	slices.SortStableFunc(open, func(a, b *report.ClusterStatus) int { return severity(b) - severity(a) })
	open = open[:min(len(open), maxOpen)]
	size := maxAlone
	if len(open) > 1 {
		size = maxTogether
	}
	for _, c := range open {
		v.Open = append(v.Open, newClusterView(v.TargetStatus, c, q, size))
	}
}

func severity(c *report.ClusterStatus) int {
	switch {
	case c.State == "TRANSIENT_FAILURE":
		return 2
	case c.Priority > 0:
		return 1
	}
	return 0
}

func newClusterRow(c report.ClusterStatus, to template.URL) clusterRow {
	row := clusterRow{ClusterStatus: c, Link: to, Active: report.Active(&c)}
	var policies []string
	priorities := 0
	for i := range c.Leaves {
		l := &c.Leaves[i]
		if policy := report.PolicyName(l.Policy); !slices.Contains(policies, policy) {
			policies = append(policies, policy)
		}
		row.InFlight, row.Refused = row.InFlight+l.InFlight, row.Refused+l.Rejected
		for _, d := range l.Drops {
			row.Dropped += d.Dropped
		}
		priorities += len(l.Priorities)
	}
	switch {
	case c.Priority < 0:
		row.PriorityText = "none"
	case priorities > 1:
		row.PriorityText = fmt.Sprintf("%d, of 0 to %d", c.Priority, priorities-1)
	default:
		row.PriorityText = strconv.Itoa(c.Priority)
	}
	row.Policies = strings.Join(policies[:min(len(policies), maxItems)], ", ")
	return row
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
