// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate/report"
)

// How many endpoints of a cluster the page shows, if it shows one, or several.
const (
	maxAlone    = 250
	maxTogether = 50
)

// clusterView is a cluster with its endpoints.
type clusterView struct {
	*report.ClusterStatus
	Key      string
	Channel  int64
	Ready    int
	Total    int
	Facts    []fact
	Tiers    []tier
	Rows     []endpointRow
	Pages    *pager
	Filter   string // what is shown of the endpoints: a state
	Query    string // a part of the address
	Matching int
	Calls    uint64 // RPCs that were counted, of all endpoints
	Watched  string // for how long
	Refresh  string
	Alone    bool
}

// fact is a line of a description list.
type fact struct{ Name, Value string }

// tier is a priority.
type tier struct {
	report.PriorityStatus
	Leaf       string
	Meaning    string // of the phase
	Localities int
}

// endpointRow is an endpoint, or the head of a locality.
type endpointRow struct {
	*report.EndpointStatus
	Head     *localityHead // above the first endpoint of a locality
	Observed float64
	Calls    uint64
	Condition,
	Notes string
	Class string
}

// localityHead is what the endpoints below it have in common.
type localityHead struct {
	Place    string
	Priority int
	Weight   uint32
	Share    float64
	InUse    bool
	Leaf     string // of an aggregate
	Child    string
}

// phases say what the phases of a priority mean.
var phases = map[string]string{
	"dormant": "not needed, not connected",
	"trying":  "connecting, within the failover time",
	"serving": "can serve",
	"failed":  "cannot be reached, or not in time",
	"retired": "not needed any more, still connected",
}

