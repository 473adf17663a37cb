// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/report"
)

// Maximum numbers of endpoints that the page shows of a cluster, if it shows one or several.
const (
	maxAlone    = 200
	maxTogether = 50
	maxTiers    = 100 // priorities
)

// clusterView is a cluster with its endpoints.
type clusterView struct {
	*report.ClusterStatus
	Total      int
	Facts      []report.Fact
	Tiers      []tier
	TiersTable tableView
	Rows       []*endpointRow
	Table      tableView
	Form       *form
	Grouped    bool // Rows are in the order of priorities and localities
	Matching   int
	Calls      uint64  // RPCs counted at all endpoints
	Longest    float64 // largest share in Rows, the scale of the bars
	Watched    string  // duration of counting
}

// tier is a priority.
type tier struct {
	*report.PriorityStatus
	Leaf    string // empty unless there are several
	Meaning string // of the phase
}

// endpointRow is an endpoint.
type endpointRow struct {
	report.Located
	Leaf      string // empty unless there are several
	Head      bool   // the first row of its locality
	Calls     uint64
	Observed  float64
	Condition string
	Notes     string
}

var (
	tierTable = table[tier]{name: "tier", noun: "priority", columns: []column[tier]{
		{title: "Priority"}, {title: "Active"}, {title: "Phase", bare: true}, {title: "READY", number: true}, {title: "Connecting", number: true},
		{title: "Idle", number: true}, {title: "Failed", number: true}, {title: "Ejected", number: true}, {title: "Draining", number: true},
	}}
	endpointTable = table[*endpointRow]{name: "endpoint", noun: "endpoint", section: "clusters", columns: []column[*endpointRow]{
		{title: "Endpoint", key: "address", bare: true, compare: func(a, b *endpointRow) int { return strings.Compare(a.Address, b.Address) }},
		{title: "State", key: "state", bare: true, compare: func(a, b *endpointRow) int { return strings.Compare(a.Condition, b.Condition) }},
		{title: "Weight", key: "weight", number: true, compare: func(a, b *endpointRow) int { return cmp.Compare(b.Weight, a.Weight) }},
		{title: "Expected", key: "expected", number: true, compare: func(a, b *endpointRow) int { return cmp.Compare(b.Share, a.Share) }},
		{title: "Observed", number: true},
		{title: "Shares", bare: true},
		{title: "RPCs", key: "rpcs", number: true, compare: func(a, b *endpointRow) int { return cmp.Compare(b.Calls, a.Calls) }},
		{title: "Failed", key: "failed", number: true, compare: func(a, b *endpointRow) int { return cmp.Compare(b.FailedRPCs, a.FailedRPCs) }},
		{title: "Notes", bare: true},
	}}
)

// endpointFilters select the endpoints to show.
var endpointFilters = []option{
	{"", "all"}, {"failed", "with failed RPCs"}, {"out", "that get no RPCs"}, {"READY", "READY"}, {"CONNECTING", "CONNECTING"}, {"IDLE", "IDLE"}, {"TRANSIENT_FAILURE", "TRANSIENT_FAILURE"},
	{"EJECTED", "EJECTED"}, {"DRAINING", "DRAINING"},
}

// Place returns the name of the endpoint's locality.
func (r *endpointRow) Place() string {
	l := r.Locality
	return report.Place(l.Region, l.Zone, l.SubZone)
}

// phases explains the phases of a priority.
var phases = map[string]string{
	"dormant": "not needed, not connected",
	"trying":  "connecting, within the failover timeout",
	"serving": "can serve",
	"failed":  "unreachable, or not connected in time",
	"retired": "no longer needed, still connected",
}

// newClusterView returns a cluster with at most size of its endpoints.
func newClusterView(s *integrate.TargetStatus, c *report.ClusterStatus, q url.Values, size int) *clusterView {
	q = with(q, "cluster", clusterKey(c.Name))
	v := &clusterView{ClusterStatus: c, Watched: s.Time.Sub(s.Watched).Round(time.Second).String(), Grouped: q.Get("endpointsort") == ""}
	v.addLeaves(q)
	filter, text := q.Get("state"), q.Get("q")
	var rows []*endpointRow
	for e := range report.Endpoints(c) {
		row := &endpointRow{Located: e, Calls: e.OK + e.FailedRPCs, Condition: report.Condition(e.EndpointStatus)}
		v.Calls += row.Calls
		if row.matches(filter) && (strings.Contains(row.Address, text) || strings.Contains(row.Hostname, text)) {
			rows = append(rows, row)
		}
	}
	if v.Matching = len(rows); v.Total > minFilter || filter != "" || text != "" {
		v.Form = &form{
			Hidden: hidden(q, "state", "q", "endpointpage"), Action: "#clusters", List: field{"state", filter}, Text: field{"q", text},
			Label: "Endpoints", Query: "Address or hostname contains", Options: endpointFilters,
		}
	}
	v.Rows, v.Table = endpointTable.arrange(rows, size, q)
	for i, r := range v.Rows {
		r.Head = v.Grouped && (i == 0 || r.Locality != v.Rows[i-1].Locality)
		r.Notes = strings.Join(r.Located.Notes(), "; ")
		if r.Leaf = r.Located.Leaf.Name; len(c.Leaves) == 1 {
			r.Leaf = ""
		}
		if v.Calls > 0 {
			r.Observed = float64(r.Calls) / float64(v.Calls)
		}
		v.Longest = max(v.Longest, r.Share, r.Observed)
	}
	return v
}

// addLeaves adds the properties and the priorities of the leaves.
func (v *clusterView) addLeaves(q url.Values) {
	leaf := ""
	for i := range v.Leaves {
		l := &v.Leaves[i]
		if len(v.Leaves) > 1 {
			leaf = l.Name
			v.Facts = append(v.Facts, report.Fact{Name: "leaf", Value: leaf})
		}
		v.Facts = append(v.Facts, report.Facts(l)...)
		for k := range l.Priorities {
			p := &l.Priorities[k]
			v.Total += p.Endpoints.Total
			v.Tiers = append(v.Tiers, tier{p, leaf, phases[p.Phase]})
		}
	}
	if v.Zones != nil {
		v.Facts = append(v.Facts, report.Fact{Name: "zones", Value: report.Zones(v.Zones)})
	}
	v.Tiers, v.TiersTable = tierTable.arrange(v.Tiers, maxTiers, q)
}

// matches reports whether a filter accepts the endpoint.
func (r *endpointRow) matches(filter string) bool {
	switch filter {
	case "out":
		return r.Out != ""
	case "failed":
		return r.FailedRPCs > 0
	}
	return filter == "" || filter == r.Condition
}
