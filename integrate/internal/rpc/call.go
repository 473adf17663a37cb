// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
)

// callKey is the context key of an RPC's *Call.
type callKey struct{}

// A Call is an RPC whose route was chosen by an interceptor. It lives as long as the RPC and
// holds no Snapshot (D9).
//
// Bind creates it and matches a route, whose plan is applied. The first pick commits the RPC to a
// cluster: the cluster of the route, unless a later interceptor of the application
// has changed the headers so that another route matches (D13). The picks of the RPC's other
// attempts use the same cluster (A31).
type Call struct {
	at     atomic.Pointer[Channel] // nil in tests
	method string                  // channel and method distinguish the RPC from RPCs that are made with its context
	random uint64                  // the RPC's random word for Match
	plan   *plan
	// matched is the match of the interceptor. committed is the match of the first pick, which
	// may differ; nil before the first pick.
	matched   match
	committed atomic.Pointer[match]
	// filtered is the route that matches after the HTTP filters, which may change headers
	// without changing the route.
	filtered atomic.Int32
	// hidden is true if HTTP filters have replaced the context of the RPC: picks do not see the
	// Call then.
	hidden  atomic.Bool
	session *Session // nil if the RPC has no session (A55)
	tried   *Tried   // nil unless attempts avoid endpoints
	// probed is the endpoint that the next pick prefers.
	probed atomic.Pointer[picker.EndpointState]
	ended  atomic.Bool // by a pick
}

// A match is the result of a routing decision.
type match struct {
	plans   *Plans // contains the plan of route
	route   int32
	cluster int32  // its index at that time; -1 unless outcome is Picked
	name    string // of the cluster
	outcome picker.Outcome
}

// matchOf matches an RPC.
func matchOf(ctx context.Context, t *Table, method string, random uint64) match {
	m := match{plans: t.Plans}
	m.route, m.cluster, m.outcome = t.Snapshot.Match(ctx, method, random)
	if m.outcome == picker.Picked {
		m.name = t.Config.Clusters[m.cluster].Name
	}
	return m
}

// Bind chooses the RPC's route and cluster, and returns a context that passes them to its
// picks. It returns a nil Call if the RPC needs no interceptor.
//
// An RPC that no cluster serves is bound too, if routes are chosen at random: its pick would
// choose again, and fewer RPCs would fail than the route's fraction.
func Bind(ctx context.Context, t *Table, method string) (context.Context, *Call) {
	random := rand.Uint64()
	m := matchOf(ctx, t, method, random)
	plan := t.Plans.plan(&m, method)
	if plan == nil {
		return unbind(ctx, t, method), nil
	}
	var c *Call
	if plan.otherHosts {
		both := new(struct { // one allocation
			Call
			Tried
		})
		c, both.tried = &both.Call, &both.Tried
	} else {
		c = new(Call)
	}
	c.method, c.random, c.plan, c.matched = method, random, plan, m
	c.at.Store(t.Channel)
	c.filtered.Store(m.route)
	return context.WithValue(ctx, callKey{}, c), c
}

// unbind returns the context of an RPC without Call. The context hides the Call of another RPC
// of the same method.
func unbind(ctx context.Context, t *Table, method string) context.Context {
	if c := callIn(ctx); c == nil || c.method != method || !c.isOf(t.Channel) {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, (*Call)(nil))
}

