// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/report"
)

const (
	maxClusters = 100 // rows of the table of clusters
	maxOpen     = 6   // clusters that show their endpoints if the user selects no cluster
)

// clustersView has the clusters of a channel.
type clustersView struct {
	Rows          []*clusterRow
	ClustersTable tableView
	Form          *form
	Open          []*clusterView // clusters that show their endpoints
	AllLink       template.URL   // to all clusters, if one is selected
}

type clusterRow struct {
	*report.ClusterStatus
	Link             template.URL
	Current          bool
	Policies         string
	Active           report.EndpointCounts // of the active priorities
	PriorityText     string
	Calls, Failed    uint64 // RPCs that ended at endpoints, while they are counted
	InFlight         int64
	Dropped, Refused uint64
}

var clusterTable = table[*clusterRow]{name: "cluster", noun: "cluster", section: "clusters", columns: []column[*clusterRow]{
	{title: "Cluster", key: "name", bare: true, compare: func(a, b *clusterRow) int { return strings.Compare(a.Name, b.Name) }},
	{title: "State", key: "state", bare: true, compare: func(a, b *clusterRow) int { return strings.Compare(a.State, b.State) }},
	{title: "Priority"},
	{title: "Policy"},
	{title: "READY", number: true},
	{title: "Unreachable", key: "unreachable", number: true, compare: func(a, b *clusterRow) int { return cmp.Compare(b.Active.Failed, a.Active.Failed) }},
	{title: "Ejected", key: "ejected", number: true, compare: func(a, b *clusterRow) int { return cmp.Compare(b.Active.Ejected, a.Active.Ejected) }},
	{title: "RPCs", key: "rpcs", number: true, compare: func(a, b *clusterRow) int { return cmp.Compare(b.Calls, a.Calls) }},
	{title: "Failed", key: "failed", number: true, compare: func(a, b *clusterRow) int { return cmp.Compare(b.Failed, a.Failed) }},
	{title: "In flight", key: "inflight", number: true, compare: func(a, b *clusterRow) int { return cmp.Compare(b.InFlight, a.InFlight) }},
	{title: "Dropped", key: "dropped", number: true, compare: func(a, b *clusterRow) int { return cmp.Compare(b.Dropped, a.Dropped) }},
	{title: "Rejected", key: "rejected", number: true, compare: func(a, b *clusterRow) int { return cmp.Compare(b.Refused, a.Refused) }},
}}

// clusterFilters select the clusters to show.
var clusterFilters = []option{
	{"", "all"}, {"problems", "with problems"}, {"READY", "READY"}, {"CONNECTING", "CONNECTING"}, {"IDLE", "IDLE"}, {"TRANSIENT_FAILURE", "TRANSIENT_FAILURE"},
}

// newClustersView returns the clusters of a channel, those with the worst problems first, and the
// endpoints of the selected cluster or of the first few clusters.
func newClustersView(s *integrate.TargetStatus, q url.Values) (v clustersView) {
	chosen, show, text := q.Get("cluster"), q.Get("clustershow"), q.Get("clustertext")
	var rows []*clusterRow
	for i := range s.Clusters {
		row := newClusterRow(&s.Clusters[i], q)
		if row.Current = clusterKey(row.Name) == chosen; row.Current {
			v.Open = append(v.Open, newClusterView(s, row.ClusterStatus, q, maxAlone))
		}
		if row.matches(show) && strings.Contains(row.Name, text) {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b *clusterRow) int { return b.severity() - a.severity() })
	if len(s.Clusters) > minFilter || show != "" || text != "" {
		v.Form = &form{
			Hidden: hidden(q, "clustershow", "clustertext", "clusterpage", "cluster", "state", "q", "endpointpage"), Action: "#clusters",
			List: field{"clustershow", show}, Text: field{"clustertext", text}, Label: "Clusters", Query: "Name contains", Options: clusterFilters,
		}
	}
	v.Rows, v.ClustersTable = clusterTable.arrange(rows, maxClusters, q)
	if chosen != "" {
		v.AllLink = link(q, "cluster", "", "endpointpage", "", "state", "", "q", "") + "#clusters"
		return v
	}
	open := v.Rows[:min(len(v.Rows), maxOpen)]
	size := maxAlone
	if len(open) > 1 {
		size = maxTogether
	}
	for _, row := range open {
		v.Open = append(v.Open, newClusterView(s, row.ClusterStatus, q, size))
	}
	return v
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
	return link(q, "cluster", clusterKey(name), "endpointpage", "", "state", "", "q", "") + "#clusters"
}

// severity orders clusters: those whose RPCs fail, those that failed over, and those with endpoints
// or RPCs that failed.
func (r *clusterRow) severity() int {
	switch {
	case r.State == "TRANSIENT_FAILURE":
		return 3
	case r.Priority > 0:
		return 2
	case r.Active.Failed+r.Active.Ejected > 0 || r.Failed > 0:
		return 1
	}
	return 0
}

// matches reports whether a filter accepts the cluster.
func (r *clusterRow) matches(filter string) bool {
	return filter == "" || filter == r.State || filter == "problems" && r.severity() > 0
}

func newClusterRow(c *report.ClusterStatus, q url.Values) *clusterRow {
	row := &clusterRow{ClusterStatus: c, Link: clusterLink(q, c.Name), Active: report.Active(c)}
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
	for e := range report.Endpoints(c) {
		row.Calls, row.Failed = row.Calls+e.OK+e.FailedRPCs, row.Failed+e.FailedRPCs
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
