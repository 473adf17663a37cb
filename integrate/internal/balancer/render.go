// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"log/slog"

	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// render builds the data that picks read. It reports whether a change can help a waiting RPC:
// another configuration, a cluster that became READY or failed, or another endpoint of a
// cluster whose RPCs wait for a specific one.
func (p *publisher) render(prev *pickState) (next *pickState, helps bool) {
	next = &pickState{Table: rpc.Table{Err: p.fatal, Channel: p.id.link}}
	if p.cfg == nil {
		return next, p.fatal != nil
	}
	helps = prev.Config != p.cfg
	p.routeErrs = p.id.routeErrors(p.routeErrs, p.cfg.Routes)
	next.Config, next.Plans, next.rewrites, next.routeErrs = p.cfg, p.plans, p.rewrites, p.routeErrs
	next.authorities = p.authorities
	next.plain = !p.rewrites && next.authorities == nil && metric.UpdateLabels == nil
	changed, whole := p.list.begin()
	for _, c := range changed {
		status := c.status()
		helps = helps || c.dirty && (status == picker.TransientFailure || c.mayQueue || c.mayQueueWhileReady() || p.sessions || status == picker.Ready && !c.serving)
		if c.dirty {
			p.version++
			c.refresh(p.version, p.needs)
			c.dirty = false
		}
		p.list.count(c, c.status())
		c.rendered()
	}
	var err error
	if next.Snapshot, err = p.build(prev, changed, whole); err != nil {
		// Package xds validates its configurations, so this is a bug. The last good snapshot
		// stays in use.
		p.rec.write(slog.LevelError, "xdslb: the latest configuration cannot be compiled; the previous one stays in use", "", slog.String("error", err.Error()))
		if prev.Snapshot != nil {
			return prev, false
		}
		return &pickState{Table: rpc.Table{Err: p.id.failure("", fmt.Sprintf("xdslb: %v", err), ReasonListener)}}, true
	}
	next.Budgets = p.budgets(prev, changed, whole)
	if !whole && prev.ProbeFirst != nil {
		next.ProbeFirst = next.probeFirst
	}
	items := make([]*persistent.Item[clusterView], len(changed))
	changes := make([]persistent.Change[clusterView], len(changed))
	for i, c := range changed {
		c.followProbes(next.Snapshot, c.index)
		items[i] = c.publishedView(next.Snapshot)
		if items[i].Value.probers != nil {
			next.ProbeFirst = next.probeFirst
		}
		changes[i] = persistent.Change[clusterView]{Index: c.index, Item: items[i]}
		c.scheduleWeights()
		c.scheduleSlowStart(next.Snapshot.InSlowStart(c.index))
	}
	if whole {
		next.clusters.Set(items)
	} else {
		next.clusters.Follow(&prev.clusters, changes)
	}
	p.list.done()
	return next, helps
}

// budgets returns the retry limits by cluster: the previous list, unless the configuration or
// the leaf in use of a cluster changes it.
func (p *publisher) budgets(prev *pickState, changed []*cluster, whole bool) (list []*rpc.Budget) {
	if !whole {
		list = prev.Budgets
	}
	copied := false
	for _, c := range changed {
		budget, was := c.retryBudget(), (*rpc.Budget)(nil)
		if list != nil {
			was = list[c.index]
		}
		if budget == was || budget != nil && was != nil && *budget == *was {
			continue
		}
		if !copied {
			list = append(make([]*rpc.Budget, 0, len(p.list.all)), list...)[:len(p.list.all)]
			copied = true
		}
		list[c.index] = budget
	}
	return list
}

// build compiles the changes since the latest snapshot.
func (p *publisher) build(prev *pickState, changed []*cluster, whole bool) (*picker.Snapshot, error) {
	if !whole {
		changes := make([]picker.ClusterChange, len(changed))
		for i, c := range changed {
			changes[i] = picker.ClusterChange{Index: c.index, Cluster: c.stateCfg, State: &c.state}
		}
		return picker.Rebuild(prev.Snapshot, changes, p.env()), nil
	}
	states := make([]picker.ClusterState, len(p.list.all))
	for i, c := range p.list.all {
		states[i] = c.state
	}
	env := p.env()
	env.Routed, p.routed = p.routed, nil
	return picker.Build(prev.Snapshot, p.cfg, states, env)
}

// env returns the data of the channel and its RPCs that its snapshots use.
func (p *publisher) env() picker.Env {
	return picker.Env{
		Header:       metadatautil.OutgoingValues,
		RequestHash:  metadatautil.Hash,
		RandomHashes: &p.randomHashes,
		ChannelID:    p.channelID,
		Now:          p.rt.Now(),
	}
}
