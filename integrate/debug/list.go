// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/report"
)

const maxChannels = 200 // rows of the table of channels

// page is the data of the template.
type page struct {
	Time    time.Time
	Process process
	Error   string // of the request
	Total   int    // channels
	Failing int    // channels with errors
	All     template.URL
	JSON    template.URL
	Refresh int // seconds; 0 is off
	Toggle  template.URL
	Channel *channelView // nil if the page lists the channels
	// Uncounted leads to the page of the channel with all its data; empty if this is it.
	Uncounted template.URL

	Channels []*channelRow
	Table    tableView
	Form     *form
	Matching int // channels that the filter accepts
}

// channelRow is a row of the table of channels.
type channelRow struct {
	integrate.TargetStatus
	Link     template.URL
	Errors   int
	Notes    int
	Active   report.EndpointCounts // of the active priorities
	InFlight int64
}

var channelTable = table[*channelRow]{name: "channel", noun: "channel", columns: []column[*channelRow]{
	{title: "No.", key: "number", bare: true, compare: func(a, b *channelRow) int { return cmp.Compare(a.Channel, b.Channel) }},
	{title: "Target", key: "target", bare: true, compare: func(a, b *channelRow) int { return strings.Compare(a.Target, b.Target) }},
	{title: "State", key: "state", bare: true, compare: func(a, b *channelRow) int { return strings.Compare(a.Connectivity, b.Connectivity) }},
	{title: "Problems", key: "problems", compare: moreProblems},
	{title: "Routes", number: true},
	{title: "Clusters", number: true},
	{title: "READY", key: "unready", number: true, compare: func(a, b *channelRow) int { return cmp.Compare(b.unready(), a.unready()) }},
	{title: "In flight", key: "inflight", number: true, compare: func(a, b *channelRow) int { return cmp.Compare(b.InFlight, a.InFlight) }},
}}

func moreProblems(a, b *channelRow) int { return cmp.Or(b.Errors-a.Errors, b.Notes-a.Notes) }

func (r *channelRow) unready() int { return r.Active.Total - r.Active.Ready }

// channelFilters select the channels to show.
var channelFilters = []option{
	{"", "all"}, {"errors", "with errors"}, {"problems", "with errors or notes"}, {"READY", "READY"}, {"CONNECTING", "CONNECTING"},
	{"TRANSIENT_FAILURE", "TRANSIENT_FAILURE"}, {"stock", "that use google.golang.org/grpc/xds"},
}

// page returns the data of the template, and the status code.
func (h *handler) page(r *http.Request) (*page, int) {
	q := keep(r.URL.Query())
	p := &page{Time: h.now(), Process: h.process, JSON: link(nil, "format", "json")}
	p.setRefresh(q)
	chosen, err := channels(r)
	if err != nil {
		p.Error = err.Error()
		q.Del("channel")
	}
	rows := p.count(q)
	if len(chosen) == 1 {
		inspect := chosen[0].Inspect
		if !ownSite(r) {
			inspect = chosen[0].Status
		}
		s := inspect()
		number := strconv.FormatInt(s.Channel, 10)
		q.Set("channel", number)
		if !ownSite(r) {
			p.Uncounted = link(q)
		}
		p.Channel = newChannelView(&s, q)
		p.Channel.explain(r, chosen[0])
		p.JSON = link(nil, "format", "json", "channel", number)
		if p.Total > 1 {
			p.All = link(list(q))
		}
	} else {
		p.addChannels(rows, q)
	}
	if err != nil {
		return p, http.StatusNotFound
	}
	return p, http.StatusOK
}

// list returns the parameters of the list of channels among those of a channel.
func list(q url.Values) url.Values {
	l := url.Values{}
	for _, name := range []string{"refresh", "show", "text", "channelsort", "channelpage"} {
		if v := q.Get(name); v != "" {
			l.Set(name, v)
		}
	}
	return l
}

// count returns a row for each channel, those with the most errors first, and counts them.
func (p *page) count(q url.Values) (rows []*channelRow) {
	for _, c := range integrate.Channels() {
		rows = append(rows, newChannelRow(c.Status(), q))
	}
	slices.SortStableFunc(rows, moreProblems)
	p.Total = len(rows)
	for _, r := range rows {
		if r.Errors > 0 {
			p.Failing++
		}
	}
	return rows
}

// addChannels adds the table of channels.
func (p *page) addChannels(rows []*channelRow, q url.Values) {
	show, text := q.Get("show"), q.Get("text")
	rows = slices.DeleteFunc(rows, func(r *channelRow) bool { return !r.matches(show) || !strings.Contains(r.Target, text) })
	if p.Matching = len(rows); p.Total > minFilter || show != "" || text != "" {
		p.Form = &form{
			Hidden: hidden(q, "show", "text", "channelpage"), List: field{"show", show}, Text: field{"text", text},
			Label: "Channels", Query: "Target contains", Options: channelFilters,
		}
	}
	p.Channels, p.Table = channelTable.arrange(rows, maxChannels, q)
}

// matches reports whether a filter accepts the channel.
func (r *channelRow) matches(filter string) bool {
	switch filter {
	case "errors":
		return r.Errors > 0
	case "problems":
		return r.Errors+r.Notes > 0
	case "stock":
		return r.Stock != ""
	}
	return filter == "" || filter == r.Connectivity
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

func newChannelRow(s integrate.TargetStatus, q url.Values) *channelRow {
	row := &channelRow{TargetStatus: s, Link: link(q, "channel", strconv.FormatInt(s.Channel, 10))}
	row.Errors, row.Notes = diagnosis.Count(diagnosis.Find(&s))
	for i := range s.Clusters {
		n := report.Active(&s.Clusters[i])
		row.Active.Ready, row.Active.Total = row.Active.Ready+n.Ready, row.Active.Total+n.Total
		for k := range s.Clusters[i].Leaves {
			row.InFlight += s.Clusters[i].Leaves[k].InFlight
		}
	}
	return row
}
