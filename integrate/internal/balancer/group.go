// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/picker"
)

// group is a set of endpoints that one child policy connects: the endpoints of a locality, or
// of a whole priority whose policy is flat. Custom policies also pick among them (A52); with
// pick_first the snapshot picks, since there is only one endpoint to pick (A62).
//
// To the rest of the balancer all endpoints of a group have the state that its child reports,
// except that with pick_first only the selected endpoint is READY.
//
// A change of policy is graceful: the old child serves until the new child has a better state.
//
// The balancer's mutex guards all fields but childPicker, and all methods.
type group struct {
	groupKey
	leaf       *leafState
	tally      *tally // of the priority
	closed     bool
	first      int         // index of the first locality in the priority
	localities []*locality // never empty
	inputs     inputs

	current, next *child // next is nil unless the policy is being switched
	// childPicker is the picker of the current child. Picks read it without the mutex.
	childPicker atomic.Pointer[childPicker]
	state       picker.Connectivity
	selected    *endpoint // by pick_first; nil unless it is READY
}

// groupKey identifies a group: a different key means a different group.
type groupKey struct {
	kind     picker.PolicyKind
	flat     bool
	locality picker.LocalityID // zero if flat
	// The counters of the endpoints' RPCs.
	breaker *counters.Breaker
	load    *picker.ClusterLoad
}

// childPicker is the state of a child that picks use.
type childPicker struct {
	balancer.Picker
	child             *child
	idle              bool
	exitIdleRequested atomic.Bool // to leave IDLE
}

// covers implements childOwner. Endpoints whose RPCs have other counters belong to another group:
// picks of the published snapshot use the circuit breaker of this one.
func (g *group) covers(l *locality) bool {
	return !g.closed && l.tally == g.tally && (g.flat || l.id == g.locality) && l.leaf.breaker == g.breaker && l.leaf.load == g.load
}

// home implements childOwner.
func (g *group) home() *locality { return g.localities[0] }

// shutdownUnclaimed implements childOwner.
func (g *group) shutdownUnclaimed(c *child) bool {
	if g.current != c {
		return false
	}
	for e := range g.endpoints {
		if own := e.conn; own != nil && own.child == nil {
			own.shutdown()
		}
	}
	return true
}

// onChildClosed implements childOwner. Endpoints that lost their own connection get the
// connection of the child in use.
func (g *group) onChildClosed(c *child) {
	if current := g.current; current != c && !current.closed {
		current.retarget(current.targets)
	}
}

// endpoints visits the endpoints of the group with their configuration.
func (g *group) endpoints(yield func(*endpoint, *picker.Endpoint) bool) {
	for _, l := range g.localities {
		for i, e := range l.endpoints {
			if !yield(e, l.cfg.At(i)) {
				return
			}
		}
	}
}

// update passes the configuration of the priority on to its child if it changed, at a cost of
// O(endpoints).
func (g *group) update(cfg *picker.Priority) {
	name, config := childPolicy(&g.leaf.cfg.Policy)
	in := inputs{name, config, cfg.Localities, cfg.Localities[g.first : g.first+len(g.localities)]}
	if g.inputs.same(&in) {
		return
	}
	g.inputs = in
	c := g.next
	if c == nil {
		c = g.current
	}
	if c == nil || c.name != name {
		c = newChild(g.leaf, g, name)
		g.switchTo(c)
	}
	targets := g.targets()
	if c != g.current {
		g.current.retarget(targets)
	}
	c.update(targets, config, func() resolver.State { return stateOf(in.all, in.ours) })
	if selects(g.kind) {
		g.publishSelected()
	}
}

// switchTo directs updates to a child.
func (g *group) switchTo(c *child) {
	switch {
	case g.current == nil:
		g.current = c
		g.publishState()
	case g.next == nil:
		g.next = c
	default:
		g.next.close()
		g.next = c
	}
}

// targets returns the endpoints in the child's latest list, by address.
func (g *group) targets() map[string]target {
	m := map[string]target{}
	for e, cfg := range g.endpoints {
		if e.Draining {
			continue
		}
		addrs := addressesOf(cfg)
		for _, a := range addrs {
			m[a] = target{e, len(addrs) == 1, hostname(cfg)}
		}
	}
	return m
}

