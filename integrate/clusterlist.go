// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import "github.com/xdslb/xdslb/picker"

// clusterList is the clusters of a target in the order of its configuration, and what of
// them the next publication is about.
//
//	         mark                   set, reroute, clear
//	nothing ──────► some clusters ───────────────────────► everything
//	   ▲                  │                                  │    ▲
//	   │                  │ begin                      begin │    │ no done: the
//	   │ done             ▼                                  ▼    │ build failed
//	   └───────────── being published                being published
//	   └──────────────────────────────────────────────────┘ done
//
// A cluster is listed as changed once, however often it changes in between.
//
// The balancer's mutex guards all fields and methods.
type clusterList struct {
	all      []*cluster // parallel to the configuration's
	whole    bool       // the names or the routes are not those of the latest snapshot
	changed  []*cluster // that have, since the latest publication; some may be gone
	statuses [4]int     // how many were published in each picker.Connectivity
}

// set makes other clusters, or another order, the list.
func (l *clusterList) set(all []*cluster) {
	for i, c := range all {
		c.index = i
	}
	l.all, l.whole = all, true
}

// reroute follows another list of routes.
func (l *clusterList) reroute() { l.whole = true }

// clear takes all clusters out.
func (l *clusterList) clear() { *l = clusterList{whole: true} }

// mark lists a cluster as changed. It may be in no list yet.
func (l *clusterList) mark(c *cluster) {
	if !c.dirty {
		c.dirty = true
		l.changed = append(l.changed, c)
	}
}

// begin returns the clusters that a publication is to render: those that have changed,
// or all of them, if whole is true.
func (l *clusterList) begin() (changed []*cluster, whole bool) {
	for _, c := range l.changed {
		if l.has(c) && !l.whole {
			changed = append(changed, c)
		}
	}
	l.changed = nil
	if l.whole {
		l.statuses = [4]int{}
		for _, c := range l.all {
			c.counted = false
		}
		changed = l.all
	}
	return changed, l.whole
}

// has reports whether a cluster is in the list: one that has changed may have gone.
func (l *clusterList) has(c *cluster) bool { return c.index < len(l.all) && l.all[c.index] == c }

// count counts a cluster by the status that is being published.
func (l *clusterList) count(c *cluster, status picker.Connectivity) {
	if c.counted {
		l.statuses[c.publishedStatus]--
	}
	c.publishedStatus, c.counted = status, true
	l.statuses[status]++
}

// done follows a publication that has come into force. Without it the next one is of
// everything again, if this one was.
func (l *clusterList) done() { l.whole = false }

// best returns the status of the best cluster as published (A31).
func (l *clusterList) best() picker.Connectivity {
	for _, s := range []picker.Connectivity{picker.Ready, picker.Connecting, picker.Idle} {
		if l.statuses[s] > 0 {
			return s
		}
	}
	return picker.TransientFailure
}
