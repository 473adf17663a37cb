// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"slices"

	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"
)

// This file renders what picks see of a cluster.

// clusterView is what a published snapshot needs of a cluster besides the
// picker's part: outcomes in, gRPC's terms out. It is immutable.
type clusterView struct {
	status         picker.Connectivity
	failed         error                         // for RPCs while no endpoint is reachable; not a status, so that wait-for-ready waits
	rejections     *rejections                   // statuses, so that they are final (T-DROP-3); nil while no priority is in use
	picks          []pick                        // by endpoint index
	authorityPicks []balancer.PickResult         // parallel to picks, for routes that rewrite authorities; nil if there are none
	indexes        map[*endpoint]int32           // of authorityPicks and labels, where children pick
	labels         []map[string]string           // of attempts, by endpoint index; nil unless they are labeled
	hosts          *hosts                        // nil unless sessions or attempts need them
	probers        map[*picker.ProbePool]*prober // nil unless RPCs ask endpoints themselves
	// connectable are what an RPC may connect, by endpoint index; nil if endpoints
	// connect by themselves.
	connectable []*endpoint
	// groups are those whose children connect the endpoints, by locality
	// index; nil if there are none.
	groups []*group
}

// refresh computes view and state: O(endpoints of the priority in use) after a change of the
// set, else O(1).
func (c *cluster) refresh(version uint64, n needs) {
	failed := c.state.Failed
	c.state = picker.ClusterState{Version: version, Leaf: -1}
	p, status := c.inUse, c.status()
	c.view = clusterView{status: status}
	c.effective = c.cfg
	if len(c.shares) > 0 {
		p, c.effective = c.mergeShares()
	}
	if status == picker.TransientFailure {
		c.state.Failed = true
		c.view.failed = c.failure()
	}
	if c.state.Failed != failed {
		c.recordFailure()
	}
	if status == picker.Ready || c.mayQueueWhileReady() || p != nil && n.sessions {
		c.renderPriority(p, n)
	}
}

// renderPriority completes view and state with the endpoints of a priority.
func (c *cluster) renderPriority(p *priority, n needs) {
	l := p.leaf
	p.updateWeights()
	p.buildCache()
	c.view.picks, c.view.connectable, c.view.groups = p.picks, p.connectable, p.groups
	if n.rewrites {
		c.rewriteAuthorities(p)
	}
	c.labelAttempts(p)
	leaf := c.leafIndex(l)
	if (n.sessions || n.avoidHosts) && !l.delegates() {
		c.view.hosts = findHosts(p, c.leaves[leaf].priorities, n.sessions)
	}
	c.view.rejections = l.rejections()
	c.state.Leaf, c.state.Priority = leaf, p.index
	p.tellUtilizations()
	p.tellVersions()
	c.state.Localities = p.state
	c.state.Breaker = l.breaker.Breaker
	c.state.Drops, c.state.Overload = l.dropCounters()
}

func (c *cluster) leafIndex(of *common) int {
	return slices.IndexFunc(c.leaves, func(l *leaf) bool { return &l.common == of })
}

// rendered follows the rendering of the cluster for a publication.
func (c *cluster) rendered() {
	c.serving, c.ready, c.mayQueue = takesRPCs(c.status()), 0, c.mayQueueWhileReady()
	if c.inUse != nil {
		c.ready = c.inUse.counts[picker.Ready]
	}
}

// recordFailure records that RPCs of the cluster have begun to fail, or ceased to.
func (c *cluster) recordFailure() {
	ev := eventlog.Event{Kind: eventlog.ClusterRecovered, Cluster: c.cfg.Name}
	if c.state.Failed {
		ev.Kind, ev.Error = eventlog.ClusterFailed, explain.ErrorText(c.view.failed)
	}
	c.rec.record(ev, nil)
}

// retryBudget is what limits the retries of the cluster's RPCs; nil is nothing.
func (c *cluster) retryBudget() *perrpc.Budget {
	if c.inUse == nil || c.inUse.leaf.cfg.Retries == nil {
		return nil
	}
	l := c.inUse.leaf
	return &perrpc.Budget{Limit: l.cfg.Retries, InFlight: l.breaker.Breaker, Active: &l.breaker.Retries}
}

