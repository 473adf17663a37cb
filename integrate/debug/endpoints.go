// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/report"
)

// Maximum numbers of endpoints that the page shows of a cluster, if it shows one or several.
const (
	maxAlone    = 250
	maxTogether = 50
)

// clusterView is a cluster with its endpoints.
type clusterView struct {
	*report.ClusterStatus
	Key      string
	Channel  int64
	Total    int
	Facts    []report.Fact
	Tiers    []tier
	Rows     []endpointRow
	Pages    *pager
	Filter   string // a state, or another value of filters
	Query    string // a part of the address
	Matching int
	Calls    uint64  // RPCs counted at all endpoints
	Longest  float64 // largest share in Rows, the scale of the bars
	Watched  string  // duration of counting
	Refresh  string
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
	v := &clusterView{
		ClusterStatus: c, Key: clusterKey(c.Name), Channel: s.Channel, Filter: q.Get("state"), Query: q.Get("q"),
		Watched: s.Time.Sub(s.Watched).Round(time.Second).String(), Refresh: q.Get("refresh"),
	}
	leaf := ""
	for i := range c.Leaves {
		l := &c.Leaves[i]
		if len(c.Leaves) > 1 {
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
	if c.Zones != nil {
		v.Facts = append(v.Facts, report.Fact{Name: "zones", Value: report.Zones(c.Zones)})
	}
	var rows []endpointRow
	for e := range report.Endpoints(c) {
		row := endpointRow{Located: e, Calls: e.OK + e.FailedRPCs, Condition: report.Condition(e.EndpointStatus)}
		v.Calls += row.Calls
		if v.shows(&row) {
			rows = append(rows, row)
		}
	}
	v.Matching = len(rows)
	piece := pieces(len(rows), size, "ep", "endpoint", withCluster(q, v.Key), &v.Pages)
	v.Rows = rows[piece.first:piece.last]
	for i := range v.Rows {
		r := &v.Rows[i]
		r.Head = i == 0 || r.Locality != v.Rows[i-1].Locality
		r.Notes = strings.Join(r.Located.Notes(), "; ")
		if r.Leaf = r.Located.Leaf.Name; len(c.Leaves) == 1 {
			r.Leaf = ""
		}
		if v.Calls > 0 {
			r.Observed = float64(r.Calls) / float64(v.Calls)
		}
		v.Longest = max(v.Longest, r.Share, r.Observed)
	}
	v.Tiers = slices.Clip(v.Tiers[:min(len(v.Tiers), maxClusters)])
	return v
}

// shows reports whether the filter accepts an endpoint.
func (v *clusterView) shows(r *endpointRow) bool {
	accepted := v.Filter == "" || v.Filter == r.Condition || v.Filter == "out" && r.Out != "" || v.Filter == "failed" && r.FailedRPCs > 0
	return accepted && strings.Contains(r.Address+" "+r.Hostname, v.Query)
}

func withCluster(q url.Values, key string) url.Values {
	with := url.Values{"cluster": {key}}
	for k, v := range q {
		if k != "cluster" {
			with[k] = v
		}
	}
	return with
}
