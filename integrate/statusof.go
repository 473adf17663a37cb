// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// This file has what the balancer's parts say of themselves for a TargetStatus.

// status fills in what the balancer knows, with each route and endpoint if detailed is
// set, and returns its events. O(endpoints).
func (b *lb) status(s *TargetStatus, detailed bool) []eventlog.Event {
	b.lock()
	defer b.unlock()
	s.Connectivity = b.announced.String()
	s.Pending = b.rt.Waiting()
	if b.fatal != nil {
		s.Error = b.fatal.Error()
	}
	if b.cfg != nil || b.fatal != nil {
		s.Since = b.applied
	}
	if b.cfg != nil {
		s.Received, s.Routes = b.cfg.Received, len(b.cfg.Routes)
	}
	routings := b.picker.current.Load().routings()
	for _, c := range b.clusters {
		s.Clusters = append(s.Clusters, c.describe(routings[c.cfg.Name]))
	}
	if detailed && !b.rt.Closed() {
		b.inspectLocked(s)
	}
	slices.SortFunc(s.Clusters, func(a, b ClusterStatus) int { return strings.Compare(a.Name, b.Name) })
	return b.rec.journal.Events()
}

// inspectLocked adds each route and endpoint to the status, and has RPCs counted.
func (b *lb) inspectLocked(s *TargetStatus) {
	b.watchCallsLocked()
	s.Watched = b.watch.since
	if b.cfg == nil {
		return
	}
	for i := range b.cfg.Routes {
		s.RouteTable = append(s.RouteTable, routeStatus(i, &b.cfg.Routes[i], b.cfg.MaxStreamDuration))
	}
	p := b.picker.current.Load()
	indexes := map[string]int{}
	if p.Config != nil {
		for i, c := range p.Config.Clusters {
			indexes[c.Name] = i
		}
	}
	for i := range s.Clusters {
		c := b.clusters[s.Clusters[i].Name]
		var kernel *picker.ClusterExplanation
		if at, ok := indexes[c.cfg.Name]; ok && p.Snapshot != nil {
			kernel = p.Snapshot.ExplainCluster(context.Background(), -1, int32(at))
		}
		if kernel == nil || kernel.Version != c.state.Version {
			kernel = &picker.ClusterExplanation{} // the next publication knows more
		}
		newDetail(c, kernel, false).fill(&s.Clusters[i])
	}
}

// timeAt returns the time of day at a time of the balancer's clock.
func (b *lb) timeAt(at int64) time.Time {
	return b.rt.TimeAt(at).Round(0).UTC()
}

// describe returns the cluster's status. r is how a locality is chosen, nil if not by zones.
func (c *cluster) describe(r *picker.LocalityRouting) ClusterStatus {
	s := ClusterStatus{Name: c.cfg.Name, State: stateName(c.status()), Priority: slices.Index(c.order, c.inUse)}
	if c.inUse == nil {
		s.Priority = -1
	}
	if c.status() == picker.TransientFailure {
		s.Error, _ = c.failureText()
	}
	s.Zones = zonesStatus(r)
	first := 0
	for i, l := range c.leaves {
		s.Leaves = append(s.Leaves, l.describe(c, first, c.leftOut(i)))
		first += len(l.priorities)
	}
	return s
}

// uses reports whether a priority is in use, alone or with others.
func (c *cluster) uses(p *priority) bool {
	return p == c.inUse || slices.ContainsFunc(c.shares, func(s loadShare) bool { return s.p == p })
}

// leftOut returns how many endpoints of each priority of a leaf are left out of the
// channel's subset.
func (c *cluster) leftOut(leaf int) []int {
	if c.received == nil || c.received == c.cfg || leaf >= len(c.received.Leaves) {
		return nil
	}
	var left []int
	is := c.cfg.Leaves[leaf].Priorities
	for i, was := range c.received.Leaves[leaf].Priorities {
		n := 0
		for k := range was.Localities {
			n += was.Localities[k].Endpoints.Len()
			if i < len(is) && k < len(is[i].Localities) {
				n -= is[i].Localities[k].Endpoints.Len()
			}
		}
		left = append(left, n)
	}
	return left
}

// describe returns the leaf's status. first is the number of its first priority, and
// left how many endpoints of each are not in the channel's subset.
func (l *leaf) describe(c *cluster, first int, left []int) LeafStatus {
	s := LeafStatus{
		Name: l.cfg.Name, Service: l.cfg.Service, Policy: policyLabel(&l.cfg.Policy), TLS: tlsStatus(l.cfg.TLS, c.lb.usesXDS()),
		Note: errorText(l.cfg.ResolutionNote), ConnectionError: errorText(l.lastErr),
		InFlight: l.breaker.InFlight(), MaxRequests: l.cfg.MaxRequests, Rejected: l.load.Overload().Load(),
	}
	if c.inUse != nil && c.inUse.leaf == l {
		s.Probes = c.describeProbes()
	}
	for _, d := range l.cfg.Drops {
		s.Drops = append(s.Drops, DropStatus{Category: d.Category, PerMillion: d.PerMillion, Dropped: l.load.Drop(d.Category).Load()})
	}
	for i, p := range l.priorities {
		ps := p.describe(first + i)
		ps.InUse = c.uses(p)
		if i < len(left) {
			ps.Endpoints.Subset = left[i]
			ps.Endpoints.Total += left[i]
		}
		s.Priorities = append(s.Priorities, ps)
	}
	return s
}

// describe returns the priority's status: O(endpoints).
func (p *priority) describe(number int) PriorityStatus {
	s := PriorityStatus{Priority: number, Phase: p.phase.String(), State: stateName(p.connectivity())}
	for e := range p.endpoints {
		s.Endpoints.Total++
		switch {
		case e.Draining:
			s.Endpoints.Draining++
		case e.Ejected && e.Connectivity == picker.Ready:
			s.Endpoints.Ejected++
		case e.Connectivity == picker.Ready:
			s.Endpoints.Ready++
		case e.Connectivity == picker.Connecting:
			s.Endpoints.Connecting++
		case e.Connectivity == picker.Idle:
			s.Endpoints.Idle++
		default:
			s.Endpoints.Failed++
		}
	}
	return s
}

// String returns the phase's name.
func (p phase) String() string {
	return [...]string{"dormant", "trying", "serving", "failed", "retired"}[p]
}

// policyLabel names a policy for people.
func policyLabel(p *picker.Policy) string {
	if p.Kind == picker.PolicyCustom && p.Custom != nil {
		return p.Custom.Name
	}
	names := [...]string{"edf", "round_robin", "ring_hash", "maglev", "least_request", "client_wrr", "pick_first", "custom", "least_latency", "prequal"}
	if int(p.Kind) < len(names) {
		return names[p.Kind]
	}
	return "unknown"
}
