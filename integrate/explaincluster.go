// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
)

// explainer joins what a snapshot says of an RPC with what else there is to know.
type explainer struct {
	Explanation
	ctx     context.Context // see withoutUserCode
	table   *perrpc.Table
	applied bool // interceptors do what routes ask for

	now   int64 // on the clock of EndpointState.StateSince
	clock func(at int64) time.Time
}

// subject is what there is to know of a cluster besides its snapshot: that of a channel,
// or a supposed one.
type subject struct {
	leaf        *picker.Leaf // in use, as published; nil if none is
	priorities  []ExplainedPriority
	localities  []subjectLocality // of the priority in use
	sessions    *hosts            // nil if there are none
	connectable bool              // endpoints connect on demand
	inSession   bool              // the RPC's session decides
	passedBy    bool              // the locality at hand gets no RPCs, for its zone
	unused      bool              // the priority is not in use
	notInSubset []string
	failure     error
	usesTLS     bool
	note        error
}

type subjectLocality struct {
	cfg       *picker.Locality
	child     string // that picks, with its state
	endpoints []subjectEndpoint
}

type subjectEndpoint struct {
	cfg       *picker.Endpoint
	state     *picker.EndpointState
	err       error // why it cannot be connected
	until     int64 // of its ejection
	unhealthy bool  // it is connected, and its health service does not say SERVING
}

// begin explains the routes.
func (x *explainer) begin(method string) {
	x.Method, x.Time = method, time.Now().Round(0).UTC()
	var checks []picker.RouteCheck
	checks, x.NoRoute = x.table.Snapshot.ExplainRoutes(x.ctx, method)
	inServiceConfig := x.table.InServiceConfig()
	for i := range checks {
		c := &checks[i]
		cfg := &x.table.Config.Routes[c.Route]
		r := ExplainedRoute{Index: c.Route, Name: cfg.Name, Path: matchText(&cfg.Path), Mismatch: conditionText(cfg, c), Probability: c.Probability}
		if c.Failed == picker.ConditionNone {
			x.route(&r, cfg, inServiceConfig[c.Route])
		}
		x.Routes = append(x.Routes, r)
	}
}

// route explains what a route asks for that the RPC may take.
func (x *explainer) route(r *ExplainedRoute, cfg *picker.Route, inServiceConfig bool) {
	if cfg.Fraction != nil {
		f := float64(*cfg.Fraction) / 1e6
		r.Fraction = &f
	}
	if r.NotForwarding = len(cfg.Clusters) == 0; r.NotForwarding {
		return
	}
	r.RewriteAuthority = cfg.AutoHostRewrite
	for _, h := range cfg.Hash {
		r.Hash = append(r.Hash, hashPolicyText(&h))
	}
	p := x.table.Explain(x.ctx, x.Method, r.Index)
	if p.Timeout > 0 {
		r.Timeout = p.Timeout.String()
	}
	if r.Retry = explainRetry(p.Retry); r.Retry != nil {
		r.Retry.Hedged = cfg.Hedge
	}
	if r.Timeout != "" || r.Retry != nil {
		switch {
		case inServiceConfig:
			r.AppliedBy = "gRPC (service config)"
		case x.applied:
			r.AppliedBy = "interceptors"
		default:
			r.AppliedBy = "nobody: the channel has no interceptors"
		}
	}
	if p.Cookie != "" && x.applied {
		r.Session = &ExplainedSession{Cookie: p.Cookie, Cluster: p.Cluster}
		for _, a := range p.Hosts {
			r.Session.Hosts = append(r.Session.Hosts, a.String())
		}
	}
}

func hashPolicyText(h *picker.HashPolicy) string {
	text := "channel id"
	if h.Header != "" {
		text = fmt.Sprintf("header %q", h.Header)
	}
	if h.Rewrite != nil {
		text += fmt.Sprintf(" with %q made %q", h.Rewrite, h.Substitution)
	}
	if h.Terminal {
		text += ", terminal"
	}
	return text
}

