// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// Interceptor is what an HTTP filter (A39) does to an RPC before it is sent: it
// may delay it, fail it with a status error, or go on with another context.
// done, if not nil, is called when the RPC is over.
type Interceptor func(ctx context.Context) (next context.Context, done func(), err error)

// plans says what interceptors do for each route of a target. Only routes that
// need an interceptor have an entry.
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
// Routes that the service config expresses keep their timeouts and retries to
// gRPC; an RPC that it may retry still keeps its cluster.
func makePlans(cfg *picker.Config, expressed []bool) *plans {
	p := &plans{routes: make([]*routePlans, len(cfg.Routes))}
	needed := false
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		var timeout time.Duration
		var retry *picker.RetryPolicy
		if !expressed[i] {
			timeout, retry = timeoutOf(cfg, r), r.Retry
		}
		rp := &routePlans{all: &rpcPlan{timeout: timeout, retry: retry, filters: filtersOf(cfg, r, nil)}}
		need := timeout > 0 || r.Retry != nil || len(rp.all.filters) > 0
		for k := range r.Clusters {
			c := &r.Clusters[k]
			if len(c.Overrides) == 0 {
				continue
			}
			if rp.byCluster == nil {
				rp.byCluster = map[string]*rpcPlan{}
			}
			plan := &rpcPlan{timeout: timeout, retry: retry, filters: filtersOf(cfg, r, c)}
			rp.byCluster[c.Name] = plan
			need = need || len(plan.filters) > 0
		}
		if need {
			p.routes[i], needed = rp, true
		}
	}
	if !needed {
		return nil
	}
	return p
}

// filtersOf returns what the listener's HTTP filters do for a route, with the
// most specific override of each: weighted cluster, then route (A39).
func filtersOf(cfg *picker.Config, r *picker.Route, c *picker.WeightedCluster) []Interceptor {
	var out []Interceptor
	for i := range cfg.Filters {
		f := &cfg.Filters[i]
		config := f.Config
		if o, ok := r.Overrides[f.Name]; ok {
			config = o
		}
		if c != nil {
			if o, ok := c.Overrides[f.Name]; ok {
				config = o
			}
		}
		if in := interceptorFor(config); in != nil {
			out = append(out, in)
		}
	}
	return out
}
