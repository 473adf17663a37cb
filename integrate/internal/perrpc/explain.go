// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// Explanation is what is done for the RPCs of a route besides the pick.
type Explanation struct {
	Timeout time.Duration       // 0 is none
	Retry   *picker.RetryPolicy // nil is none
	Cookie  string              // of the session, if there is session affinity (A55)
	// Hosts and Cluster are what the RPC's cookie names, if it has one; Cluster only if the
	// route leads there (A60).
	Hosts   []netip.AddrPort
	Cluster string
}

// FilterExplanation is an HTTP filter, as it is for a route and one of its clusters.
type FilterExplanation struct {
	Name, Type string
	// From is whose configuration counts: "listener", "virtual host", "route" or "cluster".
	From     string
	Disabled bool
	Config   any
}

// InServiceConfig says for each route whether gRPC sees to its timeout and retries, by its
// service config. Otherwise interceptors do. O(routes²) in the worst case, as Compile is.
func (t *Table) InServiceConfig() []bool {
	_, inServiceConfig, _ := methodConfigs(t.Config, false)
	return inServiceConfig
}

// Explain explains what is done for an RPC of a route. It runs no filter, and no code of
// users but that of ctx.
func (t *Table) Explain(ctx context.Context, method string, route int) Explanation {
	r := &t.Config.Routes[route]
	e := Explanation{Timeout: timeoutOf(t.Config, r), Retry: r.Retry}
	for _, f := range t.ExplainFilters(route, "") {
		if session, ok := f.Config.(*resource.Session); ok && !f.Disabled && session.Cookie != "" {
			e.Cookie = session.Cookie
			e.Hosts, e.Cluster = sessionOf(ctx, session, r, method)
		}
	}
	return e
}

// ExplainFilters returns the filters for the RPCs of a route to a cluster, in order. Of a
// cluster that the route names twice they are those of the first entry; "" is none.
func (t *Table) ExplainFilters(route int, cluster string) (list []FilterExplanation) {
	r, to := &t.Config.Routes[route], &picker.WeightedCluster{}
	if i := slices.IndexFunc(r.Clusters, func(c picker.WeightedCluster) bool { return c.Name == cluster }); i >= 0 {
		to = &r.Clusters[i]
	}
	for i := range t.Config.Filters {
		f := &t.Config.Filters[i]
		o, from := overrideOf(f, r, to)
		list = append(list, FilterExplanation{Name: f.Name, Type: f.Type, From: from, Disabled: o.Disabled, Config: configOr(f.Config, o.Config)})
	}
	return list
}

// sessionOf returns what the cookie of an RPC names, if it has one.
func sessionOf(ctx context.Context, cfg *resource.Session, r *picker.Route, method string) (hosts []netip.AddrPort, cluster string) {
	call := new(Call) // of this explanation alone
	if s := newSession(context.WithValue(ctx, callKey{}, call), cfg, r, method); s != nil {
		hosts = slices.Clone(s.Hosts)
	}
	return hosts, call.matched.name
}