// onChildState handles a state of one of the group's children. The next child takes over when
// it leaves CONNECTING, or when the current one is not READY.
func (g *group) onChildState(c *child) {
	if g.next != nil {
		mine, theirs := g.current.state.ConnectivityState, g.next.state.ConnectivityState
		if mine != connectivity.Ready || c == g.next && theirs != connectivity.Connecting {
			g.current.close()
			g.current, g.next = g.next, nil
		}
	}
	if g.next != nil && c == g.next {
		return
	}
	if g.publishState() {
		g.propagateState()
		g.tally.note(states)
	} else {
		g.tally.note(pickers)
	}
}

// publishState makes the current child's state and picker visible to picks. It reports whether
// the endpoints' states changed.
func (g *group) publishState() (changed bool) {
	c, was, selected := g.current, g.state, g.selected
	g.state = kernelState(c.state.ConnectivityState)
	if was == picker.TransientFailure && g.state == picker.Connecting && !g.flat {
		g.state = was // T-LOC-1, as in weighted_target
	}
	g.childPicker.Store(&childPicker{Picker: c.state.Picker, child: c, idle: g.state == picker.Idle})
	if selects(g.kind) {
		g.publishSelected()
	}
	return g.state != was || g.selected != selected
}

// publishSelected follows gRPC's own pick_first, which connects to the endpoints in order, by
// Happy Eyeballs (A61), and selects one (A62). Its picker returns the selected one; RPCs do not
// use that picker.
//
// When the connection is lost pick_first is IDLE until an RPC makes it start over. If each
// locality has a pick_first, it starts over at once: RPCs go to READY localities, so no RPC
// would trigger it.
func (g *group) publishSelected() {
	g.selected = nil
	switch g.state {
	case picker.Ready:
		res, err := g.current.state.Picker.Pick(balancer.PickInfo{})
		if h, ok := res.SubConn.(*childSubConn); ok && err == nil && h.ready.Load() {
			h.becomeOwn()
			g.selected = h.endpoint.Load()
			g.tally.stale = true
		} else {
			g.state = picker.Connecting // its connection has moved away
		}
	case picker.TransientFailure:
		if g.current.state.ConnectivityState == connectivity.TransientFailure {
			_, err := g.current.state.Picker.Pick(balancer.PickInfo{})
			g.leaf.noteError(g.tally, err)
		}
	case picker.Idle:
		if !g.flat {
			g.state = picker.Connecting
			g.current.exitIdle()
		}
	}
}

// propagateState sets the state of the group's endpoints to its own.
func (g *group) propagateState() {
	for e := range g.endpoints {
		if g.state == picker.Ready && g.selected != nil && g.selected != e {
			e.setState(picker.Idle)
		} else {
			e.setState(g.state)
		}
	}
}

// onEjection notifies the children that outlier detection has ejected an endpoint, or let it
// return (A50).
func (g *group) onEjection(e *endpoint) {
	for h := range g.subConns(e) {
		h.onEjection()
	}
}

// subConns visits the children's SubConns for an endpoint.
func (g *group) subConns(e *endpoint) iter.Seq[*childSubConn] {
	return func(yield func(*childSubConn) bool) {
		for c := range g.children {
			for h := range c.conns {
				if h.endpoint.Load() == e && !yield(h) {
					return
				}
			}
		}
	}
}

func (g *group) children(yield func(*child) bool) {
	for _, c := range []*child{g.current, g.next} {
		if c != nil && !yield(c) {
			return
		}
	}
}

// close closes the group. Its connections are closed after its children.
func (g *group) close() {
	g.closed = true
	for c := range g.children {
		c.close()
	}
}

// childPolicy returns the policy of a group by its name in gRPC's registry.
func childPolicy(p *picker.Policy) (name string, config json.RawMessage) {
	switch {
	case p.Custom != nil:
		return p.Custom.Name, p.Custom.Config
	case p.First != nil && p.First.Shuffle:
		return pickfirst.Name, json.RawMessage(`{"shuffleAddressList":true}`)
	default:
		return pickfirst.Name, json.RawMessage(`{}`)
	}
}

