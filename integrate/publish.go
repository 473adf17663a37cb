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
	"github.com/xdslb/xdslb/picker"
)

// While changes keep coming, snapshots are at least publishPause apart, and eight
// times as long as the last one took, so that a storm (10,000 endpoints coming
// up) leaves the processor to others; but never so far that its last change is
// late by more than maxPublishPause.
const (
	publishPause    = time.Millisecond
	maxPublishPause = 15 * time.Millisecond
)

// publishSoonLocked publishes at once if that is due, or urgent; else when the time has
// come.
func (b *lb) publishSoonLocked() {
	if !b.urgent {
		if b.pending != nil {
			return
		}
		if wait := time.Until(b.nextPublish); wait > 0 {
			b.afterLocked(wait, &b.pending, b.publishLocked)
			return
		}
	}
	b.publishLocked()
}

// publishLocked makes all changes visible to picks: one snapshot, one store.
func (b *lb) publishLocked() {
	halt(&b.pending)
	b.urgent = false
	begin := time.Now()
	defer func() {
		end := time.Now()
		b.publishTime = end.Sub(begin)
		b.measurePublication(end)
		b.nextPublish = end.Add(min(max(8*b.publishTime, publishPause), maxPublishPause))
	}()
	prev := b.picker.current.Load()
	next, helps := b.renderLocked(prev)
	b.picker.current.Store(next)
	b.notifyPublicationLocked()
	if b.src != nil && (next.Snapshot != nil && prev.Snapshot == nil || next.Err != nil && !b.src.link.Published()) {
		// The first RPCs find their method configs in place.
		b.callbacks = append(b.callbacks, func() { b.src.link.Publish(b.picker.table) })
	}
	b.shutdownPendingLocked()

	state := b.connectivityLocked()
	// RPCs wait inside gRPC for a new picker in two cases: a pick told them
	// to, or the connection they were given went away in between. The picker
	// is the same object for ever; announcing it again wakes them.
	waiting := b.lostReady
	b.lostReady = false
	if helps && b.picker.waiting.Swap(false) {
		waiting = true
	}
	if waiting || state != b.announced {
		b.updateStateLocked(state)
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
		next.Link = b.src.link
	}
	if b.cfg == nil {
		return next, b.fatal != nil
	}
	helps = prev.Config != b.cfg
	next.Config, next.Plans, next.rewrites, next.routeErrs = b.cfg, b.plans, b.rewrites, b.routeErrorsLocked()
	next.plain = !b.rewrites && metric.UpdateLabels == nil
	next.clusters = make([]clusterView, len(b.cfg.Clusters))
	states := make([]picker.ClusterState, len(b.cfg.Clusters))
	served := *b.cfg
	served.Clusters = make([]*picker.Cluster, len(b.cfg.Clusters))
	for i, cc := range b.cfg.Clusters {
		c := b.clusters[cc.Name]
		status := c.status()
		helps = helps || c.dirty && (status == picker.TransientFailure || c.mayQueue || c.mayQueueWhileReady() || b.sessions || status == picker.Ready && !c.serving)
		c.refresh()
		c.notePublished()
		next.clusters[i], states[i], served.Clusters[i] = c.view, c.state, c.effective
	}
	snapshot, err := picker.Build(prev.Snapshot, &served, states, b.envLocked())
	if err != nil {
		// xds validates what it hands over, so this is a defect of ours. The
		// last good snapshot stays in force.
		b.logLocked(slog.LevelError, "xdslb: the previous configuration stays, since the latest cannot be compiled", "", slog.String("error", err.Error()))
		if prev.Snapshot != nil {
			return prev, false
		}
		return &published{Table: perrpc.Table{Err: b.plainLocked("", fmt.Sprintf("xds: %v", err), b.infoLocked(ReasonTarget))}}, true
	}
	next.Snapshot = snapshot
	for i, cc := range b.cfg.Clusters {
		if err := snapshot.ClusterErr(i); err != nil {
			next.clusters[i].failed = b.plainLocked(cc.Name, fmt.Sprintf("xds: cluster %q: %v", cc.Name, err), b.infoLocked(ReasonCluster, "cluster", cc.Name))
		}
		c := b.clusters[cc.Name]
		c.scheduleWeights()
		c.scheduleSlowStart(snapshot.InSlowStart(i))
		c.followProbes(snapshot, i)
		if c.probers != nil && c.asksForEach() {
			next.clusters[i].probers, next.Ask = c.probers, next.ask
		}
	}
	return next, helps
}

// connectivityLocked is the channel's state: that of its best cluster (A31).
func (b *lb) connectivityLocked() connectivity.State {
	if b.fatal != nil {
		return connectivity.TransientFailure
	}
	if b.cfg == nil {
		return connectivity.Connecting
	}
	var has [4]bool
	for _, c := range b.clusters {
		has[c.status()] = true
	}
	switch {
	case has[picker.Ready]:
		return connectivity.Ready
	case has[picker.Connecting]:
		return connectivity.Connecting
	case has[picker.Idle]:
		return connectivity.Idle
	default:
		return connectivity.TransientFailure
	}
}
