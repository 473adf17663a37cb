// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// InspectWhatIf says what a channel would be at by resources from a file, with each route and
// endpoint: the TargetStatus of Channel.Inspect, of which Time, Clusters, RouteTable and the
// like are set that do not take a channel. See ExplainWhatIf; WhatIf.Method does not count.
func InspectWhatIf(w WhatIf) (*TargetStatus, error) {
	cfg, err := w.assemble()
	if err != nil {
		return nil, err
	}
	return w.inspect(cfg)
}

// InspectTargets is InspectWhatIf for several targets of the same resources, which it reads
// once. Of a target that cannot be served there is the Error. Of w, Target and Authority do
// not count.
func InspectTargets(w WhatIf, targets []string) ([]TargetStatus, error) {
	a, boot, err := w.decode()
	if err != nil {
		return nil, err
	}
	list := make([]TargetStatus, len(targets))
	w.Authority = ""
	for i := range targets {
		w.Target = targets[i]
		var s *TargetStatus
		cfg, err := w.configOf(a, boot)
		if err == nil {
			s, err = w.inspect(cfg)
		}
		if err != nil {
			s = &TargetStatus{Target: w.Target, Error: err.Error()}
		}
		list[i] = *s
	}
	return list, nil
}

// inspect is InspectWhatIf for a configuration.
func (w *WhatIf) inspect(cfg *picker.Config) (*TargetStatus, error) {
	world, err := w.suppose(cfg)
	if err != nil {
		return nil, err
	}
	s := &TargetStatus{Time: time.Now(), Target: w.Target, Connectivity: "TRANSIENT_FAILURE", Routes: len(cfg.Routes)}
	for i := range cfg.Routes {
		s.RouteTable = append(s.RouteTable, routeStatus(i, &cfg.Routes[i], cfg.MaxStreamDuration))
	}
	x := &explainer{now: supposedAge, clock: func(int64) time.Time { return time.Time{} }}
	for i, c := range world.cfg.Clusters {
		status := x.inspectSupposed(world.clusters[c.Name], world.snapshot.ExplainCluster(context.Background(), -1, int32(i)))
		if status.State == "READY" {
			s.Connectivity = status.State
		}
		s.Clusters = append(s.Clusters, status)
	}
	return s, nil
}

// inspectSupposed returns the status of a supposed cluster.
func (x *explainer) inspectSupposed(c *supposedCluster, kernel *picker.ClusterExplanation) ClusterStatus {
	s := ClusterStatus{Name: c.cfg.Name, Priority: c.inUse, State: stateName(picker.TransientFailure), Error: errorText(c.failure), Zones: zonesStatus(kernel.Routing)}
	if c.inUse >= 0 {
		s.State = stateName(c.priorities[c.inUse].connectivity())
	}
	for i := range c.cfg.Leaves {
		l := &c.cfg.Leaves[i]
		leaf := LeafStatus{
			Name: l.Name, Service: l.Service, Policy: policyLabel(&l.Policy), TLS: l.TLS != nil, TLSSettings: explainTLS(l.TLS, true),
			Note: errorText(l.ResolutionNote), MaxRequests: l.MaxRequests, Unhealthy: unhealthyOf(l),
		}
		for _, d := range l.Drops {
			leaf.Drops = append(leaf.Drops, DropStatus{Category: d.Category, PerMillion: d.PerMillion})
		}
		for k := range c.priorities {
			if p := &c.priorities[k]; p.leafIndex == i {
				leaf.Priorities = append(leaf.Priorities, x.inspectPriority(p, k, k == c.inUse, kernel))
			}
		}
		s.Leaves = append(s.Leaves, leaf)
	}
	return s
}

