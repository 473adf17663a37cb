// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/internal/statustext"
	"github.com/xdslb/xdslb/integrate/report"
)

var diffCommand = command{
	name: "diff", args: "A B -target TARGET", summary: "compare the effect of two files of resources",
	about: "Compares how a channel to a target would handle RPCs with the resources of files A\n" +
		"and B: routes, policies, shares, and connections that close and open. Endpoints\n" +
		"are assumed to be READY except those of -down. The files have the format that dump\n" +
		"prints. The exit code is 1 if there is a difference.",
	example: "xdslb diff before.json after.json -target xds:///orders",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		var q question
		q.bootstrapFlag.register(fs)
		q.registerStates(fs)
		target := fs.String("target", "", "`target` of the channel")
		return func(args []string) (bool, error) {
			if err := want(args, "A", "B"); err != nil {
				return false, err
			}
			if *target == "" {
				return false, usageError("missing flag: -target")
			}
			var sides [2]*integrate.TargetStatus
			for i, file := range args {
				q.resources = file
				w, err := q.whatIf(e, *target, "/")
				if err != nil {
					return false, err
				}
				if sides[i], err = integrate.InspectWhatIf(w); err != nil {
					return false, fmt.Errorf("%s: %w", file, err)
				}
			}
			d := compare(sides[0], sides[1])
			if e.json {
				return d.Differ(), e.printJSON(d)
			}
			e.printDifference(d)
			return d.Differ(), nil
		}
	},
}

// Difference is the difference between two sets of resources.
type Difference struct {
	RoutesRemoved []string `json:"routes_removed,omitempty"`
	RoutesAdded   []string `json:"routes_added,omitempty"`
	// RoutesReordered is set if common routes are in a different order.
	RoutesReordered bool `json:"routes_reordered,omitempty"`
	// ClustersRemoved and ClustersAdded are the clusters that routes refer to.
	ClustersRemoved []string            `json:"clusters_removed,omitempty"`
	ClustersAdded   []string            `json:"clusters_added,omitempty"`
	Clusters        []ClusterDifference `json:"clusters,omitempty"`
	// Close and Open are the connections to endpoints of active priorities, by address. Keep is the
	// number of connections that stay. Each cluster has its own connections.
	Close []string `json:"close,omitempty"`
	Open  []string `json:"open,omitempty"`
	Keep  int      `json:"keep"`
}

// ClusterDifference is the difference of a cluster.
type ClusterDifference struct {
	Cluster string        `json:"cluster"`
	Changes []string      `json:"changes,omitempty"` // such as "policy edf -> ring_hash"
	Shares  []ShareChange `json:"shares,omitempty"`  // changed shares only
}

// ShareChange is an endpoint's share of the cluster's RPCs.
type ShareChange struct {
	Address string  `json:"address"`
	Before  float64 `json:"before"`
	After   float64 `json:"after"`
}

// Differ reports whether there is a difference.
func (d *Difference) Differ() bool {
	return len(d.RoutesRemoved)+len(d.RoutesAdded)+len(d.ClustersRemoved)+len(d.ClustersAdded)+len(d.Clusters)+len(d.Close)+len(d.Open) > 0 || d.RoutesReordered
}

// compare compares two states of a channel.
func compare(a, b *integrate.TargetStatus) *Difference {
	d := &Difference{}
	d.compareRoutes(routeTexts(a), routeTexts(b))
	before, after := clustersOf(a), clustersOf(b)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		next, ok := after[name]
		if !ok {
			d.ClustersRemoved = append(d.ClustersRemoved, name)
			next = &report.ClusterStatus{}
		} else if c := compareCluster(before[name], next); len(c.Changes)+len(c.Shares) > 0 {
			d.Clusters = append(d.Clusters, c)
		}
		d.compareConnections(name, connections(before[name]), connections(next))
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] == nil {
			d.ClustersAdded = append(d.ClustersAdded, name)
			d.compareConnections(name, nil, connections(after[name]))
		}
	}
	return d
}

func clustersOf(s *integrate.TargetStatus) map[string]*report.ClusterStatus {
	m := map[string]*report.ClusterStatus{}
	for i := range s.Clusters {
		m[s.Clusters[i].Name] = &s.Clusters[i]
	}
	return m
}

// routeTexts returns the routes as text, in order.
func routeTexts(s *integrate.TargetStatus) (list []string) {
	for i := range s.RouteTable {
		r := &s.RouteTable[i]
		list = append(list, strings.Join(append([]string{report.Match(r) + " -> " + report.Destinations(r)}, report.Actions(r)...), ", "))
	}
	return list
}

func (d *Difference) compareRoutes(a, b []string) {
	d.RoutesRemoved, d.RoutesAdded = without(a, b), without(b, a)
	d.RoutesReordered = !slices.Equal(without(a, d.RoutesRemoved), without(b, d.RoutesAdded))
}

