// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// WhatIf is a question to ExplainWhatIf.
type WhatIf struct {
	// Target is that of the channel, such as "xds:///orders:8080", and Method the RPC's.
	Target, Method string
	// Authority is the channel's, by which the virtual host is chosen; "" is what the
	// target names.
	Authority string
	// Resources is JSON with the target's resources, in protobuf's mapping. Resources are
	// all objects whose "@type" is one of the four types, however deep: those of a
	// DiscoveryResponse, of a dump by CSDS, or of a plain list. Members of collections (LEDS)
	// have the name of the object that they are in, as in a dump or a discovery.v3.Resource.
	// Those in lists named lds,
	// rds, cds and eds, or listeners, routes, clusters and endpoints, need not say their
	// type. Several documents may follow each other.
	Resources []byte
	// States are those of the endpoints by their first address; the others are READY.
	States map[netip.AddrPort]connectivity.State
	// Config is that of the channel. Only what decides about picks counts: Policies,
	// IgnoreEndpointWeights, LocalCluster, the bounds of hash tables, and the Bootstrap, if it is set,
	// for certificate providers, trusted_xds_server and the locality of the node.
	Config Config
}

// ExplainWhatIf explains an RPC by resources from a file, as Explain does by those of a
// channel. It needs no control plane and touches no backend. Endpoints have been READY for
// long and have nothing in flight, none is ejected, and sessions have no endpoint; what picks by the channel's id, or
// by a random subset (A68), does so for some channel. Priorities that can serve by States
// are used, and those that are CONNECTING if none can, as after the failover time.
//
// A resource that is missing or invalid is what it would be from a server that had sent no
// other version: an error, or the failure of the cluster that needs it.
func ExplainWhatIf(ctx context.Context, w WhatIf) (*Explanation, error) {
	if err := checkMethod(w.Method); err != nil {
		return nil, err
	}
	cfg, err := w.assemble()
	if err != nil {
		return nil, err
	}
	return w.explain(withoutUserCode(ctx), cfg)
}

// explain explains an RPC by a configuration.
func (w *WhatIf) explain(ctx context.Context, cfg *picker.Config) (*Explanation, error) {
	world, err := w.suppose(cfg)
	if err != nil {
		return nil, err
	}
	x := explainer{ctx: ctx, table: &perrpc.Table{Snapshot: world.snapshot, Config: world.cfg, Plans: world.plans}, applied: true, now: supposedAge}
	x.Target = w.Target
	x.begin(w.Method)
	x.clusters(func(name string, _ uint64) *subject { return world.clusters[name].subject() })
	return &x.Explanation, nil
}

// assemble makes the configuration of the resources.
func (w *WhatIf) assemble() (*picker.Config, error) {
	a, boot, err := w.decode()
	if err != nil {
		return nil, err
	}
	return w.configOf(a, boot)
}

// decode reads the resources, and the bootstrap if there is one.
func (w *WhatIf) decode() (*xds.Assembly, *bootstrap.Config, error) {
	resources, err := parseResources(w.Resources)
	if err != nil {
		return nil, nil, err
	}
	var boot *bootstrap.Config
	if w.Config.Bootstrap != nil {
		if boot, err = w.Config.bootstrap(); err != nil {
			return nil, nil, err
		}
	}
	a, err := xds.NewAssembly(resources, boot, xds.Options{
		Filter: perrpc.FilterType, Policies: w.Config.Policies, LocalCluster: w.Config.LocalCluster, MaxTableSize: w.Config.MaxTableSize, MaxHashBytes: w.Config.MaxHashBytes,
	})
	return a, boot, err
}

// configOf makes the target's configuration of resources that are decoded.
func (w *WhatIf) configOf(a *xds.Assembly, boot *bootstrap.Config) (*picker.Config, error) {
	listener, authority, err := w.names(boot)
	if err != nil {
		return nil, err
	}
	return a.Config(listener, authority)
}