func explainRetry(p *picker.RetryPolicy) *ExplainedRetry {
	if p == nil {
		return nil
	}
	r := &ExplainedRetry{MaxAttempts: p.MaxAttempts, BaseBackoff: p.BaseBackoff.String(), MaxBackoff: p.MaxBackoff.String(), OtherHosts: p.OtherHosts}
	for _, c := range p.On {
		r.On = append(r.On, codes.Code(c).String())
	}
	return r
}

// clusters explains the clusters of all routes that the RPC may take. find returns what is
// known of the cluster of a name, if that is of the version; nil is nothing.
func (x *explainer) clusters(find func(name string, version uint64) *subject) {
	for i := range x.Routes {
		r := &x.Routes[i]
		if r.Probability == 0 || r.NotForwarding {
			continue
		}
		for _, to := range x.targets(r) {
			name := x.table.Config.Clusters[to.Cluster].Name
			kernel := x.table.Snapshot.ExplainCluster(x.ctx, int32(r.Index), to.Cluster)
			c := ExplainedCluster{Name: name, Share: to.Share}
			x.filters(&c, r)
			if s := find(name, kernel.Version); s != nil {
				s.session(r, kernel)
				x.cluster(&c, s, kernel)
			} else {
				c.Note = "the channel's next configuration has the cluster no more, or otherwise: ask again"
			}
			c.Picked, c.Delegated, c.Waits, c.Fails = kernel.Picked, kernel.Delegated, kernel.Waits, kernel.Fails
			if kernel.Err != nil {
				c.Failure = kernel.Err.Error()
			}
			r.Clusters = append(r.Clusters, c)
		}
	}
}

// targets returns the clusters of a route, of which the cluster of the RPC's session is the
// only one (A60).
func (x *explainer) targets(r *ExplainedRoute) []picker.ClusterShare {
	targets := x.table.Snapshot.ExplainTargets(r.Index)
	if r.Session == nil {
		return targets
	}
	for _, to := range targets {
		if x.table.Config.Clusters[to.Cluster].Name == r.Session.Cluster {
			return []picker.ClusterShare{{Cluster: to.Cluster, Share: 1}}
		}
	}
	return targets
}

// filters explains the filters for a cluster of a route.
func (x *explainer) filters(c *ExplainedCluster, r *ExplainedRoute) {
	for _, f := range x.table.ExplainFilters(r.Index, c.Name) {
		ef := ExplainedFilter{Name: f.Name, Type: f.Type, From: f.From, Disabled: f.Disabled}
		if a, ok := x.table.Plans.Admission(f.Name, f.Config); ok && !f.Disabled {
			ef.State = a.String()
		} else if l, ok := x.table.Plans.Concurrency(f.Name, c.Name, f.Config); ok && !f.Disabled {
			ef.State = l.String()
		}
		c.Filters = append(c.Filters, ef)
	}
}

// session changes what picks come to for an RPC of a session, as pickForSession does.
func (s *subject) session(r *ExplainedRoute, kernel *picker.ClusterExplanation) {
	if r.Session == nil {
		return
	}
	var addrs []netip.AddrPort
	for _, h := range r.Session.Hosts {
		addrs = append(addrs, netip.MustParseAddrPort(h))
	}
	i, h := s.sessions.find(addrs)
	if h == nil {
		return
	}
	var e picker.EndpointShare
	switch {
	case h.state == picker.Ready:
		e.Share = 1
	case h.state == picker.Connecting, h.state == picker.Idle && s.connectable && h.cfg.Health != picker.Draining:
		e.Waits = 1
	default:
		return
	}
	if int(i) < len(kernel.Endpoints) {
		e.Weight = kernel.Endpoints[i].Weight
	}
	s.inSession = true
	kernel.Endpoints, kernel.Localities = make([]picker.EndpointShare, i+1), nil
	kernel.Endpoints[i] = e
	kernel.Picked, kernel.Delegated, kernel.Waits, kernel.Fails = e.Share, 0, e.Waits, 0
}