// inputs are the sources of a child's endpoints and configuration.
type inputs struct {
	name   string
	config json.RawMessage
	all    []picker.Locality // of the priority, for the weights
	ours   []picker.Locality
}

// same reports whether two inputs are the same to the child.
func (in *inputs) same(as *inputs) bool {
	return in.name == as.name && bytes.Equal(in.config, as.config) &&
		slices.EqualFunc(in.all, as.all, func(a, b picker.Locality) bool { return a.ID == b.ID && a.Weight == b.Weight }) &&
		slices.EqualFunc(in.ours, as.ours, picker.Locality.Same)
}

// The functions below manage the groups of a priority.

// syncGroups updates the priority's groups to its configuration: O(endpoints) of the groups
// that changed.
func (p *priority) syncGroups() {
	olds := slices.Clone(p.groups) // picks read the published slice
	p.groups = make([]*group, len(p.localities))
	if p.leaf.cfg.Policy.Flat && len(p.localities) > 0 {
		p.syncGroup(olds, 0, p.localities)
	} else {
		for i := range p.localities {
			p.syncGroup(olds, i, p.localities[i:i+1])
		}
	}
	for _, g := range olds {
		if g != nil {
			p.releaseConns(g)
		}
	}
	for g := range p.liveGroups {
		g.update(p.cfg)
		g.propagateState()
	}
	p.recount()
	p.note(picks)
}

// syncGroup sets the group of a range of localities: the previous group, which it removes from
// olds, or a new one. There is no group if all endpoints are draining, or if the priority is
// retired and had no group.
func (p *priority) syncGroup(olds []*group, first int, members []*locality) {
	key := groupKey{kind: p.leaf.cfg.Policy.Kind, flat: p.leaf.cfg.Policy.Flat, breaker: p.leaf.breaker, load: p.leaf.load}
	if !key.flat {
		key.locality = members[0].id
	}
	var g *group
	if slices.ContainsFunc(members, (*locality).usable) {
		if i := slices.IndexFunc(olds, func(g *group) bool { return g != nil && g.groupKey == key }); i >= 0 {
			g, olds[i] = olds[i], nil
		} else if p.phase == retired {
			p.needsConnect = true
		} else {
			g = &group{groupKey: key, leaf: p.leaf, tally: &p.tally, state: picker.Connecting}
		}
	}
	for _, l := range members {
		for _, e := range l.endpoints {
			if c := e.conn; c != nil && c.child == nil && (c.multiAddress() || e.Draining) {
				c.shutdown() // the child must choose among the addresses
			}
			if g == nil {
				e.setState(picker.Connecting)
			}
		}
	}
	if g != nil {
		g.first, g.localities = first, slices.Clone(members)
		p.groups[first] = g
	}
}

// liveGroups visits the existing groups.
func (p *priority) liveGroups(yield func(*group) bool) {
	for _, g := range p.groups {
		if g != nil && !yield(g) {
			return
		}
	}
}

// closeGroups ends the groups of a priority whose policy the snapshot implements itself, and
// keeps their connections.
func (p *priority) closeGroups() {
	if p.groups == nil {
		return
	}
	olds := p.groups
	p.groups = nil
	for _, g := range olds {
		if g != nil {
			p.releaseConns(g)
		}
	}
	for e := range p.endpoints {
		e.resume()
	}
	p.invalidate()
	p.recount()
}

// releaseConns ends a group, and returns the endpoints' own connections to the balancer. The
// connections of endpoints with several addresses are closed with the group, because the
// balancer makes no such connections.
func (p *priority) releaseConns(g *group) {
	g.close()
	for _, l := range p.localities {
		for i, e := range l.endpoints {
			c := e.conn
			if c == nil || c.child == nil || c.child.child.owner != g {
				continue
			}
			if multiAddressed(l.cfg.At(i)) {
				e.conn = nil
			} else {
				c.releaseFromChild()
				e.renameConn(l.cfg.At(i)) // the child may have the previous hostname
			}
		}
	}
}

// onEjection notifies the child policies, if they connect the endpoint, that it was ejected, or
// returned.
func (p *priority) onEjection(e *endpoint) {
	for g := range p.liveGroups {
		if g.covers(e.loc) {
			g.onEjection(e)
		}
	}
}
