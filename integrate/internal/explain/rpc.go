// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package explain describes configurations, snapshots and RPCs with the types of package
// report. It reads immutable values only: the balancer adds the states of its clusters.
//
//	rpc.go       an RPC: its routes, and the clusters that they lead to; unsupported features
//	cluster.go   the policy, the TLS settings and the zones of a cluster; a route and its conditions
package explain

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/resource"
)

// An RPC is an Explanation under construction.
type RPC struct {
	report.Explanation
	ctx         context.Context
	table       *rpc.Table
	intercepted bool // interceptors apply the settings of routes
}

// NewRPC explains the routes of an RPC by a publication. ctx must not run code of the
// application: see metadatautil.Detached.
func NewRPC(ctx context.Context, table *rpc.Table, method string) *RPC {
	x := &RPC{ctx: ctx, table: table, intercepted: table.Channel == nil || table.Channel.HasInterceptors()}
	x.Method, x.Time = method, time.Now().Round(0).UTC()
	if table.Channel != nil {
		x.Target, x.NotApplied = table.Channel.Target, NotApplied(table)
	}
	var checks []picker.RouteCheck
	checks, x.NoRoute = table.Snapshot.ExplainRoutes(ctx, method)
	inServiceConfig := rpc.InServiceConfig(table)
	for i := range checks {
		c := &checks[i]
		cfg := &table.Config.Routes[c.Route]
		r := Route(c.Route, cfg, table.Config.MaxStreamDuration)
		r.Mismatch, r.Probability = mismatch(cfg, c), c.Probability
		if c.Failed == picker.ConditionNone && !r.NotForwarding {
			x.route(&r, inServiceConfig[c.Route])
		}
		x.Routes = append(x.Routes, r)
	}
	return x
}

// Sources returns the servers that resources in force are from, each with up to 8 of the resources.
func Sources(resources iter.Seq[xds.ResourceStatus]) (list []string) {
	names := map[string][]string{}
	for r := range resources {
		if r.Server != "" {
			names[r.Server] = append(names[r.Server], fmt.Sprintf("%v %s", r.Type, r.Name))
		}
	}
	for _, server := range slices.Sorted(maps.Keys(names)) {
		of := names[server]
		text := server + ": " + strings.Join(of[:min(len(of), 8)], ", ")
		if n := len(of) - 8; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		list = append(list, text)
	}
	return list
}

// NotApplied returns the parts of a configuration that the channel does not apply.
func NotApplied(t *rpc.Table) []string {
	return append(t.Channel.Unapplied(t), Unsupported(t.Config)...)
}

// route adds the settings that apply to the RPC to a route that the RPC may take.
func (x *RPC) route(r *report.RouteStatus, inServiceConfig bool) {
	if r.Timeout != "" || r.Retry != nil {
		switch {
		case inServiceConfig:
			r.AppliedBy = "gRPC's service config"
		case x.intercepted:
			r.AppliedBy = "interceptors"
		default:
			r.AppliedBy = "nothing: the channel lacks xdslb's interceptors"
		}
	}
	if p := rpc.Explain(x.ctx, x.table, x.Method, r.Index); p.Cookie != "" && x.intercepted {
		r.Session = &report.SessionStatus{Cookie: p.Cookie, Cluster: p.Cluster}
		for _, a := range p.Hosts {
			r.Session.Hosts = append(r.Session.Hosts, picker.AddrText(a))
		}
	}
}

