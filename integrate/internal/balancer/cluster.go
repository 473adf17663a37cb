// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// cluster is the live counterpart of a picker.Cluster: its leaves' priorities in one list, and
// the priority in use (A56).
//
// The balancer's mutex guards all fields and methods.
type cluster struct {
	*channel
	entry      entry
	changed    []*tally // with marks that handleMarks has not handled
	index      int      // in the list
	cfg        *picker.Cluster
	received   *picker.Cluster // the source of cfg: see adaptation.config
	leaves     []*leaf         // parallel to cfg.Leaves
	priorities []*priority     // of all leaves, highest first
	inUse      *priority       // nil if no priority is in use

	probers map[*picker.ProbePool]*prober // immutable; nil unless the policy probes endpoints

	weightTimer    *time.Timer // runs while weights may change (A58)
	slowStartTimer *time.Timer // runs while endpoints are in slow start
	failureTimer   *time.Timer // runs until RPCs fail with the latest connection error

	// As published.
	counted         bool                // see clusterList.count
	publishedStatus picker.Connectivity // the status
	serving         bool                // the status was READY or IDLE
	ready           int                 // endpoints of the priority in use that were READY
	mayQueue        bool                // see mayQueueWhileReady

	// The state that picks read. Unless dirty it is up to date, and the version in state lets
	// picker.Build reuse its results.
	dirty       bool // see clusterList.mark
	view        clusterView
	state       picker.ClusterState
	stateCfg    *picker.Cluster // the configuration that state is for
	authorities []metadata.MD   // as in the latest view
}

// update applies a new configuration of the cluster: it updates the leaves, settles the priorities,
// and chooses the priority to use.
func (c *cluster) update(cfg *picker.Cluster, changes *eventlog.Changes, slow bool) change {
	c.cfg = cfg
	c.updateLeaves(changes)
	for _, p := range c.priorities {
		p.afterUpdate()
	}
	c.selectPriority()
	c.clearMarks() // all priorities have been checked
	if c.shouldPublishNow(slow) {
		return render | publish | urgent
	}
	return render | publish
}

// updateLeaves makes the leaves, and the order of their priorities, match the configuration.
func (c *cluster) updateLeaves(changes *eventlog.Changes) {
	old := make(map[string]*leaf, len(c.leaves))
	for _, l := range c.leaves {
		old[l.name] = l
	}
	c.leaves, c.priorities = make([]*leaf, len(c.cfg.Leaves)), nil
	for i := range c.cfg.Leaves {
		cfg := &c.cfg.Leaves[i]
		l := old[cfg.Name]
		if l == nil {
			l = c.newLeaf(cfg.Name)
		}
		delete(old, cfg.Name)
		l.update(cfg, changes, &c.changed)
		c.leaves[i], c.priorities = l, append(c.priorities, l.priorities...)
	}
	for _, l := range old {
		l.close(changes)
	}
	for i, p := range c.priorities {
		p.place = int32(i)
	}
	if c.inUse != nil && !slices.Contains(c.priorities, c.inUse) {
		c.inUse = nil
	}
}

// newLeaf returns a leaf of the cluster, without a configuration.
func (c *cluster) newLeaf(name string) *leaf {
	return &leaf{leafState: &leafState{channel: c.channel, entry: c.entry, cluster: c.cfg.Name, name: name, security: c.newSecurity(name)}}
}

// clearMarks clears the marks and returns the marks of priorities that are in the cluster.
func (c *cluster) clearMarks() (all mark) {
	for _, t := range c.changed {
		if t.place >= 0 {
			all |= t.marks
		}
		t.marks = 0
	}
	clear(c.changed)
	c.changed = c.changed[:0]
	return all
}

// status is the cluster's aggregate connectivity.
func (c *cluster) status() picker.Connectivity {
	switch {
	case c.inUse != nil:
		return c.inUse.connectivity()
	case c.cfg.Err == nil && len(c.cfg.Leaves) == 0:
		return picker.Connecting
	default:
		return picker.TransientFailure
	}
}

// mayQueueWhileReady reports whether RPCs may wait for a specific endpoint of the cluster,
// whatever the state of the other endpoints.
func (c *cluster) mayQueueWhileReady() bool {
	return c.inUse != nil && (c.inUse.leaf.onDemand() || c.inUse.leaf.delegates())
}

// close releases all resources of the cluster.
func (c *cluster) close(changes *eventlog.Changes) {
	serial.Halt(&c.weightTimer)
	serial.Halt(&c.slowStartTimer)
	serial.Halt(&c.failureTimer)
	c.closeProbers()
	for _, l := range c.leaves {
		l.close(changes)
	}
	c.clearMarks()
	c.rec.forget(c.cfg.Name)
	if c.id.link != nil {
		c.id.link.ForgetFailures(c.cfg.Name)
	}
}

// The timers below render a cluster again while its picks depend on time.

// scheduleWeights keeps a timer of the update period running while weights matter: the cluster
// uses them, and has at least two endpoints to choose from.
func (c *cluster) scheduleWeights() {
	period := time.Duration(0)
	if c.inUse != nil && c.inUse.counts[picker.Ready] > 1 {
		if how := c.inUse.leaf.wrr.Load(); how != nil {
			period = how.UpdatePeriod
		}
	}
	if period == 0 {
		serial.Halt(&c.weightTimer)
	} else if c.weightTimer == nil {
		c.entry.after(period, &c.weightTimer, func() {
			if c.inUse != nil && c.inUse.updateWeights() { // an update may not have been published yet
				c.inUse.note(picks)
			}
			c.scheduleWeights()
		})
	}
}

// While endpoints are in slow start, their share is fixed when the snapshot is built: twenty
// builds per window follow the curve closely. The interval is bounded below by the cost of a
// build, and above so that the steps remain invisible.
const (
	slowStartSteps   = 20
	minSlowStartStep = 100 * time.Millisecond
	maxSlowStartStep = time.Second
)

// scheduleSlowStart has the cluster compiled periodically while endpoints are in slow start.
func (c *cluster) scheduleSlowStart(inSlowStart bool) {
	if !inSlowStart {
		serial.Halt(&c.slowStartTimer)
	} else if c.slowStartTimer == nil {
		window := c.inUse.leaf.cfg.Policy.SlowStart.Window
		c.entry.after(min(max(window/slowStartSteps, minSlowStartStep), maxSlowStartStep), &c.slowStartTimer, func() {
			if c.inUse != nil {
				c.inUse.note(picks)
			}
		})
	}
}
