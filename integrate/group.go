// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
)

// group is a set of endpoints that one child policy connects: those of a
// locality, or of a whole priority whose policy is flat. Custom policies pick
// among them too; with pick_first the snapshot does, since there is but one to
// pick from.
//
// To the rest of the balancer all endpoints of a group are in the state that
// its child reports, except that pick_first's selected one alone is READY.
//
// Another policy takes over gracefully: the old child serves until the new one
// has something better to offer.
type group struct {
	groupKey
	prio       *priority
	first      int         // index of the first locality in the priority
	localities []*locality // never empty
	inputs     inputs

	current, next *child // next is nil unless the policy is being switched
	// shown is what picks ask: the current child's picker. Picks read it
	// without the mutex.
	shown    atomic.Pointer[shownPicker]
	state    picker.Connectivity
	selected *endpoint // by pick_first; nil while it is not READY
}

// groupKey says what makes a group another one.
type groupKey struct {
	kind     picker.PolicyKind
	flat     bool
	locality picker.LocalityID // zero if flat
	// What the endpoints' RPCs are counted with.
	breaker *breaker
	load    *picker.ClusterLoad
}

// shownPicker is a state of a child as picks see it.
type shownPicker struct {
	balancer.Picker
	child *child
	idle  bool
	asked atomic.Bool // to leave IDLE
}

// update passes the group's configuration on to its child if it changed:
// O(endpoints) then.
func (g *group) update() {
	cfg := g.prio.cfg
	name, config := childPolicy(&g.prio.leaf.cfg.Policy)
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
		c = g.replace(newChild(g, name))
	}
	endpoints := g.byAddress()
	if c != g.current {
		g.current.endpoints = endpoints
		g.current.rebind()
	}
	c.update(endpoints, config, func() resolver.State { return stateOf(in.all, in.ours) })
	if g.kind == picker.PolicyPickFirst {
		g.presentFirst()
	}
}

// replace makes a child the one that updates go to.
func (g *group) replace(c *child) *child {
	switch {
	case g.current == nil:
		g.current = c
		g.present()
	case g.next == nil:
		g.next = c
	default:
		g.next.close()
		g.next = c
	}
	return c
}

// byAddress returns the endpoints that the child is told of.
func (g *group) byAddress() map[string]*endpoint {
	m := map[string]*endpoint{}
	for _, l := range g.localities {
		for i, e := range l.endpoints {
			addrs := addressesOf(&l.cfg[i])
			e.manifold = len(addrs) > 1
			if e.draining {
				continue
			}
			for _, a := range addrs {
				m[a] = e
			}
		}
	}
	return m
}

// heard follows a new state of one of the group's children. The next one takes
// over when it has come to something, or the current one is not READY.
func (g *group) heard(c *child) {
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
	p := g.prio
	if g.present() {
		g.spread()
		p.cluster.onChange(p)
		p.cluster.lb.publishSoon()
	} else if p.cluster.inUse == p {
		p.cluster.lb.wakeWaiting()
	}
}

// present shows the current child's state and picker to picks. It reports
// whether the endpoints' states changed.
func (g *group) present() (changed bool) {
	c := g.current
	state := connectivityOf(c.state.ConnectivityState)
	if g.state == picker.TransientFailure && state == picker.Connecting && !g.flat {
		state = g.state // T-LOC-1, as weighted_target has it
	}
	g.shown.Store(&shownPicker{Picker: c.state.Picker, child: c, idle: state == picker.Idle})
	changed = g.state != state
	g.state = state
	if g.kind == picker.PolicyPickFirst {
		changed = g.presentFirst() || changed
	}
	return changed
}

// spread puts the group's endpoints into its state.
func (g *group) spread() {
	for _, l := range g.localities {
		for _, e := range l.endpoints {
			e.set(g.stateFor(e))
		}
	}
}

// close ends the group. Its connections are closed when its children have
// ended.
func (g *group) close() {
	for _, c := range []*child{g.current, g.next} {
		if c != nil {
			c.close()
		}
	}
}

// childPolicy returns the policy of a group by its name in gRPC's registry.
func childPolicy(p *picker.Policy) (name string, config json.RawMessage) {
	switch {
	case p.Kind == picker.PolicyCustom:
		return p.Custom.Name, p.Custom.Config
	case p.First != nil && p.First.Shuffle:
		return pickfirst.Name, json.RawMessage(`{"shuffleAddressList":true}`)
	default:
		return pickfirst.Name, json.RawMessage(`{}`)
	}
}

// inputs are what a child's endpoints and configuration are made of.
type inputs struct {
	name   string
	config json.RawMessage
	all    []picker.Locality // of the priority, for the weights
	ours   []picker.Locality
}

// same reports whether two inputs tell the child the same.
func (in *inputs) same(as *inputs) bool {
	return in.name == as.name && bytes.Equal(in.config, as.config) &&
		slices.EqualFunc(in.all, as.all, func(a, b picker.Locality) bool { return a.ID == b.ID && a.Weight == b.Weight }) &&
		slices.EqualFunc(in.ours, as.ours, func(a, b picker.Locality) bool {
			return sameSlice(a.Endpoints, b.Endpoints) && sameMetadata(a.Metadata, b.Metadata)
		})
}

func connectivityOf(s connectivity.State) picker.Connectivity {
	switch s {
	case connectivity.Ready:
		return picker.Ready
	case connectivity.Idle:
		return picker.Idle
	case connectivity.Connecting:
		return picker.Connecting
	default:
		return picker.TransientFailure
	}
}
