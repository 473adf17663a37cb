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

// This file has a cluster's reaction to its priorities, and its choice among them (A56).

// handleMarks handles the marks of an event and returns the change that follows from them. Marks
// made meanwhile belong to priorities that selectPriority activates, and selectPriority has taken them into
// account.
func (c *cluster) handleMarks(f *eventContext) (ch change) {
	used, growing := c.inUse, true
	var seen mark
	for _, t := range c.changed[:len(c.changed):len(c.changed)] {
		if t.place < 0 {
			continue
		}
		p, m := c.priorities[t.place], t.marks
		seen |= m
		switch {
		case m&(grew|states) != 0:
			p.observe()
			ch |= c.selectPriority()
			if p == c.inUse || f.sessions {
				ch |= render | announce
			}
			growing = growing && p == c.inUse
		case m&phased != 0:
			ch |= c.selectPriority()
		}
		if m&pickers != 0 && p == c.inUse {
			ch |= wake
		}
		if m&connError != 0 {
			c.awaitFailure(p.leaf)
		}
	}
	switch seen & (grew | states | phased) {
	case 0:
	case grew:
		if growing && c.inUse == used && c.onlyGrows() {
			ch |= grown
			break
		}
		fallthrough
	default:
		ch |= publish
	}
	if ch&(grown|publish) != 0 && c.shouldPublishNow(f.slow) {
		ch |= urgent
	}
	if c.clearMarks()&picks != 0 {
		ch |= render | publish
	}
	return ch
}

// eventContext is the state of the balancer that a cluster reads to handle an event.
type eventContext struct {
	sessions bool // a route has session affinity
	slow     bool // publications take long
}

// selectPriority selects the priority to use. It follows A56, except that while A56's choice is still
// connecting, the previous priority stays in use if it is READY, or a higher READY priority is
// used. Therefore an update that adds a new priority at the top moves no traffic away from
// READY endpoints.
//
// Priorities below the chosen one are retired.
func (c *cluster) selectPriority() (ch change) {
	i := c.choosePriority()
	chosen := i >= 0 && takesRPCs(c.priorities[i].connectivity())
	if prev := c.inUse; !chosen && prev != nil && prev.connectivity() == picker.Ready {
		i = slices.IndexFunc(c.priorities, func(p *priority) bool { return p.connectivity() == picker.Ready })
		c.priorities[i].activate() // an update may have moved it up
	}
	var inUse *priority
	if i >= 0 {
		inUse = c.priorities[i]
	}
	if chosen {
		for _, p := range c.priorities[i+1:] {
			p.retire()
		}
	}
	if inUse != c.inUse {
		c.rec.recordPriority(c.cfg.Name, slices.Index(c.priorities, c.inUse), i, c.inUse.unreachable)
		c.inUse = inUse
		ch = render
	}
	return ch
}

// choosePriority returns the index of the first priority that is READY or IDLE or still has
// time to connect, activating dormant priorities on the way (A56's ChoosePriority). If there is
// no such priority it returns the first that is connecting, or else the last; -1 if there are
// no priorities.
func (c *cluster) choosePriority() int {
	for i, p := range c.priorities {
		p.activate()
		if p.phase == trying || takesRPCs(p.connectivity()) {
			return i
		}
	}
	for i, p := range c.priorities {
		if p.connectivity() == picker.Connecting {
			return i
		}
	}
	return len(c.priorities) - 1
}

// immediatePublishReady is the number of READY endpoints up to which each new one is published without a
// pause: a channel that is starting spreads its first RPCs over all of a few backends.
const immediatePublishReady = 8

// shouldPublishNow reports whether RPCs benefit enough from the changes to publish at once: the first
// endpoint can be picked, or the number of endpoints is small and has grown, unless
// publications are slow.
func (c *cluster) shouldPublishNow(slow bool) bool {
	if !c.serving && takesRPCs(c.status()) {
		return true
	}
	if c.inUse == nil || slow {
		return false
	}
	n := c.inUse.counts[picker.Ready]
	return n > c.ready && n <= immediatePublishReady
}

// onlyGrows reports whether a further READY endpoint of the priority in use only adds to the
// endpoints to pick from.
func (c *cluster) onlyGrows() bool {
	return c.serving && !c.mayQueueWhileReady()
}

// failureTextDelay limits how often a cluster is published whose endpoints all fail with
// different errors.
const failureTextDelay = time.Second

// awaitFailure publishes the latest connection error of a leaf for failing RPCs, after a delay
// if the state of the cluster does not change with it.
func (c *cluster) awaitFailure(l *leafState) {
	if c.failureTimer != nil || c.inUse == nil || c.inUse.leaf != l {
		return
	}
	c.entry.after(failureTextDelay, &c.failureTimer, func() {
		if c.inUse != nil && c.status() == picker.TransientFailure {
			c.inUse.note(picks)
		}
	})
}

// This file defines how a change is returned up the balancer's tree. Events enter at the top
// and are passed down by call. Endpoints, connections and child policies mark their changes in
// the tally of their priority. At the end of the event the owners handle the marks: the
// priority updates its phase, the cluster chooses a priority, and the balancer publishes.

// mark is a set of changes of a priority's endpoints.
type mark uint8

const (
	grew      mark = 1 << iota // an endpoint became READY
	states                     // an endpoint changed its state in any other way
	phased                     // the priority changed its phase by a timer
	picks                      // the data that picks read has changed
	pickers                    // a child policy has a new picker
	connError                  // the text of the latest connection error has changed
)

// tally sums up a priority's endpoints and the changes that an event made to them. Endpoints,
// connections and child policies write it, the priority and the cluster read it.
type tally struct {
	counts       [4]int // endpoints by picker.Connectivity, without draining ones
	needsConnect bool   // endpoints were added and do not connect yet
	stale        bool   // the data built from the endpoints and their connections is out of date
	phase        phase
	marks        mark
	place        int32     // of the priority in cluster.order; -1 if it is not listed
	changed      *[]*tally // the cluster's list of tallies with marks
}

// note adds marks.
func (t *tally) note(m mark) {
	if t.marks == 0 {
		*t.changed = append(*t.changed, t)
	}
	t.marks |= m
	t.stale = t.stale || m&picks != 0
}

// invalidate is called when the set of endpoints changes.
func (t *tally) invalidate() { t.needsConnect, t.stale = true, true }

// change is a set of consequences of an event for a cluster.
type change uint8

const (
	render   change = 1 << iota // the next publication has to render the cluster
	announce                    // the channel's state may be announced before it is published
	grown                       // a publication is due because one more endpoint is READY; nothing else changed
	publish                     // a publication is due
	urgent                      // the publication must not be delayed
	wake                        // waiting RPCs must pick again, since a child policy has a new picker
)

// An outbox collects actions that lower layers defer to the end of an event: see
// publisher.settle.
type outbox struct {
	// closing shuts down the connections without an endpoint, once no published snapshot uses
	// them.
	closing []func()
	// unused releases counters, once no published snapshot uses them. It needs the mutex.
	unused []func()
	// repick is set when SubConns left READY since gRPC got its latest picker: RPCs that picked
	// such a SubConn wait for a new picker.
	repick  bool
	publish bool // a publication is due
	wake    bool // like the change wake, for an unknown cluster
}