// without returns a without the elements of b, respecting multiplicity.
func without(a, b []string) (left []string) {
	n := map[string]int{}
	for _, s := range b {
		n[s]++
	}
	for _, s := range a {
		if n[s]--; n[s] < 0 {
			left = append(left, s)
		}
	}
	return left
}

// connections returns the addresses of the endpoints in active priorities.
func connections(c *report.ClusterStatus) (list []string) {
	for e := range report.Endpoints(c) {
		if e.Priority.InUse && !e.Draining {
			list = append(list, e.Address)
		}
	}
	return list
}

func (d *Difference) compareConnections(cluster string, a, b []string) {
	gone, come := without(a, b), without(b, a)
	d.Keep += len(a) - len(gone)
	for _, address := range gone {
		d.Close = append(d.Close, address+" of "+cluster)
	}
	for _, address := range come {
		d.Open = append(d.Open, address+" of "+cluster)
	}
}

// facts returns the compared properties of a cluster besides its endpoints.
func facts(c *report.ClusterStatus) (names []string, values map[string]string) {
	values = map[string]string{}
	add := func(name, format string, args ...any) {
		names = append(names, name)
		values[name] = fmt.Sprintf(format, args...)
	}
	add("state", "%s", c.State)
	add("active priority", "%d", c.Priority)
	for i := range c.Leaves {
		l := &c.Leaves[i]
		of := ""
		if len(c.Leaves) > 1 {
			of = fmt.Sprintf(" of leaf %d", i)
		}
		add("name"+of, "%s", l.Name)
		add("EDS service"+of, "%s", l.Service)
		add("policy"+of, "%s", l.Policy)
		add("circuit breaker"+of, "%d", l.MaxRequests)
		tls := "none"
		if t := l.TLS; t != nil {
			tls = fmt.Sprintf("roots %s, identity %s, SANs %v, SNI %s", t.Roots, t.Identity, t.SANs, t.ServerName)
		}
		add("TLS"+of, "%s", tls)
		var drops []string
		for _, x := range l.Drops {
			drops = append(drops, fmt.Sprintf("%s %s", x.Category, report.Percent(float64(x.PerMillion)/1e6)))
		}
		add("drops"+of, "[%s]", strings.Join(drops, ", "))
		add("priorities"+of, "%d", len(l.Priorities))
	}
	return names, values
}

func compareCluster(a, b *report.ClusterStatus) ClusterDifference {
	d := ClusterDifference{Cluster: a.Name}
	names, was := facts(a)
	more, is := facts(b)
	for _, name := range append(names, without(more, names)...) {
		if was[name] != is[name] {
			d.Changes = append(d.Changes, fmt.Sprintf("%s %s -> %s", name, orNothing(was[name]), orNothing(is[name])))
		}
	}
	before, after := sharesOf(a), sharesOf(b)
	addresses := maps.Clone(before)
	maps.Copy(addresses, after)
	for _, address := range slices.Sorted(maps.Keys(addresses)) {
		if math.Abs(before[address]-after[address]) > 1e-6 {
			d.Shares = append(d.Shares, ShareChange{address, before[address], after[address]})
		}
	}
	return d
}

func orNothing(s string) string {
	if s == "" {
		return "(nothing)"
	}
	return s
}

func sharesOf(c *report.ClusterStatus) map[string]float64 {
	m := map[string]float64{}
	for e := range report.Endpoints(c) {
		m[e.Address] += e.Share
	}
	return m
}

// maxLines is the maximum number of printed lines of a kind.
const maxLines = 20

func (e *env) printDifference(d *Difference) {
	list := func(head string, items []string) {
		for i, item := range items {
			if i == maxLines {
				e.line("%s and %d more", head, len(items)-i)
				break
			}
			statustext.Wrap(e.stdout, head, sanitize.Text(item, 300))
		}
	}
	list("- route", d.RoutesRemoved)
	list("+ route", d.RoutesAdded)
	if d.RoutesReordered {
		e.line("~ routes are reordered")
	}
	list("- cluster", d.ClustersRemoved)
	list("+ cluster", d.ClustersAdded)
	for _, c := range d.Clusters {
		e.line("~ cluster %s", sanitize.Text(c.Cluster, 60))
		list("   ", c.Changes)
		for i, s := range c.Shares {
			if i == maxLines {
				e.line("    and %d more shares", len(c.Shares)-i)
				break
			}
			e.line("    %-40s %8s -> %8s", sanitize.Text(s.Address, 40), report.Percent(s.Before), report.Percent(s.After))
		}
	}
	list("- connection to", d.Close)
	list("+ connection to", d.Open)
	if !d.Differ() {
		e.line("no difference for RPCs")
	}
	e.line("connections: %d kept, %d closed, %d opened", d.Keep, len(d.Close), len(d.Open))
}

// line prints a line, truncated to 80 columns.
func (e *env) line(format string, args ...any) {
	fmt.Fprintln(e.stdout, sanitize.Text(strings.TrimRight(fmt.Sprintf(format, args...), " "), statustext.Columns))
}
