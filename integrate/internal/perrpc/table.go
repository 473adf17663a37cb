// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"math/rand/v2"

	"github.com/xdslb/xdslb/picker"
)

// Table is what one publication of a channel's balancer says about RPCs. It is
// immutable.
type Table struct {
	Snapshot *picker.Snapshot // nil while there is no configuration
	Err      error            // why there is none; nil before the first
	Config   *picker.Config   // that Snapshot was built from
	Plans    *Plans           // nil if no RPC needs an interceptor
	Budgets  []*Budget        // by cluster, nil where retries are not limited; nil if none are
	Link     *Link            // of the channel; nil in tests
	// Ask asks endpoints of a cluster, by its index, and returns the best, or nil if that
	// is left to the pick. Nil if no cluster's endpoints are asked for each RPC.
	Ask func(ctx context.Context, cluster int32) *picker.EndpointState
}

// Bind chooses the RPC's route and cluster, and returns a context that tells its
// picks. It returns a nil Call if there is nothing to do for the RPC.
//
// An RPC that no cluster serves is bound too, if RPCs are drawn between routes: its
// pick would draw again, and fewer RPCs fail than the route's fraction.
func (t *Table) Bind(ctx context.Context, method string) (context.Context, *Call) {
	random := rand.Uint64()
	m := t.match(ctx, method, random)
	plan := t.Plans.plan(&m, method)
	if plan == nil {
		return t.unbind(ctx, method), nil
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
	c.at.Store(t.Link)
	c.filtered.Store(m.route)
	return context.WithValue(ctx, callKey{}, c), c
}

// unbind returns the context of an RPC without Call, for which that of another RPC
// of the same method must not be taken.
func (t *Table) unbind(ctx context.Context, method string) context.Context {
	if c := callIn(ctx); c == nil || c.method != method || !c.isOf(t.Link) {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, (*Call)(nil))
}
