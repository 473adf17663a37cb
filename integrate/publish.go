// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

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

// publishSoon publishes at once if that is due, or if a cluster can be picked
// from that could not be before; else when the time has come. b.mu is held.
func (b *lb) publishSoon() {
	if !b.urgent {
		if b.pending != nil {
			return
		}
		if wait := time.Until(b.nextPublish); wait > 0 {
			b.pending = time.AfterFunc(wait, func() {
				b.lock()
				defer b.unlock()
				if !b.closed {
					b.publish()
				}
			})
			return
		}
	}
	b.publish()
}

// publish makes all changes visible to picks: one snapshot, one store. b.mu is
// held.
func (b *lb) publish() {
	if b.pending != nil {
		b.pending.Stop()
		b.pending = nil
	}
	b.urgent = false
	begin := time.Now()
	defer func() {
		end := time.Now()
		b.nextPublish = end.Add(min(max(8*end.Sub(begin), publishPause), maxPublishPause))
	}()
	prev := b.picker.current.Load()
	next, helps := b.render(prev)
	b.picker.current.Store(next)
	if b.src != nil && b.src.link.picker.Load() == nil && (next.snapshot != nil || next.fatal != nil) {
		// The first RPCs find their method configs in place.
		b.later = append(b.later, func() { b.src.link.attach(&b.picker) })
	}
	b.closeDoomed()

	state := b.connectivity()
	// RPCs wait inside gRPC for a new picker in two cases: a pick told them
	// to, or the connection they were given went away in between. The picker
	// is the same object for ever; announcing it again wakes them.
	waiting := b.stranded
	if helps && b.picker.waiting.Swap(false) {
		waiting = true
	}
	if waiting || state != b.announced {
		b.announce(state)
	}
}

func (b *lb) announce(state connectivity.State) {
	b.announced, b.stranded = state, false
	b.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: &b.picker})
}

// render builds what picks read. It reports whether anything changed that can
// help an RPC that waits: another configuration, a cluster that became READY or
// failed, or another endpoint of one whose RPCs wait for a certain one.
func (b *lb) render(prev *published) (next *published, helps bool) {
	next = &published{fatal: b.fatal}
	if b.cfg == nil {
		return next, b.fatal != nil
	}
	helps = prev.cfg != b.cfg
	next.cfg, next.plans, next.rewrites = b.cfg, b.plans, b.rewrites
	next.clusters = make([]clusterView, len(b.cfg.Clusters))
	states := make([]picker.ClusterState, len(b.cfg.Clusters))
	served := *b.cfg
	served.Clusters = make([]*picker.Cluster, len(b.cfg.Clusters))
	for i, cc := range b.cfg.Clusters {
		c := b.clusters[cc.Name]
		status := c.status()
		helps = helps || c.dirty && (status == picker.TransientFailure || c.choosy() || b.sessions || status == picker.Ready && !c.serving)
		c.refresh()
		c.serving = serves(status)
		next.clusters[i], states[i], served.Clusters[i] = c.view, c.state, c.served
	}
	snapshot, err := picker.Build(prev.snapshot, &served, states, b.env())
	if err != nil {
		// xds validates what it hands over, so this is a defect of ours. The
		// last good snapshot stays in force.
		logger.Errorf("xdslb: keeping the previous configuration: %v", err)
		if prev.snapshot != nil {
			return prev, false
		}
		return &published{fatal: plainError(fmt.Sprintf("xds: %v", err))}, true
	}
	next.snapshot = snapshot
	for i, cc := range b.cfg.Clusters {
		if err := snapshot.ClusterErr(i); err != nil {
			next.clusters[i].failed = plainError(fmt.Sprintf("xds: cluster %q: %v", cc.Name, err))
		}
		c := b.clusters[cc.Name]
		c.paceWeights()
		c.paceWarming(snapshot.Warming(i))
	}
	return next, helps
}

// connectivity is the channel's state: that of its best cluster (A31).
func (b *lb) connectivity() connectivity.State {
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
