// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// Explanation describes the settings that interceptors and gRPC apply to the RPCs of a route,
// besides the pick.
type Explanation struct {
	Timeout time.Duration       // 0 means no timeout
	Retry   *picker.RetryPolicy // nil means no retries
	Cookie  string              // of the session, if there is session affinity (A55)
	// Hosts and Cluster are the contents of the RPC's cookie. Cluster is set only if the route
	// leads there (A60).
	Hosts   []netip.AddrPort
	Cluster string
}

// FilterExplanation describes an HTTP filter for a route and one of its clusters.
type FilterExplanation struct {
	Name, Type string
	// From is the level of the configuration in use: "listener", "virtual host", "route" or
	// "cluster".
	From     string
	Disabled bool
	Config   any
}

// InServiceConfig returns for each route whether gRPC applies its timeout and retries, by its
// service config. Otherwise interceptors do.
func InServiceConfig(t *Table) []bool {
	_, inServiceConfig, _ := methodconfig.Compile(t.Config, false)
	return inServiceConfig
}

// Explain explains how interceptors treat an RPC of a route. It runs no filter, and no code of
// users except that of ctx.
func Explain(ctx context.Context, t *Table, method string, route int) Explanation {
	r := &t.Config.Routes[route]
	e := Explanation{Timeout: methodconfig.Timeout(t.Config, r), Retry: r.Retry}
	for _, f := range ExplainFilters(t, route, "") {
		if session, ok := f.Config.(*resource.Session); ok && !f.Disabled && session.Cookie != "" {
			e.Cookie = session.Cookie
			if s := newSession(ctx, session, method); s != nil {
				e.Hosts = s.Hosts
				if s.isOf(r.Clusters) {
					e.Cluster = s.cluster
				}
			}
		}
	}
	return e
}

// ExplainFilters returns the filters for the RPCs of a route to a cluster, in order. If the
// route names a cluster twice, the filters are those of the first entry. "" means no cluster.
func ExplainFilters(t *Table, route int, cluster string) (list []FilterExplanation) {
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