// failure explains why no endpoint can be picked.
func (c *cluster) failure() error {
	msg, reason := c.failureText()
	more := []string{"cluster", c.cfg.Name}
	if p := c.inUse; p != nil {
		more = append(more, "service", p.leaf.cfg.Service, "priority", fmt.Sprint(p.index))
	}
	return c.id.failure(c.cfg.Name, msg, reason, more...)
}

// failureText says why no endpoint can be picked, in grpc-go's terms where users may know
// them, and which reason that is. O(endpoints).
func (c *cluster) failureText() (msg, reason string) {
	p := c.inUse
	reason = ReasonNoEndpoints
	switch {
	case c.standalone:
		msg = "no endpoint is reachable"
	case c.cfg.Err != nil:
		return fmt.Sprintf("xds: cluster %q: %v", c.cfg.Name, c.cfg.Err), ReasonCluster
	case p == nil:
		msg = fmt.Sprintf("xds: cluster %q: no targets to pick from", c.cfg.Name)
		for i := range c.cfg.Leaves {
			if note := c.cfg.Leaves[i].ResolutionNote; note != nil {
				msg += fmt.Sprintf("; cluster %q: %v", c.cfg.Leaves[i].Name, note)
			}
		}
		if slices.ContainsFunc(c.cfg.Leaves, func(l picker.Leaf) bool { return c.refuses(&l) }) {
			reason = ReasonTLS
		}
	case p.counts == [4]int{}:
		msg = fmt.Sprintf("xds: cluster %q: no targets to pick from in priority %d", c.cfg.Name, p.index)
	default:
		msg = fmt.Sprintf("xds: cluster %q: no endpoint of priority %d is reachable", c.cfg.Name, p.index)
	}
	if p != nil {
		var about string
		about, reason = p.trouble(reason)
		msg += about
	}
	return msg, reason
}

// rewriteAuthorities fills in what picks by routes that rewrite authorities return: those of
// endpoints with a hostname tell gRPC to make it the RPC's :authority. gRPC has
// the channel's credentials check that, and lets grpc.CallAuthority take
// precedence. O(endpoints).
func (c *cluster) rewriteAuthorities(p *priority) {
	old := c.authorityPicks
	c.view.authorityPicks = make([]balancer.PickResult, 0, len(p.picks))
	for _, l := range p.localities {
		for i := range l.endpoints {
			k := len(c.view.authorityPicks)
			res := p.picks[k].result()
			if extra := l.cfg.At(i).Extra; extra != nil && extra.Hostname != "" {
				if k < len(old) && authorityOf(old[k]) == extra.Hostname {
					res.Metadata = old[k].Metadata
				} else {
					res.Metadata = metadata.MD{authorityKey: {extra.Hostname}}
				}
			}
			c.view.authorityPicks = append(c.view.authorityPicks, res)
		}
	}
	c.authorityPicks = c.view.authorityPicks
	c.indexEndpoints(p)
}

// indexEndpoints fills in the indexes of endpoints that children pick. O(endpoints).
func (c *cluster) indexEndpoints(p *priority) {
	if !p.leaf.delegates() || c.view.indexes != nil {
		return
	}
	c.view.indexes = make(map[*endpoint]int32, len(p.picks))
	for e := range p.endpoints {
		c.view.indexes[e] = int32(len(c.view.indexes))
	}
}

// labelAttempts fills in the labels of attempts to each endpoint, if package
// attemptlabels is linked: O(endpoints).
func (c *cluster) labelAttempts(p *priority) {
	if metric.UpdateLabels == nil {
		return
	}
	c.view.labels = make([]map[string]string, 0, len(p.picks))
	for _, l := range p.localities {
		labels := labelsOf(l)
		for range l.endpoints {
			c.view.labels = append(c.view.labels, labels)
		}
	}
	c.indexEndpoints(p)
}
