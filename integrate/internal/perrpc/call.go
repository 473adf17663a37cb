// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
)

// callKey is the context key of an RPC's *Call.
type callKey struct{}

// Call is an RPC whose route was chosen by an interceptor. It lives as long as the
// RPC and holds no Snapshot (D9).
//
// Its life: Table.Bind makes it and matches a route, whose plan is applied. Filters
// and retries are part of that. The first pick settles which cluster the RPC goes
// to: that of the route, unless an interceptor of the application behind ours has
// changed the headers so that another route matches (D13). All further picks, which
// are those of the RPC's other attempts, go to the same cluster (A31).
type Call struct {
	at     atomic.Pointer[Link] // of the channel; nil in tests
	method string               // link and method tell the RPC from those made with its context
	random uint64               // the RPC's word for Match
	plan   *plan
	// matched is the match of the interceptor, and settled, from the first pick
	// on, that or another.
	matched match
	settled atomic.Pointer[match]
	// filtered is the route that the headers lead to behind the HTTP filters,
	// which may change them without changing where the RPC goes.
	filtered atomic.Int32
	session  *Session // nil if there is none (A55)
	tried    *Tried   // nil unless attempts avoid endpoints
	// chosen is the endpoint that the next pick is to take, if it can.
	chosen atomic.Pointer[picker.EndpointState]
	ended  atomic.Bool // by a pick, or by the client before there was one
}

// match is what a routing decision comes to.
type match struct {
	plans   *Plans // that route is an index of
	route   int32
	cluster int32  // its index at that time; -1 unless outcome is Picked
	name    string // of the cluster
	outcome picker.Outcome
}

// match matches an RPC.
func (t *Table) match(ctx context.Context, method string, random uint64) match {
	m := match{plans: t.Plans}
	m.route, m.cluster, m.outcome = t.Snapshot.Match(ctx, method, random)
	if m.outcome == picker.Picked {
		m.name = t.Config.Clusters[m.cluster].Name
	}
	return m
}

// callIn returns the Call of the innermost RPC that interceptors have bound, or nil.
func callIn(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// CallOf returns the Call of an RPC that picks from t, or nil if no interceptor
// chose its route. The Call in the context may be that of an RPC on whose behalf
// this one is made.
func (t *Table) CallOf(ctx context.Context, method string) *Call {
	if c := callIn(ctx); c != nil && c.method == method && c.isOf(t.Link) {
		return c
	}
	if t.Link != nil {
		t.Link.warnUnapplied(t)
	}
	return nil
}

// link returns the link of the RPC's channel, or nil in tests.
func (c *Call) link() *Link {
	if c == nil {
		return nil
	}
	return c.at.Load()
}

// isOf reports whether the RPC is one of the link's channel. gRPC does not count an RPC that
// is in an interceptor, during a backoff for instance, so the channel may have become idle
// meanwhile. It has another link then, and so has the RPC. An RPC of another channel is
// taken for one of this only if both have the same target, the RPC is made with the context
// of an RPC of the other, and no interceptor of ours is there to tell them apart.
func (c *Call) isOf(l *Link) bool {
	was := c.at.Load()
	if was == l {
		return true
	}
	if was == nil || l == nil || !was.closed.Load() || was.Canonical != l.Canonical {
		return false
	}
	l.maxAttempts.CompareAndSwap(0, was.maxAttempts.Load())
	c.at.Store(l)
	return true
}

// Session returns the RPC's session, or nil if it has none.
func (c *Call) Session() *Session { return c.session }

// Tried returns what the RPC's attempts were given, which others are to avoid, or nil if
// they are not.
func (c *Call) Tried() *Tried { return c.tried }

// Failed notes that a pick failed. With a status, that is the end of the RPC
// (T-DROP-3, A32).
func (c *Call) Failed(err error) {
	if _, ok := status.FromError(err); ok {
		c.ended.Store(true)
	}
}

// final reports whether an RPC that has failed is not to be retried: because a pick ended
// it, or because it did not get as far as a pick.
func (c *Call) final() bool { return c != nil && (c.ended.Load() || c.settled.Load() == nil) }

// refusedUnsent reports whether the client has refused an RPC itself, before there was a pick.
func (c *Call) refusedUnsent() bool { return c != nil && c.ended.Load() && c.settled.Load() == nil }

// Bound returns the route and the cluster that the RPC's picks from t are for,
// unless the outcome, not Picked, says that no cluster serves the RPC. If an update
// has taken the cluster away the RPC is matched again. If an update has only
// changed the routes, the route is the one that the RPC would take now.
func (c *Call) Bound(t *Table, ctx context.Context, method string) (route, cluster int32, outcome picker.Outcome) {
	m := c.settled.Load()
	if m == nil {
		m = c.settle(t, ctx, method)
	}
	if m.outcome != picker.Picked {
		return m.route, -1, m.outcome
	}
	cluster = m.clusterIn(t)
	if cluster >= 0 && t.Plans == m.plans {
		return m.route, cluster, picker.Picked
	}
	route, now, outcome := t.Snapshot.Match(ctx, method, c.random)
	if cluster >= 0 {
		return route, cluster, picker.Picked
	}
	return route, now, outcome
}

// settle decides where the RPC goes, at its first pick. It matches again only
// where routes look at headers. Since the word is the same, another outcome means
// that the headers are others, or the routes.
func (c *Call) settle(t *Table, ctx context.Context, method string) *match {
	m := &c.matched
	if m.plans.byHeader {
		now := t.match(ctx, method, c.random)
		if now.plans != m.plans || now.route != c.filtered.Load() {
			if l := c.link(); l != nil && now.plans == m.plans {
				l.warnOrder()
			}
			other := now
			if c.session != nil && other.outcome == picker.Picked {
				c.session.keepCluster(&other, &t.Config.Routes[other.route])
			}
			m = &other
		}
	}
	if !c.settled.CompareAndSwap(nil, m) {
		return c.settled.Load() // attempts of the application's own, side by side
	}
	return m
}

// afterFilters notes which route the headers lead to behind the filters.
func (c *Call) afterFilters(ctx context.Context) {
	if t := c.link().Current(); t != nil && t.Plans == c.matched.plans {
		route, _, _ := t.Snapshot.Match(ctx, c.method, c.random)
		c.filtered.Store(route)
	}
}

// clusterIn returns the index of the match's cluster in a table, or -1 if it is
// gone from the configuration.
func (m *match) clusterIn(t *Table) int32 {
	clusters := t.Config.Clusters
	if i := int(m.cluster); i < len(clusters) && clusters[i].Name == m.name {
		return m.cluster
	}
	return int32(slices.IndexFunc(clusters, func(c *picker.Cluster) bool { return c.Name == m.name }))
}
