// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"

	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

// lookCluster returns the cluster's status. r describes the choice of a locality; it is nil if
// zones are not used.
func lookCluster(c *cluster, r *picker.LocalityRouting) report.ClusterStatus {
	s := report.ClusterStatus{Name: c.cfg.Name, State: stateName(c.status()), Priority: slices.Index(c.priorities, c.inUse)}
	if c.inUse == nil {
		s.Priority = -1
	}
	if c.status() == picker.TransientFailure {
		s.Error, _ = c.failureText()
	}
	s.Zones = explain.Zones(r)
	first := 0
	for i, l := range c.leaves {
		var left []int // endpoints of each priority outside of the channel's subset
		if c.received != nil && c.received != c.cfg && i < len(c.received.Leaves) {
			left = explain.LeftOut(&c.received.Leaves[i], &c.cfg.Leaves[i])
		}
		s.Leaves = append(s.Leaves, lookLeaf(c, l, first, left))
		first += len(l.priorities)
	}
	return s
}

// lookLeaf returns the leaf's status. first is the number of its first priority, and left the
// number of endpoints of each priority outside of the channel's subset.
func lookLeaf(c *cluster, l *leaf, first int, left []int) report.LeafStatus {
	s := report.LeafStatus{
		Name: l.cfg.Name, Service: l.cfg.Service, Policy: explain.PolicyName(&l.cfg.Policy), TLS: explain.TLS(l.cfg.TLS, c.usesXDS()),
		Note: explain.ErrorText(l.cfg.ResolutionNote), ConnectionError: explain.ErrorText(l.lastErr),
		InFlight: l.breaker.InFlight(), MaxRequests: l.cfg.MaxRequests, Rejected: l.load.Overload().Load(),
	}
	if check := l.cfg.HealthCheck; check != nil {
		s.HealthCheck = &check.Service
	}
	if c.inUse != nil && c.inUse.leaf == &l.common {
		s.Probes = lookProbes(c)
	}
	for _, d := range l.cfg.Drops {
		s.Drops = append(s.Drops, report.DropStatus{Category: d.Category, PerMillion: d.PerMillion, Dropped: l.load.Drop(d.Category).Load()})
	}
	for i, p := range l.priorities {
		ps := lookPriority(p, first+i)
		ps.InUse = p == c.inUse
		if i < len(left) {
			ps.Endpoints.Subset = left[i]
			ps.Endpoints.Total += left[i]
		}
		s.Priorities = append(s.Priorities, ps)
	}
	return s
}

// lookPriority returns the priority's status. O(endpoints).
func lookPriority(p *priority, number int) report.PriorityStatus {
	s := report.PriorityStatus{Priority: number, Phase: p.phase.String(), State: stateName(p.connectivity())}
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

// lookProbes returns the status of the cluster's probes, or nil if it does not probe.
func lookProbes(c *cluster) *report.ProbeStatus {
	if c.probers == nil {
		return nil
	}
	s := &report.ProbeStatus{Synchronous: c.asksForEach()}
	for _, p := range c.probers {
		answers, silent, hot := p.pool.Stats()
		s.Answers, s.Silent, s.HotAbove = s.Answers+answers, s.Silent+silent, max(s.HotAbove, hot)
		p.mu.Lock()
		s.Sent, s.Failed = s.Sent+p.sent, s.Failed+p.failed
		p.mu.Unlock()
	}
	return s
}
