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
	"github.com/xdslb/xdslb/integrate/report"
)

var diffCommand = command{
	name: "diff", args: "A B -target TARGET", summary: "what changes for RPCs from file A to B?",
	about: "Says what a channel to a target would do otherwise by the resources of file B than\n" +
		"by those of A: routes, policies, shares, and which connections close and open.\n" +
		"Endpoints are supposed to be READY but for those with -down. The files are such as\n" +
		"dump prints. It exits with 1 if there is a difference.",
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
				return false, usageError("-target is missing")
			}
			var sides [2]*report.TargetStatus
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

// Difference is what changes from one set of resources to another.
type Difference struct {
	RoutesRemoved []string `json:"routes_removed,omitempty"`
	RoutesAdded   []string `json:"routes_added,omitempty"`
	// RoutesReordered says that those in both are in another order.
	RoutesReordered bool `json:"routes_reordered,omitempty"`
	// ClustersRemoved and ClustersAdded are those that routes lead to.
	ClustersRemoved []string            `json:"clusters_removed,omitempty"`
	ClustersAdded   []string            `json:"clusters_added,omitempty"`
	Clusters        []ClusterDifference `json:"clusters,omitempty"`
	// Close and Open are the connections to endpoints of the priorities in use, by address,
	// and Keep is how many stay. A cluster has connections of its own.
	Close []string `json:"close,omitempty"`
	Open  []string `json:"open,omitempty"`
	Keep  int      `json:"keep"`
}

// ClusterDifference is what changes of a cluster.
type ClusterDifference struct {
	Cluster string        `json:"cluster"`
	Changes []string      `json:"changes,omitempty"` // such as "policy edf -> ring_hash"
	Shares  []ShareChange `json:"shares,omitempty"`  // those that change
}

// ShareChange is an endpoint's share of the cluster's RPCs.
type ShareChange struct {
	Address string  `json:"address"`
	Before  float64 `json:"before"`
	After   float64 `json:"after"`
}

// Differ reports whether anything changes.
func (d *Difference) Differ() bool {
	return len(d.RoutesRemoved)+len(d.RoutesAdded)+len(d.ClustersRemoved)+len(d.ClustersAdded)+len(d.Clusters)+len(d.Close)+len(d.Open) > 0 || d.RoutesReordered
}

// compare compares two states of a channel.
func compare(a, b *report.TargetStatus) *Difference {
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

func clustersOf(s *report.TargetStatus) map[string]*report.ClusterStatus {
	m := map[string]*report.ClusterStatus{}
	for i := range s.Clusters {
		m[s.Clusters[i].Name] = &s.Clusters[i]
	}
	return m
}

// routeTexts returns the routes as text, in order.
func routeTexts(s *report.TargetStatus) (list []string) {
	for i := range s.RouteTable {
		r := &s.RouteTable[i]
		parts := append([]string{"path " + r.Path}, r.Conditions...)
		if r.Fraction != nil {
			parts = append(parts, percent(*r.Fraction)+" of RPCs")
		}
		var to []string
		for _, c := range r.Clusters {
			text := c.Cluster
			if c.Share < 1 {
				text += " " + percent(c.Share)
			}
			to = append(to, text)
		}
		if r.NotForwarding {
			to = []string{"nowhere"}
		}
		text := strings.Join(parts, ", ") + " -> " + strings.Join(to, ", ")
		if r.Timeout != "" {
			text += ", timeout " + r.Timeout
		}
		if r.Retry != nil {
			text += fmt.Sprintf(", %d attempts on %s", r.Retry.MaxAttempts, strings.Join(r.Retry.On, ", "))
		}
		for _, h := range r.Hash {
			text += ", hash of " + h
		}
		if r.RewriteAuthority {
			text += ", authority rewritten"
		}
		list = append(list, text)
	}
	return list
}

func (d *Difference) compareRoutes(a, b []string) {
	d.RoutesRemoved, d.RoutesAdded = without(a, b), without(b, a)
	d.RoutesReordered = !slices.Equal(without(a, d.RoutesRemoved), without(b, d.RoutesAdded))
}

// without returns a without the elements of b, each taken away as often as it is there.
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

// connections returns the addresses that are connected to: those of the priority in use.
func connections(c *report.ClusterStatus) (list []string) {
	for _, l := range c.Leaves {
		for _, p := range l.Priorities {
			for _, loc := range p.Localities {
				for i := range loc.Endpoints {
					if p.InUse && !loc.Endpoints[i].Draining {
						list = append(list, loc.Endpoints[i].Address)
					}
				}
			}
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

// facts are what is compared of a cluster besides its endpoints.
func facts(c *report.ClusterStatus) (names []string, values map[string]string) {
	values = map[string]string{}
	add := func(name, format string, args ...any) {
		names = append(names, name)
		values[name] = fmt.Sprintf(format, args...)
	}
	add("state", "%s", c.State)
	add("priority in use", "%d", c.Priority)
	for i := range c.Leaves {
		l := &c.Leaves[i]
		of := ""
		if len(c.Leaves) > 1 {
			of = fmt.Sprintf("%s of leaf %d", "", i)
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
			drops = append(drops, fmt.Sprintf("%s %s", x.Category, percent(float64(x.PerMillion)/1e6)))
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
	for _, l := range c.Leaves {
		for _, p := range l.Priorities {
			for _, loc := range p.Localities {
				for i := range loc.Endpoints {
					m[loc.Endpoints[i].Address] += loc.Endpoints[i].Share
				}
			}
		}
	}
	return m
}

// maxLines is how many lines of a kind are printed.
const maxLines = 20

func (e *env) printDifference(d *Difference) {
	list := func(head string, items []string) {
		for i, item := range items {
			if i == maxLines {
				e.line("%s and %d more", head, len(items)-i)
				break
			}
			wrap(e.stdout, head, sanitize.Text(item, 300))
		}
	}
	list("- route", d.RoutesRemoved)
	list("+ route", d.RoutesAdded)
	if d.RoutesReordered {
		e.line("~ routes are in another order")
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
			e.line("    %-40s %8s -> %8s", sanitize.Text(s.Address, 40), percent(s.Before), percent(s.After))
		}
	}
	list("- connection to", d.Close)
	list("+ connection to", d.Open)
	if !d.Differ() {
		e.line("nothing changes for RPCs")
	}
	e.line("%d connections stay, %d close, %d open", d.Keep, len(d.Close), len(d.Open))
}
