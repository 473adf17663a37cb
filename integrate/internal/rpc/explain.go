// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/link"
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

// This file reports settings of routes that a channel does not apply.

// Unapplied returns a phrase for each part of the configuration that the channel does not apply
// because it has none of our interceptors.
func (ch *Channel) Unapplied(t *Table) []string {
	if t.Plans == nil || ch.HasInterceptors() {
		return nil
	}
	return t.Plans.unapplied()
}

// HasInterceptors reports whether the channel has our interceptors: it was made with them, or an
// interceptor has called link.Find for one of its RPCs.
func (ch *Channel) HasInterceptors() bool { return ch.Link.Intercepted() }

// unapplied returns a phrase for each kind of setting that only interceptors apply.
func (p *Plans) unapplied() (list []string) {
	if len(p.filters) > 0 {
		list = append(list, fmt.Sprintf("HTTP filters %q", p.filters))
	}
	if p.retries > 0 {
		list = append(list, fmt.Sprintf("the retries of %s", routes(p.retries)))
	}
	if p.others > 0 {
		list = append(list, fmt.Sprintf("retries at other endpoints, for %d of the routes", p.others))
	}
	if p.timeouts > 0 {
		list = append(list, fmt.Sprintf("the timeouts of %s", routes(p.timeouts)))
	}
	if p.headers > 0 {
		list = append(list, fmt.Sprintf("changes of request headers, by %d of the routes", p.headers))
	}
	if p.probing {
		list = append(list, "probes for each RPC: xdslb_prequal uses the results of earlier probes")
	}
	return list
}

// routes returns a phrase for a number of routes.
func routes(n int) string {
	if n == 1 {
		return "1 route that gRPC's service config cannot express"
	}
	return fmt.Sprintf("%d routes that gRPC's service config cannot express", n)
}

// warnUnapplied logs once which settings are not applied. Picks call it. It requires two loads
// if all settings are applied, or if they were logged.
func (ch *Channel) warnUnapplied(t *Table) {
	if ch.HasInterceptors() || ch.looked.Swap(t.Plans) == t.Plans {
		return
	}
	if list := ch.Unapplied(t); len(list) > 0 {
		p := t.Plans
		link.WarnOnce(ch.Logger, ch.Target, fmt.Sprintf("lacks %q, %v, %v, %v, %v, %v", p.filters, p.retries > 0, p.timeouts > 0, p.others > 0, p.headers > 0, p.probing),
			"some of the configuration is not applied: the channel has no interceptors of xdslb. "+
				"Make the channel with integrate.NewClient, or with integrate.DialOptions.", "not_applied", strings.Join(list, "; "))
	}
}

// warnOrder logs that interceptors after ours change the routes of RPCs.
func (ch *Channel) warnOrder() {
	link.WarnOnce(ch.Logger, ch.Target, "order", "an interceptor after xdslb's changes headers, and routes match by headers: RPCs use the cluster of their new route, "+
		"but with the timeout, the retries and the filters of the previous route. Put integrate.DialOptions last among the options, or use integrate.NewClient.")
}
