// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"slices"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// rpcPlan is what is to be done for the RPCs of one route and cluster.
type rpcPlan struct {
	timeout time.Duration       // 0 is none
	retry   *picker.RetryPolicy // nil is none
	filters []interceptor
	session bool // one of the filters is stateful session affinity
}

// plans says what interceptors do for each route of a target. Only routes that
// need an interceptor have an entry, unless RPCs are drawn between routes: one that
// took a route without an entry would be drawn again by its pick, and the odds be
// others.
type plans struct {
	routes []*routePlans
}

func (p *plans) of(route int32) *routePlans { return p.routes[route] }

// routePlans are a route's plans by cluster, since a weighted cluster can
// override filters (A39). There are as many as clusters that differ; most
// routes have one.
type routePlans struct {
	byCluster map[string]*rpcPlan // nil if all are the same
	all       *rpcPlan
}

func (r *routePlans) of(cluster string) *rpcPlan {
	if p := r.byCluster[cluster]; p != nil {
		return p
	}
	return r.all
}

// makePlans returns the plans for cfg, or nil if no RPC needs an interceptor.
// Routes that the service config expresses keep their retries to gRPC, and their
// timeouts too unless there are filters, whose time counts; an RPC that gRPC may
// retry still keeps its cluster.
func makePlans(cfg *picker.Config, expressed []bool) *plans {
	p := &plans{routes: make([]*routePlans, len(cfg.Routes))}
	needed := false
	drawn := slices.ContainsFunc(cfg.Routes, func(r picker.Route) bool { return r.Fraction != nil && *r.Fraction%1e6 != 0 })
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		rp := &routePlans{all: planFor(cfg, r, &picker.WeightedCluster{}, expressed[i])}
		need := rp.all.needed() || r.Retry != nil
		for k := range r.Clusters {
			c := &r.Clusters[k]
			if len(c.Overrides) == 0 {
				continue
			}
			if rp.byCluster == nil {
				rp.byCluster = map[string]*rpcPlan{}
			}
			plan := planFor(cfg, r, c, expressed[i])
			rp.byCluster[c.Name] = plan
			need = need || plan.needed()
		}
		if need || drawn {
			p.routes[i] = rp
		}
		needed = needed || need
	}
	if !needed {
		return nil
	}
	return p
}

func planFor(cfg *picker.Config, r *picker.Route, c *picker.WeightedCluster, expressed bool) *rpcPlan {
	p := &rpcPlan{}
	for i := range cfg.Filters {
		if in, ok := interceptorFor(&cfg.Filters[i], r, c); ok {
			p.filters = append(p.filters, in)
			p.session = p.session || in.session
		}
	}
	if !expressed {
		p.retry = r.Retry
	}
	if !expressed || len(p.filters) > 0 {
		p.timeout = timeoutOf(cfg, r)
	}
	return p
}

func (p *rpcPlan) needed() bool { return p.timeout > 0 || p.retry != nil || len(p.filters) > 0 }
