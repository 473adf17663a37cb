// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// While changes keep coming, snapshots are at least publishPause apart, and eight
// times as long as the last one took, so that a storm (10,000 endpoints coming
// up) leaves the processor to others; but never so far that its last change is
// late by more than maxPublishPause.
//
// A publication copies what picks read of all endpoints of a cluster. So further ones of a
// large priority that become READY, where many are already, are gathered for longer:
// until they are half as many as picks have, or for growthPause for each endpoint that is
// copied, at most maxGrowthPause. Whatever else changes does not wait for that.
const (
	publishPause    = time.Millisecond
	maxPublishPause = 15 * time.Millisecond
	growthPause     = 2500 * time.Nanosecond
	maxGrowthPause  = 250 * time.Millisecond
)

// settle ends an event: it acts on what the event changed.
func (b *lb) settle() {
	if b.rt.Closed() {
		b.shutdownPendingLocked()
		return
	}
	for _, c := range b.early {
		b.announceEarlyLocked(c)
	}
	if b.out.wake {
		b.wake()
	}
	if b.out.publish {
		b.publishByLocked(b.nextPublish)
	} else {
		for _, c := range b.grown {
			b.publishGrowthLocked(c)
		}
	}
	b.early, b.grown, b.out.wake, b.out.publish = b.early[:0], b.grown[:0], false, false
}

// wake has gRPC pick again for RPCs that wait for a child policy.
func (b *lb) wake() {
	if b.picker.waiting.Swap(false) {
		b.updateStateLocked(b.announced)
	}
	if b.out.repick { // a connection that was lost may be in the snapshot
		b.out.publish = true
	}
}

// publishByLocked publishes at once if that is urgent, else at the time that is due, if no
// earlier one is set.
func (b *lb) publishByLocked(due time.Time) {
	wait := time.Until(due)
	switch {
	case b.urgent || wait <= 0 && b.pending == nil:
		b.publishLocked()
	case b.pending == nil || due.Before(b.publishDue):
		serial.Halt(&b.pending)
		b.publishDue = due
		b.rt.After(wait, &b.pending, b.publishLocked)
	}
}

// publishGrowthLocked publishes that one more endpoint of a priority in use is READY.
func (b *lb) publishGrowthLocked(c *cluster) {
	n, size := c.inUse.counts[picker.Ready], 0
	for _, k := range c.inUse.counts {
		size += k
	}
	due := b.nextPublish
	if pause := min(time.Duration(size)*growthPause, maxGrowthPause); pause > maxPublishPause && 2*(n-c.ready) < c.ready {
		due = due.Add(pause - maxPublishPause)
	}
	b.publishByLocked(due)
}

// publishLocked makes all changes visible to picks: one snapshot, one store.
func (b *lb) publishLocked() {
	serial.Halt(&b.pending)
	b.urgent = false
	begin := time.Now()
	defer func() {
		end := time.Now()
		b.publishTime = end.Sub(begin)
		b.measurePublicationLocked(end)
		b.nextPublish = end.Add(min(max(8*b.publishTime, publishPause), maxPublishPause))
	}()
	prev := b.picker.current.Load()
	next, helps := b.renderLocked(prev)
	b.picker.current.Store(next)
	b.notifyPublicationLocked()
	if b.src != nil && (next.Snapshot != nil && prev.Snapshot == nil || next.Err != nil && !b.src.Link.Published()) {
		// The first RPCs find their method configs in place.
		b.rt.Call(func() { b.src.Link.Publish(b.picker.table) })
	}
	b.shutdownPendingLocked()

	state := b.connectivityLocked()
	// RPCs wait inside gRPC for a new picker in two cases: a pick told them
	// to, or the connection they were given went away in between. The picker
	// is the same object for ever; announcing it again wakes them.
	waiting := b.out.repick
	b.out.repick = false
	if helps && b.picker.waiting.Swap(false) {
		waiting = true
	}
	if waiting || state != b.announced {
		b.updateStateLocked(state)
	}
}

// announceEarlyLocked tells gRPC what the channel's state has become by a change of a cluster
// that is published after a pause, when it may be another: from IDLE a channel comes to READY
// by way of CONNECTING (gRPC's connectivity-semantics-and-api.md), however fast it connects.
// Picks go by the snapshot that there is. So two states do wait for the next one: READY, and
// what follows TRANSIENT_FAILURE, since RPCs would still wait or fail.
func (b *lb) announceEarlyLocked(c *cluster) {
	if !c.counted || !b.list.has(c) || b.fatal != nil || b.announced == connectivity.TransientFailure {
		return
	}
	s := grpcState(b.list.bestWith(c))
	if s == b.announced || s == connectivity.Ready {
		return
	}
	if later := !b.urgent && (b.pending != nil || time.Until(b.nextPublish) > 0); later {
		b.updateStateLocked(s)
	}
}

func (b *lb) updateStateLocked(state connectivity.State) {
	b.announced = state
	b.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: &b.picker})
}

