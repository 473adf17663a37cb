// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// clusterList is the clusters of a target in the order of its configuration, with the set of
// clusters that the next publication has to render.
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
	all []*cluster // parallel to the configuration's
	// The configurations of all clusters, as received and as adapted for the channel: see
	// adaptation.config. Parallel to all, with nil for a new cluster. Both are the same slice
	// if nothing had to be adapted. Immutable.
	received, own []*picker.Cluster
	whole         bool       // the names or the routes differ from those of the latest snapshot
	changed       []*cluster // changed since the latest publication; some may have been removed
	statuses      [4]int     // number of clusters published in each picker.Connectivity
}

// set replaces the list.
func (l *clusterList) set(all []*cluster) {
	received, own := make([]*picker.Cluster, len(all)), make([]*picker.Cluster, len(all))
	for i, c := range all {
		c.index = i
		received[i], own[i] = c.received, c.cfg
	}
	l.all, l.whole = all, true
	l.setConfigs(received, own)
}

// setConfigs sets the configurations of the clusters.
func (l *clusterList) setConfigs(received, own []*picker.Cluster) {
	if !persistent.SameSlice(received, own) && slices.Equal(received, own) {
		own = received
	}
	l.received, l.own = received, own
}

// differing returns the indexes of the clusters that differ from those of the list, or all
// indexes if the list is empty. It makes one comparison for each cluster.
func (l *clusterList) differing(clusters []*picker.Cluster) (indexes []int) {
	for i, c := range clusters {
		if i >= len(l.received) || c != l.received[i] {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// reroute records that the routes have changed.
func (l *clusterList) reroute() { l.whole = true }

// clear removes all clusters.
func (l *clusterList) clear() { *l = clusterList{whole: true} }

// mark lists a cluster as changed. The cluster may not be in the list yet.
func (l *clusterList) mark(c *cluster) {
	if !c.dirty {
		c.dirty = true
		l.changed = append(l.changed, c)
	}
}

// markAll lists all clusters as changed.
func (l *clusterList) markAll() {
	for _, c := range l.all {
		l.mark(c)
	}
}

// begin returns the clusters that a publication is to render: the changed clusters, or all of
// them if whole is true.
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

// has reports whether a cluster is in the list: a changed cluster may have been removed.
func (l *clusterList) has(c *cluster) bool { return c.index < len(l.all) && l.all[c.index] == c }

// count counts a cluster by the status that is being published.
func (l *clusterList) count(c *cluster, status picker.Connectivity) {
	if c.counted {
		l.statuses[c.publishedStatus]--
	}
	c.publishedStatus, c.counted = status, true
	l.statuses[status]++
}

// done records that a publication is in force. If done is not called, the next publication
// renders everything again if this one did.
func (l *clusterList) done() { l.whole = false }

// best returns the status of the best cluster as published (A31).
func (l *clusterList) best() picker.Connectivity { return bestOf(l.statuses) }

// bestWith is like best, with the current status of one cluster, which has been counted.
func (l *clusterList) bestWith(c *cluster) picker.Connectivity {
	statuses := l.statuses
	statuses[c.publishedStatus]--
	statuses[c.status()]++
	return bestOf(statuses)
}

func bestOf(statuses [4]int) picker.Connectivity {
	for _, s := range []picker.Connectivity{picker.Ready, picker.Connecting, picker.Idle} {
		if statuses[s] > 0 {
			return s
		}
	}
	return picker.TransientFailure
}
