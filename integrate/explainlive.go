// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"slices"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// This file is what a channel's balancer knows of a cluster, for explanations. The
// balancer's mutex guards all of it.

// subject returns what there is to know of a cluster of the published configuration. The
// endpoints are those of the publication, in their states of the moment.
func (c *cluster) subject(published *picker.Config) *subject {
	s := &subject{failure: c.view.failed, sessions: c.view.hosts, connectable: c.view.connectable != nil, usesTLS: c.lb.usesXDS()}
	inUse := c.inUse
	switch {
	case c.state.Leaf >= 0:
		s.leaf = &c.effective.Leaves[c.state.Leaf]
		cfg := s.leaf.Priorities[c.state.Priority].Localities
		for i := range cfg {
			s.add(&cfg[i], c.state.Localities[i].Endpoints.(endpoints))
		}
		c.addChildren(s)
	case inUse != nil: // no RPC gets to any of them
		s.leaf = inUse.leaf.cfg
		for i, l := range inUse.localities {
			s.add(&inUse.cfg.Localities[i], l.endpoints)
		}
	case len(c.cfg.Leaves) > 0:
		s.leaf = &c.cfg.Leaves[0]
	}
	if s.leaf != nil {
		s.note = s.leaf.ResolutionNote
	}
	for i, p := range c.order {
		s.priorities = append(s.priorities, p.explain(i))
	}
	s.notInSubset = c.notInSubset()
	if s.failure == nil && c.cfg.Err != nil {
		s.failure = c.cfg.Err
	}
	return s
}

// add adds a locality.
func (s *subject) add(cfg *picker.Locality, list endpoints) {
	l := subjectLocality{cfg: cfg}
	for i, e := range list {
		l.endpoints = append(l.endpoints, e.subject(cfg.Endpoints.At(i)))
	}
	s.localities = append(s.localities, l)
}

// addChildren names the child policies that pick.
func (c *cluster) addChildren(s *subject) {
	for i := range s.localities {
		if k := s.groupOf(i); k < len(c.view.groups) && c.view.groups[k] != nil && c.view.groups[k].current != nil {
			g := c.view.groups[k]
			s.localities[i].child = fmt.Sprintf("%s, %s", g.current.name, stateName(g.state))
		}
	}
}

func (e *endpoint) subject(cfg *picker.Endpoint) subjectEndpoint {
	s := subjectEndpoint{cfg: cfg, state: &e.EndpointState}
	l := e.loc.prio.leaf
	if e.Connectivity == picker.TransientFailure {
		if s.err = l.errs[e]; s.err == nil {
			s.err = l.lastErr // the latest of the cluster: child policies tell no more
		}
	}
	if t := e.observers.Load(); e.Ejected && t != nil && t.host != nil && l.cfg.Outlier != nil {
		s.until = t.host.Until(l.cfg.Outlier)
	}
	s.unhealthy = e.conn != nil && e.conn.state == picker.Ready && e.Connectivity != picker.Ready && e.conn.child == nil && e.loc.prio.cluster.lb.checksHealth()
	return s
}

// explain explains a priority, which is the i-th of its cluster.
func (p *priority) explain(i int) ExplainedPriority {
	c := p.cluster
	e := ExplainedPriority{
		Leaf: p.leaf.cfg.Name, Index: p.index, InUse: p == c.inUse,
		Ready: p.counts[picker.Ready], Connecting: p.counts[picker.Connecting], Idle: p.counts[picker.Idle], Failed: p.counts[picker.TransientFailure],
	}
	for end := range p.endpoints {
		if end.Draining {
			e.Draining++
		}
	}
	for _, s := range c.shares {
		if s.p == p {
			e.Share = float64(s.part) / shareScale
		}
	}
	if p.phase == trying || p.phase == retired {
		e.Left = brief(time.Duration(p.deadline - c.lb.now()))
	}
	e.Reason = p.reason(i, &e)
	return e
}

// reason says why a priority is in use, or is not.
func (p *priority) reason(i int, e *ExplainedPriority) string {
	c := p.cluster
	inUse := slices.Index(c.order, c.inUse)
	usable := e.Ready+e.Connecting+e.Idle+e.Failed > 0
	switch {
	case e.Share > 0:
		return "shares the load, since too many endpoints have failed"
	case p == c.inUse && takesRPCs(p.connectivity()):
		return "in use: the first that can serve"
	case p == c.inUse && p.phase == trying:
		return fmt.Sprintf("in use: it has %s to connect until the next gets its turn", e.Left)
	case p == c.inUse && p.connectivity() == picker.Connecting:
		return "in use, since none can serve: the first that is connecting"
	case p == c.inUse:
		return "in use, since none can serve: the last"
	case !usable && i < inUse:
		return "no endpoints"
	case p.phase == trying:
		return fmt.Sprintf("connecting, with %s left until it counts as failed; one that was in use serves meanwhile", e.Left)
	case p.phase == failed && p.connectivity() == picker.Connecting:
		return "failed: it has not connected in time, and still tries"
	case p.phase == failed:
		return "failed: no endpoint can be reached"
	case p.phase == retired:
		return fmt.Sprintf("not needed; its connections are kept for another %s", e.Left)
	case p.phase == dormant:
		return "not needed: nothing was connected"
	}
	return "not in use"
}

// notInSubset returns the endpoints that the channel leaves to others (A68).
func (c *cluster) notInSubset() (left []string) {
	if c.received == nil || c.received == c.cfg || len(c.received.Leaves) != len(c.cfg.Leaves) {
		return nil
	}
	for i := range c.received.Leaves {
		if c.cfg.Leaves[i].Policy.Subset == 0 || len(c.cfg.Leaves[i].Priorities) != len(c.received.Leaves[i].Priorities) {
			continue
		}
		kept := map[addrKey]bool{}
		for _, p := range c.cfg.Leaves[i].Priorities {
			for _, l := range p.Localities {
				for _, e := range l.Endpoints.All() {
					kept[keyOf(e)] = true
				}
			}
		}
		for _, p := range c.received.Leaves[i].Priorities {
			for _, l := range p.Localities {
				for _, e := range l.Endpoints.All() {
					if !kept[keyOf(e)] {
						left = append(left, e.Addr.String())
					}
				}
			}
		}
	}
	return left
}