// renderLocked builds what picks read. It reports whether anything changed that can
// help an RPC that waits: another configuration, a cluster that became READY or
// failed, or another endpoint of one whose RPCs wait for a certain one.
func (b *lb) renderLocked(prev *published) (next *published, helps bool) {
	next = &published{Table: perrpc.Table{Err: b.fatal}}
	if b.src != nil {
		next.Link = b.src.Link
	}
	if b.cfg == nil {
		return next, b.fatal != nil
	}
	helps = prev.Config != b.cfg
	b.routeErrs = b.id.routeErrors(b.routeErrs, b.cfg.Routes)
	next.Config, next.Plans, next.rewrites, next.routeErrs = b.cfg, b.plans, b.rewrites, b.routeErrs
	next.plain = !b.rewrites && metric.UpdateLabels == nil
	rendering := rendering{version: b.version, rewrites: b.rewrites, sessions: b.sessions, avoidHosts: b.avoidHosts}
	changed, whole := b.list.begin()
	for _, c := range changed {
		status := c.status()
		helps = helps || c.dirty && (status == picker.TransientFailure || c.mayQueue || c.mayQueueWhileReady() || b.sessions || status == picker.Ready && !c.serving)
		c.refresh(&rendering)
		b.list.count(c, c.status())
		c.rendered()
	}
	b.version = rendering.version
	var err error
	if next.Snapshot, err = b.buildLocked(prev, changed, whole); err != nil {
		// xds validates what it hands over, so this is a defect of ours. The
		// last good snapshot stays in force.
		b.rec.write(slog.LevelError, "xdslb: the previous configuration stays, since the latest cannot be compiled", "", slog.String("error", err.Error()))
		if prev.Snapshot != nil {
			return prev, false
		}
		return &published{Table: perrpc.Table{Err: b.id.failure("", fmt.Sprintf("xds: %v", err), ReasonTarget)}}, true
	}
	next.Budgets = b.budgetsLocked(prev, changed, whole)
	if !whole && prev.Ask != nil {
		next.Ask = next.ask
	}
	items := make([]*persistent.Item[clusterView], len(changed))
	changes := make([]persistent.Change[clusterView], len(changed))
	for i, c := range changed {
		items[i] = next.view(c)
		changes[i] = persistent.Change[clusterView]{Index: c.index, Item: items[i]}
		c.scheduleWeights()
		c.scheduleLoads()
		c.scheduleSlowStart(next.Snapshot.InSlowStart(c.index))
	}
	if whole {
		next.clusters.Set(items)
	} else {
		next.clusters.Follow(&prev.clusters, changes)
	}
	b.list.done()
	return next, helps
}

// view returns what picks need of a cluster that has changed, and has p ask its endpoints if
// RPCs do.
func (p *published) view(c *cluster) *persistent.Item[clusterView] {
	item := &persistent.Item[clusterView]{Value: c.view}
	view := &item.Value
	if err := p.Snapshot.ClusterErr(c.index); err != nil {
		name := c.cfg.Name
		view.failed = c.id.failure(name, fmt.Sprintf("xds: cluster %q: %v", name, err), ReasonCluster, "cluster", name)
	}
	c.followProbes(p.Snapshot, c.index)
	if c.probers != nil && c.asksForEach() {
		view.probers, p.Ask = c.probers, p.ask
	}
	return item
}

// budgetsLocked returns what limits retries by cluster: the same list as before, unless the
// configuration or the leaf in use of a cluster makes it another.
func (b *lb) budgetsLocked(prev *published, changed []*cluster, whole bool) (list []*perrpc.Budget) {
	if !whole {
		list = prev.Budgets
	}
	copied := false
	for _, c := range changed {
		budget, was := c.retryBudget(), (*perrpc.Budget)(nil)
		if list != nil {
			was = list[c.index]
		}
		if budget == was || budget != nil && was != nil && *budget == *was {
			continue
		}
		if !copied {
			list = append(make([]*perrpc.Budget, 0, len(b.list.all)), list...)[:len(b.list.all)]
			copied = true
		}
		list[c.index] = budget
	}
	return list
}

// buildLocked compiles what has changed since the latest snapshot.
func (b *lb) buildLocked(prev *published, changed []*cluster, whole bool) (*picker.Snapshot, error) {
	if !whole {
		changes := make([]picker.ClusterChange, len(changed))
		for i, c := range changed {
			changes[i] = picker.ClusterChange{Index: c.index, Cluster: c.effective, State: &c.state}
		}
		return picker.Rebuild(prev.Snapshot, changes, b.envLocked()), nil
	}
	states := make([]picker.ClusterState, len(b.list.all))
	effective := *b.cfg
	effective.Clusters = make([]*picker.Cluster, len(b.list.all))
	for i, c := range b.list.all {
		states[i], effective.Clusters[i] = c.state, c.effective
	}
	return picker.Build(prev.Snapshot, &effective, states, b.envLocked())
}

// connectivityLocked is the channel's state: that of its best cluster (A31).
func (b *lb) connectivityLocked() connectivity.State {
	if b.fatal != nil {
		return connectivity.TransientFailure
	}
	if b.cfg == nil {
		return connectivity.Connecting
	}
	return grpcState(b.list.best())
}

// nextPublication returns a channel that is closed by the next publication, or when the
// balancer is closed; nil if it is.
func (b *lb) nextPublication() <-chan struct{} {
	b.lock()
	defer b.unlock()
	if b.rt.Closed() {
		return nil
	}
	if b.publication == nil {
		b.publication = make(chan struct{})
	}
	return b.publication
}

// notifyPublicationLocked wakes the goroutines that wait for a publication.
func (b *lb) notifyPublicationLocked() {
	if b.publication != nil {
		close(b.publication)
		b.publication = nil
	}
}