// callIn returns the Call of the innermost RPC that interceptors have bound, or nil.
func callIn(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// CallOf returns the Call of an RPC that picks from t, or nil if no interceptor chose its route. The
// Call in the context may be that of an RPC on whose behalf this one is made.
func CallOf(ctx context.Context, t *Table, method string) *Call {
	if c := callIn(ctx); c != nil && c.method == method && c.isOf(t.Channel) {
		return c
	}
	if t.Channel != nil {
		t.Channel.warnUnapplied(t)
	}
	return nil
}

// channel returns the RPC's Channel, or nil for a nil Call.
func (c *Call) channel() *Channel {
	if c == nil {
		return nil
	}
	return c.at.Load()
}

// isOf reports whether the RPC belongs to the channel. gRPC does not count an RPC that is in an
// interceptor, during a backoff for instance, so the channel may have become idle meanwhile.
// The channel then has another Channel, which the RPC takes over. An RPC of another channel is
// mistaken for one of this channel only if both have the same target, the RPC is made with the
// context of an RPC of the other channel, and this channel has none of our interceptors.
func (c *Call) isOf(ch *Channel) bool {
	was := c.at.Load()
	if was == ch {
		return true
	}
	if was == nil || ch == nil || !ch.Succeeds(was.Link) {
		return false
	}
	c.at.Store(ch)
	return true
}

// Session returns the RPC's session, or nil if it has none.
func (c *Call) Session() *Session {
	if c == nil {
		return nil
	}
	return c.session
}

// StartSession assigns the RPC to a session with the endpoint that has these addresses. Without
// addresses, the RPC's first pick begins a session.
func (c *Call) StartSession(hosts []netip.AddrPort) *Session {
	c.session = &Session{Hosts: hosts}
	return c.session
}

// Tried returns the connections that the RPC's attempts were given, which further attempts
// avoid. It returns nil if attempts avoid no connections.
func (c *Call) Tried() *Tried {
	if c == nil {
		return nil
	}
	return c.tried
}

// Failed records that a pick failed. A status ends the RPC (T-DROP-3, A32).
func (c *Call) Failed(err error) {
	if _, ok := status.FromError(err); ok {
		c.ended.Store(true)
	}
}

// final reports whether an RPC that has failed must not be retried, because a pick ended it, or
// because it failed before its first pick.
func (c *Call) final() bool { return c.ended.Load() || c.unpicked() }

// unpicked reports whether the RPC is before its first pick, as far as the Call can see it.
func (c *Call) unpicked() bool { return c.committed.Load() == nil && !c.hidden.Load() }

// Resolve returns the route and the cluster for the RPC's picks from t. If the outcome is not
// Picked, no cluster serves the RPC. The RPC is matched again if an update has removed its
// cluster. If an update has only changed the routes, the route is the one that matches now.
func (c *Call) Resolve(t *Table, ctx context.Context, method string) (route, cluster int32, outcome picker.Outcome) {
	m := c.committed.Load()
	if m == nil {
		m = c.commit(t, ctx, method)
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

// commit decides the cluster of the RPC, at its first pick. It matches again only if routes match
// by headers. The random word is the same, so another outcome means that the headers or the routes
// have changed.
func (c *Call) commit(t *Table, ctx context.Context, method string) *match {
	m := &c.matched
	if m.plans.byHeader {
		now := matchOf(ctx, t, method, c.random)
		if now.plans != m.plans || now.route != c.filtered.Load() {
			if ch := c.channel(); ch != nil && now.plans == m.plans {
				ch.warnOrder()
			}
			other := now
			if other.outcome == picker.Picked {
				c.keepCluster(&other, t.Config.Routes[other.route].Clusters)
			}
			m = &other
		}
	}
	if !c.committed.CompareAndSwap(nil, m) {
		return c.committed.Load() // attempts of the application's own, side by side
	}
	return m
}

// afterFilters records the effects of the HTTP filters on the RPC's picks, given the context of
// its attempts: the route that matches now, if they could have changed it.
func (c *Call) afterFilters(ctx context.Context) {
	c.hidden.Store(callIn(ctx) != c)
	ch := c.channel()
	if ch == nil || !c.matched.plans.byHeader {
		return
	}
	if t := ch.Current(); t != nil && t.Plans == c.matched.plans {
		route, _, _ := t.Snapshot.Match(ctx, c.method, c.random)
		c.filtered.Store(route)
	}
}

// keepCluster changes a match to the session's cluster, if it is one of the route's clusters.
func (c *Call) keepCluster(m *match, route []picker.WeightedCluster) {
	if c.session != nil && c.session.isOf(route) {
		m.name = c.session.cluster
	}
}

// clusterIn returns the index of the RPC's cluster in a table, or -1 if the table does not
// contain it.
func (c *Call) clusterIn(t *Table) int32 {
	m := c.committed.Load()
	if m == nil {
		m = &c.matched
	}
	if m.outcome != picker.Picked {
		return -1
	}
	return m.clusterIn(t)
}

// budget returns the budget of the RPC's cluster, or nil if its retries are not limited.
func (c *Call) budget() *Budget {
	ch := c.channel()
	if ch == nil {
		return nil
	}
	t := ch.Current()
	if t == nil || t.Budgets == nil || c.committed.Load() == nil {
		return nil
	}
	if i := c.clusterIn(t); i >= 0 {
		return t.Budgets[i]
	}
	return nil
}

// probe probes some endpoints of the RPC's cluster for their load, so that the next pick takes
// the best endpoint (picker.Prequal.Synchronous). A pick must not wait for the answers. An RPC
// whose session has an endpoint does not probe. Each attempt of our retries probes; further
// attempts of gRPC use the first answers.
func (c *Call) probe(ctx context.Context) *picker.EndpointState {
	ch := c.channel()
	if ch == nil || c.session != nil && len(c.session.Hosts) > 0 {
		return nil
	}
	t := ch.Current()
	if t == nil || t.ProbeFirst == nil {
		return nil
	}
	cluster := c.clusterIn(t)
	if cluster < 0 {
		return nil
	}
	return t.ProbeFirst(ctx, cluster)
}

// TakeProbed returns the endpoint with the best answer to the first pick after a probe, and nil
// to later picks.
func (c *Call) TakeProbed() *picker.EndpointState {
	if c.probed.Load() == nil { // avoids a write in most picks
		return nil
	}
	return c.probed.Swap(nil)
}

// Records reports whether Picked has to be called for picks for the RPC. It is false for a nil
// Call.
func (c *Call) Records() bool {
	return c != nil && (c.tried != nil || c.session != nil || c.plan != nil && c.plan.cancels())
}

// Picked records the result of a pick for an attempt of the RPC: its connection, and for a
// session its endpoint, which is nil if it supports no sessions. ctx is the attempt's. Attempts
// of a hedged RPC have their own endpoints, and the session uses the endpoint of the attempt
// that decides the RPC. Their Done has the cause if interceptors cancel the attempt: see Result.
//
// A pick without Plans does not look up a Call. If an attempt waits for its pick while an
// update removes the target's last Plans, and the attempt then loses, it counts as canceled,
// which is a failure. That affects at most one attempt of each such RPC. Looking up the Call
// would slow down all picks of targets without Plans.
func (c *Call) Picked(ctx context.Context, cluster string, e *picker.Endpoint, result *balancer.PickResult) {
	if c.tried != nil {
		c.tried.Add(result.SubConn)
	}
	hedged := c.plan != nil && c.plan.hedge
	if c.plan != nil && c.plan.cancels() {
		timer, _ := ctx.Value(tryTimerKey{c}).(*tryTimer)
		timer.connect()
		result.Done = withCause(ctx, timer, result.Done)
	}
	if c.session == nil {
		return
	}
	at := &c.session.picked
	if hedged {
		if own, ok := ctx.Value(attemptKey{c}).(*attempt); ok {
			at = &own.picked
		}
	}
	if e == nil {
		at.Store(nil) // forget an earlier attempt's
		return
	}
	at.Store(&upstream{cluster, e})
}

// clusterIn returns the index of the match's cluster in a table, or -1 if the configuration no
// longer has it.
func (m *match) clusterIn(t *Table) int32 {
	clusters := t.Config.Clusters
	if i := int(m.cluster); i < len(clusters) && clusters[i].Name == m.name {
		return m.cluster
	}
	return int32(slices.IndexFunc(clusters, func(c *picker.Cluster) bool { return c.Name == m.name }))
}
