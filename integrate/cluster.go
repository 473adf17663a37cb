// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
)

// cluster is the live side of one picker.Cluster: its leaves' priorities in
// one list, and which of them is in use (A56).
type cluster struct {
	lb     *lb
	cfg    *picker.Cluster
	sent   *picker.Cluster // that cfg was made of: see adapt
	leaves []*leaf         // parallel to cfg.Leaves
	order  []*priority     // of all leaves, highest first
	inUse  *priority       // nil while none is
	shares []share         // of the load, inUse's first; nil if it takes all

	weighing *time.Timer // runs while weights may change (A58)
	warming  *time.Timer // runs while endpoints are in their slow start

	serving bool // as published: its status was READY or IDLE

	// What picks see of the cluster. Unless dirty they are up to date, and
	// the version in state lets picker.Build take over what it made of them.
	dirty   bool
	view    clusterView
	state   picker.ClusterState
	served  *picker.Cluster       // what state is of: cfg, unless the load is shared
	renamed []balancer.PickResult // as last in view
}

// leaf is the live side of one picker.Leaf.
type leaf struct {
	cfg        *picker.Leaf
	breaker    *breaker
	load       *picker.ClusterLoad
	stopLoad   func()                      // ends load reporting
	metrics    atomic.Pointer[metricNames] // that load reports pass on
	priorities []*priority
	detector   detector
	weighing   atomic.Pointer[weighing] // nil unless the policy is PolicyClientWRR
	lastErr    error                    // of the latest connection attempt that failed
}

// clusterView is what a published snapshot needs of a cluster besides the
// picker's part: outcomes in, gRPC's terms out. It is immutable.
type clusterView struct {
	failed  error                 // for RPCs while no endpoint is reachable; not a status, so that wait-for-ready waits
	drops   []error               // by drop category; statuses, so that they are final (T-DROP-3)
	refused error                 // by the circuit breaker; a status
	picks   []balancer.PickResult // by endpoint index
	renamed []balancer.PickResult // parallel to picks, for routes that rewrite authorities; nil if there are none
	indexes map[*endpoint]int32   // of renamed, where children pick
	hosts   *hosts                // for sessions; nil if there are none
	// sleepers are what an RPC may wake, by endpoint index; nil if endpoints
	// connect by themselves.
	sleepers []sleeper
	// groups are those whose children connect the endpoints, by locality
	// index; nil if there are none.
	groups []*group
}

// onChange follows a change of an endpoint's state in priority p.
func (c *cluster) onChange(p *priority) {
	p.observe()
	c.choose()
	if p == c.inUse || slices.ContainsFunc(c.shares, func(s share) bool { return s.p == p }) {
		c.dirty = true
	}
}

// choose picks the priority to use by A56's ChoosePriority: the first that is
// READY or IDLE or still has time to become so, starting those that had no chance yet.
// With none of these it is the first that is connecting, else the last.
//
// While the choice is still connecting, the priority in use before stays in
// use as long as it is READY: an update that puts a new priority on top takes
// no traffic from where it can be served.
func (c *cluster) choose() {
	chosen := c.walk()
	if chosen != nil && !serves(chosen.connectivity()) {
		if prev := c.inUse; prev != nil && prev.started && prev.connectivity() == picker.Ready {
			chosen = prev
			c.overflow(slices.Index(c.order, prev))
		}
	}
	if len(c.shares) > 0 && (chosen != c.shares[0].p || chosen.connectivity() != picker.Ready) {
		c.shares, c.dirty = nil, true
	}
	if chosen != c.inUse {
		c.inUse = chosen
		c.dirty = true
	}
	if !c.serving && serves(c.status()) {
		c.lb.urgent = true
	}
}

func (c *cluster) walk() *priority {
	for i, p := range c.order {
		p.activate()
		if serves(p.connectivity()) {
			for _, lower := range c.order[i+1+c.overflow(i):] {
				lower.deactivate()
			}
			return p
		}
		if p.failover != nil {
			return p
		}
	}
	for _, p := range c.order {
		if p.connectivity() == picker.Connecting {
			return p
		}
	}
	if n := len(c.order); n > 0 {
		return c.order[n-1]
	}
	return nil
}

// status is what picks of the cluster come to, in a word.
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