// Clusters explains the clusters of all routes that the RPC may take. look adds the state of a
// cluster, and may change the result of picks for the RPC's session. It reports whether the
// balancer has the version of the cluster that is explained.
func (x *RPC) Clusters(look func(out *report.RouteTarget, session *report.SessionStatus, kernel *picker.ClusterExplanation) bool) {
	for i := range x.Routes {
		r := &x.Routes[i]
		if r.Probability == 0 || r.NotForwarding {
			continue
		}
		r.Clusters = nil // all that are configured
		for _, to := range x.targets(r) {
			out := report.RouteTarget{Cluster: x.table.Config.Clusters[to.Cluster].Name, Share: to.Share}
			out.Filters = x.filters(r.Index, out.Cluster)
			for _, c := range x.table.Config.Routes[r.Index].Clusters {
				if c.Name == out.Cluster && out.RequestHeaders == nil {
					out.RequestHeaders = headerTexts(c.RequestHeaders)
				}
			}
			kernel := x.table.Snapshot.ExplainCluster(x.ctx, int32(r.Index), to.Cluster)
			if kernel.Err != nil {
				out.Failure = kernel.Err.Error()
			}
			if !look(&out, r.Session, kernel) {
				out.Note = "a newer configuration has removed or changed the cluster: explain the RPC again"
			}
			out.Picked, out.Delegated, out.Waits, out.Fails = kernel.Picked, kernel.Delegated, kernel.Waits, kernel.Fails
			r.Clusters = append(r.Clusters, out)
		}
	}
}

// targets returns the clusters of a route. If the RPC's session names one of them, it is the
// only result (A60).
func (x *RPC) targets(r *report.RouteStatus) []picker.ClusterShare {
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
func (x *RPC) filters(route int, cluster string) (list []report.FilterStatus) {
	for _, f := range rpc.ExplainFilters(x.table, route, cluster) {
		list = append(list, report.FilterStatus{Name: f.Name, Type: f.Type, From: f.From, Disabled: f.Disabled})
	}
	return list
}

// Hash returns the entry of the cluster's table for the hash of an RPC, or nil if the policy
// does not hash. addr returns the address of the published endpoint with an index.
func Hash(h *picker.HashExplanation, addr func(int) string) *report.HashStatus {
	if h == nil {
		return nil
	}
	out := &report.HashStatus{Sources: h.Sources}
	if !h.Known {
		return out
	}
	out.Hash = fmt.Sprintf("%016x", h.Hash)
	for _, p := range h.Places {
		place := report.HashPlace{In: "ring", Position: p.Position, Size: p.Size}
		if p.Table {
			place.In = "table"
		}
		for _, i := range p.Order {
			place.Order = append(place.Order, addr(int(i)))
		}
		out.Places = append(out.Places, place)
	}
	return out
}

// Unsupported returns a phrase for each feature of a configuration that no channel supports
// (D15). rpc reports the features that a channel without interceptors lacks. O(clusters).
func Unsupported(cfg *picker.Config) []string {
	if cfg == nil {
		return nil
	}
	list, sessions := slices.Clone(cfg.Ignored), HasSessions(cfg)
	by := map[string][]string{} // clusters with the same feature
	for _, c := range cfg.Clusters {
		for i := range c.Leaves {
			for _, feature := range UnsupportedOf(&c.Leaves[i], sessions) {
				if name := c.Leaves[i].Name; !slices.Contains(by[feature], name) {
					by[feature] = append(by[feature], name)
				}
			}
		}
	}
	for feature, names := range by {
		if len(names) == 1 {
			list = append(list, fmt.Sprintf("%s of cluster %q", feature, names[0]))
		} else {
			list = append(list, fmt.Sprintf("%s of %d clusters", feature, len(names)))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// UnsupportedOf returns the unsupported features of a cluster. Session affinity has no effect on
// child policies.
func UnsupportedOf(l *picker.Leaf, sessions bool) []string {
	if sessions && l.Policy.Kind.Traits().Connects {
		return append(slices.Clip(l.Ignored), "session affinity with a policy that picks by itself")
	}
	return l.Ignored
}

// HasSessions reports whether the listener has session affinity, which routes may override.
func HasSessions(cfg *picker.Config) bool {
	return slices.ContainsFunc(cfg.Filters, func(f picker.Filter) bool {
		s, ok := f.Config.(*resource.Session)
		return ok && s.Cookie != "" && !f.Disabled
	})
}