// names returns the names of the listener and of the authority.
func (w *WhatIf) names(boot *bootstrap.Config) (listener, authority string, err error) {
	u, err := url.Parse(w.Target)
	if err != nil {
		return "", "", fmt.Errorf("xdslb: target: %w", err)
	}
	endpoint := resolver.Target{URL: *u}.Endpoint()
	if u.Scheme != "xds" && u.Scheme != "xdslb" {
		return "", "", fmt.Errorf("xdslb: target %q is of neither scheme xds nor xdslb", w.Target)
	}
	listener, authority = endpoint, w.Authority
	if authority == "" {
		authority = endpoint
	}
	if boot != nil {
		listener, err = boot.ListenerName(u.Host, endpoint)
	}
	return listener, authority, err
}

// supposedWorld is a configuration with endpoints in the states that are supposed, and what
// picks read of it.
type supposedWorld struct {
	cfg      *picker.Config // with what is the channel's own
	plans    *perrpc.Plans
	snapshot *picker.Snapshot
	clusters map[string]*supposedCluster
}

// supposedCluster is a cluster of it.
type supposedCluster struct {
	cfg        *picker.Cluster
	priorities []supposed
	inUse      int // index in priorities; -1 is none
	failure    error
}

// suppose makes up the states of a configuration's endpoints.
func (w *WhatIf) suppose(cfg *picker.Config) (*supposedWorld, error) {
	channel := newLB(nil, balancer.BuildOptions{}) // for what is a channel's own
	channel.setOptions(w.Config.withDefaults())
	world := &supposedWorld{cfg: channel.channelConfigLocked(cfg, channel.list.differing(cfg.Clusters)), clusters: map[string]*supposedCluster{}}
	_, world.plans = perrpc.Compile(world.cfg, perrpc.CompileOptions{})
	states := make([]picker.ClusterState, len(world.cfg.Clusters))
	for i, c := range world.cfg.Clusters {
		made := w.supposeCluster(c)
		world.clusters[c.Name], states[i] = made, made.state()
	}
	env := channel.envLocked()
	env.Now = supposedAge
	var err error
	world.snapshot, err = picker.Build(nil, world.cfg, states, env)
	return world, err
}

// supposedAge is for how long endpoints have been READY: longer than any slow start.
const supposedAge = int64(1000 * time.Hour)

// supposeCluster makes up the state of a cluster.
func (w *WhatIf) supposeCluster(c *picker.Cluster) *supposedCluster {
	s := &supposedCluster{cfg: c, failure: c.Err}
	for i := range c.Leaves {
		for k := range c.Leaves[i].Priorities {
			s.priorities = append(s.priorities, w.supposePriority(&c.Leaves[i], i, k))
		}
	}
	s.inUse = choose(s.priorities)
	switch {
	case s.inUse >= 0 && s.priorities[s.inUse].connectivity() == picker.TransientFailure:
		s.failure = fmt.Errorf("xds: cluster %q: no endpoint of priority %d is reachable", c.Name, s.priorities[s.inUse].index)
	case s.inUse < 0 && s.failure == nil:
		s.failure = fmt.Errorf("xds: cluster %q: no targets to pick from", c.Name)
	}
	return s
}

// state is the cluster's for a snapshot.
func (s *supposedCluster) state() picker.ClusterState {
	if s.inUse < 0 {
		return picker.ClusterState{Version: 1, Leaf: -1, Failed: true}
	}
	p := &s.priorities[s.inUse]
	state := picker.ClusterState{
		Version: 1, Leaf: p.leafIndex, Priority: p.index, Localities: p.states, Breaker: p.breaker, Overload: new(picker.Counter),
	}
	for range p.leaf.Drops {
		state.Drops = append(state.Drops, new(picker.Counter))
	}
	return state
}