// choosy reports whether RPCs may wait for a certain endpoint of the cluster,
// whatever the state of others.
func (c *cluster) choosy() bool { return c.inUse != nil && (c.inUse.lazy() || c.inUse.delegates()) }

// refresh computes view and state if something changed: O(endpoints of the
// priority in use) after a change of the set, else O(1).
func (c *cluster) refresh() {
	if !c.dirty {
		return
	}
	c.dirty = false
	c.lb.version++
	c.state = picker.ClusterState{Version: c.lb.version, Leaf: -1}
	c.view = clusterView{}
	p, status := c.inUse, c.status()
	c.served = c.cfg
	if len(c.shares) > 0 {
		p, c.served = c.merge()
	}
	if status == picker.TransientFailure {
		c.state.Failed = true
		c.view.failed = c.failure()
	}
	if status == picker.Ready || c.choosy() {
		p.reweigh()
		p.derive()
		c.view.picks, c.view.sleepers = p.results, p.sleepers
		c.view.groups = p.groups
		if c.lb.rewrites {
			c.rename(p)
		}
		if c.lb.sessions && !p.delegates() {
			c.view.hosts = findHosts(p)
		}
		c.view.drops, c.view.refused = p.leaf.rejections()
		c.state.Leaf, c.state.Priority = c.leafIndex(p.leaf), p.index
		c.state.Localities = p.state
		c.state.Breaker = p.leaf.breaker.Breaker
		c.state.Drops, c.state.Overload = p.leaf.dropCounters()
	}
}

func (c *cluster) leafIndex(l *leaf) int {
	for i := range c.leaves {
		if c.leaves[i] == l {
			return i
		}
	}
	return -1
}

// failure explains why no endpoint can be picked, in grpc-go's terms where
// users may know them.
func (c *cluster) failure() error {
	p := c.inUse
	var msg string
	switch {
	case c.lb.standalone:
		msg = "no endpoint is reachable"
	case c.cfg.Err != nil:
		return plainError(fmt.Sprintf("xds: cluster %q: %v", c.cfg.Name, c.cfg.Err))
	case p == nil:
		msg = fmt.Sprintf("xds: cluster %q: no targets to pick from", c.cfg.Name)
		for i := range c.cfg.Leaves {
			if note := c.cfg.Leaves[i].Note; note != nil {
				msg += fmt.Sprintf("; cluster %q: %v", c.cfg.Leaves[i].Name, note)
			}
		}
		return plainError(msg)
	case p.counts == [4]int{}:
		msg = fmt.Sprintf("xds: cluster %q: no targets to pick from in priority %d", c.cfg.Name, p.index)
	default:
		msg = fmt.Sprintf("xds: cluster %q: no endpoint of priority %d is reachable", c.cfg.Name, p.index)
	}
	if note := p.leaf.cfg.Note; note != nil {
		msg += fmt.Sprintf(" (%v)", note)
	}
	if n := p.ejected(); n > 0 {
		msg += fmt.Sprintf("; %d of its endpoints are ejected as outliers", n)
	}
	if p.leaf.lastErr != nil {
		msg += fmt.Sprintf("; latest connection error: %v", p.leaf.lastErr)
	}
	return plainError(msg)
}

// rejections returns the statuses of RPCs that the leaf drops or its breaker
// refuses, built once per change.
func (l *leaf) rejections() (drops []error, refused error) {
	for _, d := range l.cfg.Drops {
		drops = append(drops, status.Errorf(codes.Unavailable, "xds: RPC is dropped by category %q of cluster %q", d.Category, l.cfg.Name))
	}
	return drops, status.Errorf(codes.Unavailable, "xds: circuit breaker of cluster %q: max requests %d exceeded on service %q", l.cfg.Name, l.cfg.MaxRequests, l.cfg.Service)
}

func (l *leaf) dropCounters() (drops []*picker.Counter, overload *picker.Counter) {
	for _, d := range l.cfg.Drops {
		drops = append(drops, l.load.Drop(d.Category))
	}
	return drops, l.load.Overload()
}

// plainError is an error that is never taken for a gRPC status, whatever it
// quotes: as a status it would end wait-for-ready RPCs, which are to wait.
type plainError string

func (e plainError) Error() string { return string(e) }

// close releases everything the cluster has.
func (c *cluster) close() {
	halt(&c.weighing)
	halt(&c.warming)
	for _, l := range c.leaves {
		l.close(c.lb)
	}
}
