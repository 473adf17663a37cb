// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"net/netip"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
)

// explainer joins what a snapshot says of an RPC with the status of its clusters.
type explainer struct {
	Explanation
	ctx     context.Context // see withoutUserCode
	table   *perrpc.Table
	applied bool // interceptors do what routes ask for
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
		r := routeStatus(c.Route, cfg, x.table.Config.MaxStreamDuration)
		r.Mismatch, r.Probability = conditionText(cfg, c), c.Probability
		if c.Failed == picker.ConditionNone && !r.NotForwarding {
			x.route(&r, inServiceConfig[c.Route])
		}
		x.Routes = append(x.Routes, r)
	}
}

// route adds to a route that the RPC may take what is done for the RPC.
func (x *explainer) route(r *RouteStatus, inServiceConfig bool) {
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
	if p := x.table.Explain(x.ctx, x.Method, r.Index); p.Cookie != "" && x.applied {
		r.Session = &SessionStatus{Cookie: p.Cookie, Cluster: p.Cluster}
		for _, a := range p.Hosts {
			r.Session.Hosts = append(r.Session.Hosts, a.String())
		}
	}
}

// clusters explains the clusters of all routes that the RPC may take. find returns the
// cluster of a name, or nil unless it is of the version.
func (x *explainer) clusters(find func(name string, version uint64) *cluster) {
	for i := range x.Routes {
		r := &x.Routes[i]
		if r.Probability == 0 || r.NotForwarding {
			continue
		}
		r.Clusters = nil // all that are configured
		for _, to := range x.targets(r) {
			out := RouteTarget{Cluster: x.table.Config.Clusters[to.Cluster].Name, Share: to.Share}
			out.Filters = x.filters(r.Index, out.Cluster)
			kernel := x.table.Snapshot.ExplainCluster(x.ctx, int32(r.Index), to.Cluster)
			if kernel.Err != nil {
				out.Failure = kernel.Err.Error()
			}
			if c := find(out.Cluster, kernel.Version); c != nil {
				c.explain(&out, r.Session, kernel)
			} else {
				out.Note = "the channel's next configuration has the cluster no more, or otherwise: ask again"
			}
			out.Picked, out.Delegated, out.Waits, out.Fails = kernel.Picked, kernel.Delegated, kernel.Waits, kernel.Fails
			r.Clusters = append(r.Clusters, out)
		}
	}
}

// explain explains what becomes of an RPC in the cluster.
func (c *cluster) explain(out *RouteTarget, session *SessionStatus, kernel *picker.ClusterExplanation) {
	inSession := session != nil && c.inSession(session, kernel)
	failure := c.view.failed
	if failure == nil {
		failure = c.cfg.Err
	}
	if out.Failure == "" && failure != nil && kernel.Fails > 0 {
		out.Failure = failure.Error()
	}
	d := newDetail(c, kernel, true)
	d.inSession = inSession
	status := c.describe(kernel.Routing)
	d.fill(&status)
	out.Status, out.Hash = &status, d.hash()
}

// targets returns the clusters of a route, of which the cluster of the RPC's session is the
// only one (A60).
func (x *explainer) targets(r *RouteStatus) []picker.ClusterShare {
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
func (x *explainer) filters(route int, cluster string) (list []FilterStatus) {
	for _, f := range x.table.ExplainFilters(route, cluster) {
		s := FilterStatus{Name: f.Name, Type: f.Type, From: f.From, Disabled: f.Disabled}
		if a, ok := x.table.Plans.Admission(f.Name, f.Config); ok && !f.Disabled {
			s.State = a.String()
		} else if l, ok := x.table.Plans.Concurrency(f.Name, cluster, f.Config); ok && !f.Disabled {
			s.State = l.String()
		}
		list = append(list, s)
	}
	return list
}

// inSession changes what picks come to for an RPC of a session, as pickForSession does. It
// reports whether the session decides.
func (c *cluster) inSession(session *SessionStatus, kernel *picker.ClusterExplanation) bool {
	var addrs []netip.AddrPort
	for _, h := range session.Hosts {
		addrs = append(addrs, netip.MustParseAddrPort(h))
	}
	i, h := c.view.hosts.find(addrs)
	if h == nil {
		return false
	}
	var e picker.EndpointShare
	switch {
	case h.state == picker.Ready:
		e.Share = 1
	case h.state == picker.Connecting, h.state == picker.Idle && c.view.connectable != nil && h.cfg.Health != picker.Draining:
		e.Waits = 1
	default:
		return false
	}
	if int(i) < len(kernel.Endpoints) {
		e.Weight = kernel.Endpoints[i].Weight
	}
	kernel.Endpoints, kernel.Localities = make([]picker.EndpointShare, i+1), nil
	kernel.Endpoints[i] = e
	kernel.Picked, kernel.Delegated, kernel.Waits, kernel.Fails = e.Share, 0, e.Waits, 0
	return true
}
