// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
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

// How many rows of each table the page shows.
const (
	maxChannels  = 200
	maxClusters  = 100
	maxRoutes    = 100
	maxResources = 100
	maxEvents    = 128
	maxItems     = 8 // of a list within a row
	maxTroubles  = 20
	maxOpen      = 6 // clusters whose endpoints are shown, if none is chosen
)

// page is what the template shows.
type page struct {
	Time     time.Time
	Process  Process
	Error    string // of the request
	Channels []channelRow
	More     int // channels that are not listed
	Channel  *channelView
	JSON     template.URL
	Refresh  int // seconds; 0 is off
	Toggle   template.URL
}

// channelRow is a row of the table of channels.
type channelRow struct {
	report.TargetStatus
	Link    template.URL
	Current bool
	Bad     int
	Mild    int
	Ready   int // of the priorities in use
	Total   int
}

// channelView is a channel with everything.
type channelView struct {
	*report.TargetStatus
	Since, Received, Watched string // how long ago
	Trouble                  []diagnosis.Finding
	MoreTrouble              int
	Table                    []routeRow
	RoutePages               *pager
	Rows                     []clusterRow // all clusters, in short
	ClusterPages             *pager
	Open                     []*clusterView // those that are shown with their endpoints
	AllLink                  template.URL   // to all clusters, if one is chosen
	Resources                []resourceRow
	ResourcePages            *pager
	Log                      []eventRow // newest first
	Explain                  explainView
}

type routeRow struct {
	report.RouteStatus
	Targets []routeTarget
	More    int // targets that are not listed
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
	Ready, Total     int // of the priority in use
	Ejected, Failed  int
	Priorities       int
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

// explainView is the form that explains an RPC, and its answer.
type explainView struct {
	Method, Headers string
	Text, Error     string
	JSON            template.URL
	Cut             bool
}

// pager leads through the pieces of a table.
type pager struct {
	First, Last, Total int
	Previous, Next     template.URL // empty at the ends
	What               string
}

// page returns what to show, and the status code.
func (h *handler) page(r *http.Request) (*page, int) {
	q := r.URL.Query()
	p := &page{Time: h.now(), Process: h.process, JSON: link(nil, "format", "json")}
	p.setRefresh(q)
	all := integrate.Channels()
	chosen, err := channels(r)
	if err != nil {
		p.Error = err.Error()
	}
	for i, c := range all {
		if i == maxChannels {
			p.More = len(all) - i
			break
		}
		p.Channels = append(p.Channels, newChannelRow(c.Status()))
	}
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

// setRefresh reads how often the page loads itself anew: not unless it is asked to.
func (p *page) setRefresh(q url.Values) {
	if n, err := strconv.Atoi(q.Get("refresh")); err == nil && n > 0 {
		p.Refresh = min(max(n, 2), 3600)
		p.Toggle = link(q, "refresh", "")
	} else {
		p.Toggle = link(q, "refresh", "5")
	}
}

func newChannelRow(s report.TargetStatus) channelRow {
	row := channelRow{TargetStatus: s, Link: link(nil, "channel", strconv.FormatInt(s.Channel, 10))}
	for _, t := range diagnosis.Find(&s) {
		if t.Error {
			row.Bad++
		} else {
			row.Mild++
		}
	}
	for i := range s.Clusters {
		c := newClusterRow(s.Clusters[i], "")
		row.Ready, row.Total = row.Ready+c.Ready, row.Total+c.Total
	}
	return row
}

// newChannelView returns what to show of a channel.
func newChannelView(s *report.TargetStatus, q url.Values) *channelView {
	v := &channelView{
		TargetStatus: s, Since: ago(s.Time, s.Since), Received: ago(s.Time, s.Received), Watched: s.Time.Sub(s.Watched).Round(time.Second).String(),
		Trouble: diagnosis.Find(s),
	}
	if n := len(v.Trouble); n > maxTroubles {
		v.Trouble, v.MoreTrouble = v.Trouble[:maxTroubles], n-maxTroubles
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

// keep returns the parameters that links within a channel's page keep.
func keep(q url.Values, channel int64) url.Values {
	kept := url.Values{"channel": {strconv.FormatInt(channel, 10)}}
	for _, name := range []string{"cluster", "state", "q", "refresh", "cp", "ep", "tp", "rp"} {
		if v := q.Get(name); v != "" && len(v) <= maxName {
			kept.Set(name, v)
		}
	}
	return kept
}

// span is a piece of a table.
type span struct{ first, last int }

// pieces returns the piece of n rows that a parameter asks for, and sets the pager if there
// are several.
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
	for _, r := range v.RouteTable[s.first:s.last] {
		row := routeRow{RouteStatus: r}
		if n := len(r.Conditions); n > maxItems {
			row.Conditions = append(slices.Clone(r.Conditions[:maxItems]), fmt.Sprintf("and %d more", n-maxItems))
		}
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

// clusterKey is what a link calls a cluster: its name, if that is not long and shows.
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

// addClusters adds the table of clusters, and those that are open: the one that is chosen,
// or the first few, those with trouble first.
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
	row := clusterRow{ClusterStatus: c, Link: to}
	var policies []string
	for i := range c.Leaves {
		l := &c.Leaves[i]
		if policy := policyText(l.Policy); !slices.Contains(policies, policy) {
			policies = append(policies, policy)
		}
		row.InFlight, row.Refused = row.InFlight+l.InFlight, row.Refused+l.Rejected
		for _, d := range l.Drops {
			row.Dropped += d.Dropped
		}
		for _, p := range l.Priorities {
			row.Priorities++
			if !p.InUse {
				continue
			}
			row.Total += p.Endpoints.Total
			row.Ready += p.Endpoints.Ready
			row.Ejected += p.Endpoints.Ejected
			row.Failed += p.Endpoints.Failed
		}
	}
	switch {
	case c.Priority < 0:
		row.PriorityText = "none"
	case row.Priorities > 1:
		row.PriorityText = fmt.Sprintf("%d, of 0 to %d", c.Priority, row.Priorities-1)
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

// words makes "ConfigurationApplied" read "configuration applied".
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

// maxExplanation is how long the text of an explanation is that the page shows, in bytes.
const maxExplanation = 200_000

// maxInput is how long the fields of the form may be.
const maxInput = 4000

// explain answers the form.
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