// subject is what there is to know of the cluster.
func (s *supposedCluster) subject() *subject {
	of := &subject{usesTLS: true, failure: s.failure}
	for i := range s.priorities {
		of.priorities = append(of.priorities, s.priorities[i].explain(i, s.inUse))
	}
	switch {
	case s.inUse >= 0:
		p := &s.priorities[s.inUse]
		of.leaf, of.localities, of.connectable, of.note = p.leaf, p.localities, p.leaf.Policy.Hashes(), p.leaf.ResolutionNote
	case len(s.cfg.Leaves) > 0:
		of.leaf, of.note = &s.cfg.Leaves[0], s.cfg.Leaves[0].ResolutionNote
	}
	return of
}

// supposed is a priority whose endpoints have the states that are supposed.
type supposed struct {
	leaf             *picker.Leaf
	leafIndex, index int
	breaker          *picker.Breaker
	states           []picker.LocalityState
	localities       []subjectLocality
	counts           [4]int // endpoints by state, without draining ones
	draining         int
}

func (w *WhatIf) supposePriority(leaf *picker.Leaf, leafIndex, index int) supposed {
	p := supposed{leaf: leaf, leafIndex: leafIndex, index: index, breaker: new(picker.Breaker)}
	localities := leaf.Priorities[index].Localities
	for i := range localities {
		l := &localities[i]
		load := new(picker.Load)
		binding := countingOf(&leaf.Policy).binding(load, p.breaker, stoppedClock)
		states, known := make(picker.StateSlice, l.Endpoints.Len()), subjectLocality{cfg: l}
		for k, cfg := range l.Endpoints.All() {
			e := &picker.EndpointState{Connectivity: w.stateOf(cfg.Addr)}
			e.Bind(binding)
			states[k] = e
			known.endpoints = append(known.endpoints, subjectEndpoint{cfg: cfg, state: e})
			if cfg.Health == picker.Draining {
				p.draining++
			} else {
				p.counts[e.Connectivity]++
			}
		}
		p.states = append(p.states, picker.LocalityState{Load: load, Endpoints: states})
		p.localities = append(p.localities, known)
	}
	return p
}

func (w *WhatIf) stateOf(a netip.AddrPort) picker.Connectivity {
	if s, ok := w.States[a]; ok {
		return kernelState(s)
	}
	return picker.Ready
}

// connectivity aggregates the endpoints' states, as priority.connectivity does.
func (p *supposed) connectivity() picker.Connectivity {
	c := &p.counts
	if p.leaf.Policy.Hashes() {
		state, _ := picker.RingState(c[picker.Idle], c[picker.Connecting], c[picker.Ready], c[picker.TransientFailure])
		return state
	}
	switch {
	case c[picker.Ready] > 0:
		return picker.Ready
	case c[picker.Connecting]+c[picker.Idle] > 0:
		return picker.Connecting
	}
	return picker.TransientFailure
}

// choose returns the priority in use, as cluster.choosePriority does when the failover time
// of all is over; -1 if there is none.
func choose(all []supposed) int {
	for _, wanted := range []func(picker.Connectivity) bool{takesRPCs, func(s picker.Connectivity) bool { return s == picker.Connecting }} {
		for i := range all {
			if wanted(all[i].connectivity()) {
				return i
			}
		}
	}
	return len(all) - 1
}

// explain explains the priority, which is the i-th.
func (p *supposed) explain(i, inUse int) ExplainedPriority {
	e := ExplainedPriority{
		Leaf: p.leaf.Name, Index: p.index, InUse: i == inUse,
		Ready: p.counts[picker.Ready], Connecting: p.counts[picker.Connecting], Idle: p.counts[picker.Idle], Failed: p.counts[picker.TransientFailure], Draining: p.draining,
	}
	switch {
	case i > inUse:
		e.Reason = "not needed"
	case i == inUse && takesRPCs(p.connectivity()):
		e.Reason = "in use: the first that can serve"
	case i == inUse:
		e.Reason = "in use, since none can serve"
	case p.counts == [4]int{}:
		e.Reason = "no endpoints"
	default:
		e.Reason = "no endpoint can be reached in time"
	}
	return e
}