// newClusterView returns a cluster with at most size of its endpoints.
func newClusterView(s *report.TargetStatus, c *report.ClusterStatus, q url.Values, size int) *clusterView {
	v := &clusterView{
		ClusterStatus: c, Key: clusterKey(c.Name), Channel: s.Channel, Filter: q.Get("state"), Query: q.Get("q"),
		Watched: s.Time.Sub(s.Watched).Round(time.Second).String(), Refresh: q.Get("refresh"), Alone: q.Get("cluster") != "",
	}
	var rows []endpointRow
	for i := range c.Leaves {
		l := &c.Leaves[i]
		v.Facts = append(v.Facts, leafFacts(l, len(c.Leaves) > 1)...)
		for k := range l.Priorities {
			p := &l.Priorities[k]
			v.Ready, v.Total = v.Ready+p.Endpoints.Ready, v.Total+p.Endpoints.Total
			t := tier{PriorityStatus: *p, Meaning: phases[p.Phase], Localities: len(p.Localities)}
			if len(c.Leaves) > 1 {
				t.Leaf = l.Name
			}
			v.Tiers = append(v.Tiers, t)
			for n := range p.Localities {
				rows = v.addLocality(rows, &t, &p.Localities[n])
			}
		}
	}
	v.Facts = append(v.Facts, zoneFacts(c.Zones)...)
	v.Matching = len(rows)
	piece := pieces(len(rows), size, "ep", "endpoint", withCluster(q, v.Key), &v.Pages)
	v.Rows = slices.Clone(rows[piece.first:piece.last])
	if len(v.Rows) > 0 && v.Rows[0].Head == nil { // the page begins within a locality
		for i := piece.first; i >= 0; i-- {
			if rows[i].Head != nil {
				v.Rows[0].Head = rows[i].Head
				break
			}
		}
	}
	for i := range v.Rows {
		if v.Calls > 0 {
			v.Rows[i].Observed = float64(v.Rows[i].Calls) / float64(v.Calls)
		}
	}
	v.Tiers = v.Tiers[:min(len(v.Tiers), maxClusters)]
	return v
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

// addLocality adds the endpoints of a locality that the filter lets through. All count for
// the RPCs.
func (v *clusterView) addLocality(rows []endpointRow, t *tier, l *report.LocalityStatus) []endpointRow {
	head := &localityHead{
		Place: place(l.Region, l.Zone, l.SubZone), Priority: t.Priority, Weight: l.Weight, Share: l.Share, InUse: t.InUse, Leaf: t.Leaf, Child: l.Child,
	}
	for i := range l.Endpoints {
		row := newEndpointRow(&l.Endpoints[i], l.Child != "" && l.Endpoints[i].Share == 0)
		v.Calls += row.Calls
		if v.Filter != "" && v.Filter != row.Condition && (v.Filter != "out" || row.Out == "") ||
			v.Query != "" && !strings.Contains(row.Address+" "+row.Hostname, v.Query) {
			continue
		}
		row.Head, head = head, nil
		rows = append(rows, row)
	}
	return rows
}

// newEndpointRow puts an endpoint into columns. childPicks says that nobody but a child
// policy knows its share.
func newEndpointRow(e *report.EndpointStatus, childPicks bool) endpointRow {
	row := endpointRow{EndpointStatus: e, Calls: e.OK + e.FailedRPCs, Condition: e.State}
	switch {
	case e.Draining:
		row.Condition = "DRAINING"
	case e.Ejected && e.State == "READY":
		row.Condition = "EJECTED"
	}
	row.Class = strings.ToLower(row.Condition)
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if e.Out != "" {
		add("%s", strings.TrimPrefix(e.Out, e.State+" "))
	}
	if e.ChildTold != "" {
		add("the child policy was told that it is %s", e.ChildTold)
	}
	if childPicks && e.Out == "" {
		add("as the child policy picks")
	}
	if e.Waits > 0 {
		add("%s wait for it", percent(e.Waits))
	}
	if e.WeightFrom != "" && e.WeightFrom != "EDS" {
		add("weight %d, %s", e.EffectiveWeight, e.WeightFrom)
	}
	if e.SlowStart > 0 {
		add("slow start at %s", percent(e.SlowStart))
	}
	if e.InFlight > 0 {
		add("%s in flight", count(e.InFlight, "RPC"))
	}
	if e.Latency > 0 {
		add("latency %.3g ms", 1000*e.Latency)
	}
	if e.Hostname != "" {
		add("hostname %s", e.Hostname)
	}
	if len(e.More) > 0 {
		add("also %s", strings.Join(e.More[:min(len(e.More), maxItems)], ", "))
	}
	if e.Error != "" {
		add("%s", e.Error)
	}
	row.Notes = strings.Join(notes, "; ")
	return row
}

// leafFacts describes a leaf. named says that the cluster has several.
func leafFacts(l *report.LeafStatus, named bool) (facts []fact) {
	add := func(name, format string, args ...any) {
		facts = append(facts, fact{name, fmt.Sprintf(format, args...)})
	}
	if named {
		add("Leaf", "%s", l.Name)
	}
	add("Policy", "%s", policyText(l.Policy))
	if l.Service != "" && l.Service != l.Name {
		add("EDS service", "%s", l.Service)
	}
	add("Circuit breaker", "%d of %d RPCs in flight; %d refused", l.InFlight, l.MaxRequests, l.Rejected)
	if n := len(l.Unhealthy); n > 0 {
		var list []string
		for _, u := range l.Unhealthy[:min(n, maxItems)] {
			list = append(list, u.Address+" "+u.Health)
		}
		if n > maxItems {
			list = append(list, fmt.Sprintf("and %d more", n-maxItems))
		}
		add("Not healthy", "%s by EDS, which get no RPCs: %s", count(n, "endpoint"), strings.Join(list, ", "))
	}
	for _, d := range l.Drops[:min(len(l.Drops), maxItems)] {
		add("Drops", "%s as %q; %s so far", percent(float64(d.PerMillion)/1e6), d.Category, count(d.Dropped, "RPC"))
	}
	if t := l.TLS; t != nil {
		text := t.String()
		if !t.InForce {
			text += " (NOT IN FORCE: the channel's credentials do not go by xDS)"
		}
		add("TLS", "%s", text)
	} else {
		add("TLS", "none asked for by xDS")
	}
	if p := l.Probes; p != nil {
		add("Probes", "%d sent, %d failed, %d answers kept, %d endpoints silent", p.Sent, p.Failed, p.Answers, p.Silent)
	}
	if l.ConnectionError != "" {
		add("Last connection error", "%s", l.ConnectionError)
	}
	return facts
}

func zoneFacts(z *report.ZonesStatus) []fact {
	if z == nil {
		return nil
	}
	text := z.Reason
	if !z.InForce {
		text = "not in force: " + text
	}
	return []fact{{"Zones", text}}
}