// cluster explains a cluster.
func (x *explainer) cluster(c *ExplainedCluster, s *subject, kernel *picker.ClusterExplanation) {
	c.Priorities, c.NotInSubset = s.priorities, s.notInSubset
	if s.failure != nil && kernel.Fails > 0 {
		c.Failure = s.failure.Error()
	}
	if s.note != nil {
		c.Note = s.note.Error()
	}
	if s.leaf == nil {
		return
	}
	c.Leaf, c.Service, c.Policy = s.leaf.Name, s.leaf.Service, policyText(&s.leaf.Policy)
	c.TLS, c.Unhealthy = explainTLS(s.leaf.TLS, s.usesTLS), unhealthyOf(s.leaf)
	for i, d := range s.leaf.Drops {
		drop := ExplainedDrop{Category: d.Category}
		if i < len(kernel.Drops) {
			drop.Probability = kernel.Drops[i]
		}
		c.Drops = append(c.Drops, drop)
	}
	c.Breaker = &ExplainedBreaker{InFlight: kernel.InFlight, Limit: s.leaf.MaxRequests, Refuses: kernel.InFlight >= int64(s.leaf.MaxRequests)}
	c.Hash, c.Zones = s.hash(kernel.Hash), zonesStatus(kernel.Routing)
	index := 0
	known := s.reported()
	for i := range s.localities {
		l := &s.localities[i]
		e := ExplainedLocality{Region: l.cfg.ID.Region, Zone: l.cfg.ID.Zone, SubZone: l.cfg.ID.SubZone, Weight: l.cfg.Weight, Child: l.child}
		delegated := 0.
		if k := s.groupOf(i); k < len(kernel.Localities) {
			delegated = kernel.Localities[k]
		}
		if !s.leaf.Policy.Flat {
			e.Share = delegated
		}
		s.passedBy = c.Zones != nil && c.Zones.InForce && c.Zones.Localities[i].Share == 0
		// A child in TRANSIENT_FAILURE is asked, and may know better.
		childPicks := delegated > 0 || s.leaf.Policy.Kind == picker.PolicyCustom && kernel.Fails > 0
		for k := range l.endpoints {
			var share picker.EndpointShare
			if index < len(kernel.Endpoints) {
				share = kernel.Endpoints[index]
			}
			index++
			e.Share += share.Share
			e.Endpoints = append(e.Endpoints, x.endpoint(s, &l.endpoints[k], share, childPicks, known))
		}
		c.Localities = append(c.Localities, e)
	}
}

// unhealthyOf returns the endpoints that EDS says get no RPCs.
func unhealthyOf(l *picker.Leaf) (list []UnhealthyEndpoint) {
	for _, u := range l.Unhealthy {
		list = append(list, UnhealthyEndpoint{u.Addr.String(), u.Health})
	}
	return list
}

// groupOf returns the index of the first locality of the group that a locality is of.
func (s *subject) groupOf(locality int) int {
	if s.leaf.Policy.Flat {
		return 0
	}
	return locality
}

// reported returns how many READY endpoints have a weight of their reports (A58).
func (s *subject) reported() (known int) {
	for i := range s.localities {
		for k := range s.localities[i].endpoints {
			if e := s.localities[i].endpoints[k].state; e.Connectivity == picker.Ready && e.ReportedWeight() > 0 {
				known++
			}
		}
	}
	return known
}

// hash names the endpoints that a hash leads to.
func (s *subject) hash(h *picker.HashExplanation) *ExplainedHash {
	if h == nil {
		return nil
	}
	e := &ExplainedHash{Sources: h.Sources}
	if !h.Known {
		return e
	}
	e.Hash = fmt.Sprintf("%016x", h.Hash)
	for _, p := range h.Places {
		place := ExplainedHashPlace{In: "ring", Position: p.Position, Size: p.Size}
		if p.Table {
			place.In = "table"
		}
		for _, i := range p.Order {
			place.Order = append(place.Order, s.addr(int(i)))
		}
		e.Places = append(e.Places, place)
	}
	return e
}

// addr returns the first address of the endpoint with an index, localities concatenated.
func (s *subject) addr(i int) string {
	for k := range s.localities {
		if list := s.localities[k].endpoints; i < len(list) {
			return list[i].cfg.Addr.String()
		} else {
			i -= len(list)
		}
	}
	return "?"
}
