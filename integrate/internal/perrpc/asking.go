// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/picker"
)

// This file has unary RPCs ask endpoints for their load before they are picked
// (picker.Prequal.Synchronous). A pick must not wait for answers, so interceptors do, and
// leave the endpoint in the RPC's Call.

// asks reports whether endpoints of the cluster are asked for each RPC.
func asks(c *picker.Cluster) bool {
	return slices.ContainsFunc(c.Leaves, func(l picker.Leaf) bool {
		return l.Policy.Kind == picker.PolicyPrequal && l.Policy.Prequal != nil && l.Policy.Prequal.Synchronous > 0
	})
}

// SameAsking reports whether the RPCs of two configurations with the same routes ask
// endpoints of the same clusters. O(clusters).
func SameAsking(a, b *picker.Config) bool {
	return slices.EqualFunc(a.Clusters, b.Clusters, func(a, b *picker.Cluster) bool {
		return a == b || asks(a) == asks(b) && (a.Name == b.Name || !asks(a))
	})
}

// asking returns the names of the clusters whose endpoints are asked for each RPC, or nil.
func asking(cfg *picker.Config) map[string]bool {
	var names map[string]bool
	for _, c := range cfg.Clusters {
		if asks(c) {
			if names == nil {
				names = map[string]bool{}
			}
			names[c.Name] = true
		}
	}
	return names
}

// ask has the plans of a route ask if any of its clusters is among those of the names.
func (r *routePlans) ask(route *picker.Route, names map[string]bool) {
	if names != nil && slices.ContainsFunc(route.Clusters, func(c picker.WeightedCluster) bool { return names[c.Name] }) {
		for _, p := range r.plans() {
			p.asks = true
		}
	}
}

// asking has each attempt of a retry policy of ours ask anew. Attempts of gRPC's after the
// first go by earlier answers.
func (c *Call) asking(next grpc.UnaryInvoker) grpc.UnaryInvoker {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		c.chosen.Store(c.ask(ctx))
		return next(ctx, method, req, reply, cc, opts...)
	}
}

// ask returns the best endpoint of some of the cluster's, or nil. An RPC whose session says
// where it goes does not ask.
func (c *Call) ask(ctx context.Context) *picker.EndpointState {
	link := c.link()
	if link == nil || c.session != nil && len(c.session.Hosts) > 0 {
		return nil
	}
	t := link.Current()
	if t == nil || t.Ask == nil {
		return nil
	}
	m := c.settled.Load()
	if m == nil {
		m = &c.matched
	}
	if m.outcome != picker.Picked {
		return nil
	}
	cluster := m.clusterIn(t)
	if cluster < 0 {
		return nil
	}
	return t.Ask(ctx, cluster)
}

// TakeChosen returns the endpoint that the RPC has chosen, to the first pick since; nil if it
// has none.
func (c *Call) TakeChosen() *picker.EndpointState {
	if c.chosen.Load() == nil { // it is a write less for most
		return nil
	}
	return c.chosen.Swap(nil)
}