// inspectPriority returns the status of a supposed priority.
func (x *explainer) inspectPriority(p *supposed, number int, inUse bool, kernel *picker.ClusterExplanation) PriorityStatus {
	s := PriorityStatus{Priority: number, Phase: dormant.String(), State: stateName(p.connectivity()), InUse: inUse, Endpoints: EndpointCounts{
		Ready: p.counts[picker.Ready], Connecting: p.counts[picker.Connecting], Idle: p.counts[picker.Idle], Failed: p.counts[picker.TransientFailure], Draining: p.draining,
	}}
	switch {
	case inUse && takesRPCs(p.connectivity()):
		s.Phase = serving.String()
	case p.connectivity() == picker.TransientFailure:
		s.Phase = failed.String()
	}
	of := &subject{leaf: p.leaf, localities: p.localities, unused: !inUse}
	index := 0
	for i := range p.localities {
		l := &p.localities[i]
		out := LocalityStatus{Region: l.cfg.ID.Region, Zone: l.cfg.ID.Zone, SubZone: l.cfg.ID.SubZone, Weight: l.cfg.Weight}
		if inUse && i < len(kernel.Localities) && !p.leaf.Policy.Flat {
			out.Share = kernel.Localities[i]
		}
		for k := range l.endpoints {
			var share picker.EndpointShare
			if inUse && index < len(kernel.Endpoints) {
				share = kernel.Endpoints[index]
			}
			index++
			out.Share += share.Share
			out.Endpoints = append(out.Endpoints, EndpointStatus{
				ExplainedEndpoint: x.endpoint(of, &l.endpoints[k], share, inUse && p.leaf.Policy.Kind == picker.PolicyCustom, 0),
				Draining:          l.endpoints[k].cfg.Health == picker.Draining,
			})
			s.Endpoints.Total++
		}
		s.Localities = append(s.Localities, out)
	}
	return s
}

// Picks are where a number of RPCs went that were picked by resources from a file.
type Picks struct {
	RPCs      int              `json:"rpcs"`
	Endpoints []PickedEndpoint `json:"endpoints"` // those of the priorities in use, in the order of the configuration
	// Waiting, Failed and NoRoute are the RPCs that got no endpoint; Refused those that drops
	// or the circuit breaker would not have let through.
	Waiting int `json:"waiting"`
	Failed  int `json:"failed"`
	NoRoute int `json:"no_route"`
	Refused int `json:"refused"`
	// Delegated are those that a child policy would have picked for.
	Delegated int `json:"delegated"`
}

// PickedEndpoint is how many of the RPCs an endpoint got.
type PickedEndpoint struct {
	Cluster string `json:"cluster"`
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
	Address string `json:"address"`
	RPCs    int    `json:"rpcs"`
}

// PickWhatIf makes so many picks by resources from a file, each RPC ending before the next
// begins. A policy that hashes gets a random hash with each, unless ctx has one, or a header
// that is hashed: see ExplainWhatIf. It ends early if ctx does.
func PickWhatIf(ctx context.Context, w WhatIf, rpcs int) (*Picks, error) {
	if err := checkMethod(w.Method); err != nil {
		return nil, err
	}
	cfg, err := w.assemble()
	if err != nil {
		return nil, err
	}
	world, err := w.suppose(cfg)
	if err != nil {
		return nil, err
	}
	p := &Picks{}
	counts, states := make([][]int, len(world.cfg.Clusters)), make([][]*picker.EndpointState, len(world.cfg.Clusters))
	for i, c := range world.cfg.Clusters {
		states[i] = world.clusters[c.Name].endpoints()
		counts[i] = make([]int, len(states[i]))
	}
	plain := withoutUserCode(ctx)
	for ; p.RPCs < rpcs && (p.RPCs%1024 != 0 || ctx.Err() == nil); p.RPCs++ {
		r := world.snapshot.Pick(plain, w.Method, rand.Uint64())
		switch r.Outcome {
		case picker.Picked, picker.PickedConnect:
			counts[r.Cluster][r.Index]++
			states[r.Cluster][r.Index].FinishTimed(picker.CallOK)
		case picker.Queue, picker.QueueConnect:
			p.Waiting++
		case picker.NoRoute, picker.NotForwarding:
			p.NoRoute++
		case picker.Dropped, picker.Overloaded:
			p.Refused++
		case picker.Delegate:
			p.Delegated++
		default:
			p.Failed++
		}
	}
	for i, c := range world.cfg.Clusters {
		p.add(c.Name, world.clusters[c.Name], counts[i])
	}
	return p, ctx.Err()
}

// endpoints returns the endpoints of the priority in use.
func (s *supposedCluster) endpoints() (list []*picker.EndpointState) {
	if s.inUse >= 0 {
		for _, l := range s.priorities[s.inUse].localities {
			for _, e := range l.endpoints {
				list = append(list, e.state)
			}
		}
	}
	return list
}

// add adds the counts of a cluster's endpoints.
func (p *Picks) add(cluster string, s *supposedCluster, counts []int) {
	if s.inUse < 0 {
		return
	}
	at := 0
	for _, l := range s.priorities[s.inUse].localities {
		for _, e := range l.endpoints {
			p.Endpoints = append(p.Endpoints, PickedEndpoint{cluster, l.cfg.ID.Region, l.cfg.ID.Zone, l.cfg.ID.SubZone, e.cfg.Addr.String(), counts[at]})
			at++
		}
	}
}
