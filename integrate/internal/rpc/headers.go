// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"slices"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/picker"
)

// This file changes request headers as routes require (Envoy's request_headers_to_add and
// request_headers_to_remove). The last stage does so once for an RPC, after the HTTP filters, so all
// attempts send the same headers. Picks use the headers before: Envoy selects route, cluster and
// endpoint first.

// originalKey is the context key of the context that an RPC had before its headers were changed.
type originalKey struct{ of *Call }

// mutate returns a context with the headers that the RPC's route requires.
func (c *Call) mutate(ctx context.Context) context.Context {
	levels := c.mutations()
	if len(levels) == 0 {
		return ctx
	}
	md, ok := metadata.FromOutgoingContext(ctx) // a copy
	if !ok {
		md = metadata.MD{}
	}
	for _, m := range levels {
		applyMutations(md, m)
	}
	return context.WithValue(metadata.NewOutgoingContext(ctx, md), originalKey{c}, ctx)
}

// mutations returns the header mutations of the RPC's route and cluster. The cluster may be that of
// the RPC's session.
func (c *Call) mutations() []*picker.HeaderMutations {
	if c.session != nil && c.matched.plans != nil {
		if p := c.matched.plans.plan(&c.matched, c.method); p != nil {
			return p.headers
		}
	}
	return c.plan.headers
}

// Unmutated returns a context with the headers that the RPC's picks use. ctx is the context of a pick
// for an attempt, which mutate may have changed before. The result ends with ctx, whose Done channel
// identifies the RPC. It is ctx itself, without a look-up, if the route does not change headers and
// the RPC has no session, whose cluster may change headers.
//
// A pick without Plans looks up no Call, and so uses the headers after the changes. This affects
// attempts that wait for their pick while an update removes the target's last Plans: see Picked.
func (c *Call) Unmutated(ctx context.Context) context.Context {
	if c.plan == nil || c.plan.headers == nil && c.session == nil {
		return ctx
	}
	if original, ok := ctx.Value(originalKey{c}).(context.Context); ok {
		return unmutated{ctx, original}
	}
	return ctx
}

// An unmutated is the context of an attempt with the values of the context that its RPC had before its
// headers were changed.
type unmutated struct {
	context.Context
	original context.Context
}

// Value implements context.Context.
func (u unmutated) Value(key any) any { return u.original.Value(key) }

// AfterFunc is called by context.AfterFunc, which starts a goroutine for a context without this method.
func (u unmutated) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(u.Context, f) }

// applyMutations changes headers as one level of the configuration requires. Whether a header is
// present is decided before any is added; values are replaced before others are added.
func applyMutations(md metadata.MD, m *picker.HeaderMutations) {
	for _, name := range m.Remove {
		delete(md, name)
	}
	if len(m.Add) == 1 { // the usual case needs no list
		if h := &m.Add[0]; takesEffect(md, h) {
			put(md, h)
		}
		return
	}
	effective := make([]*picker.HeaderMutation, 0, len(m.Add))
	for i := range m.Add {
		if h := &m.Add[i]; takesEffect(md, h) {
			effective = append(effective, h)
		}
	}
	for _, replaces := range []bool{true, false} {
		for _, h := range effective {
			if replacing(h) == replaces {
				put(md, h)
			}
		}
	}
}

// takesEffect reports whether a mutation's condition holds.
func takesEffect(md metadata.MD, h *picker.HeaderMutation) bool {
	switch h.Action {
	case picker.AddHeaderIfAbsent:
		return len(md[h.Name]) == 0
	case picker.ReplaceHeaderIfPresent:
		return len(md[h.Name]) > 0
	}
	return true
}

// replacing reports whether a mutation replaces existing values.
func replacing(h *picker.HeaderMutation) bool {
	return h.Action == picker.SetHeader || h.Action == picker.ReplaceHeaderIfPresent
}

// put adds the value of a mutation, or replaces existing values.
func put(md metadata.MD, h *picker.HeaderMutation) {
	if replacing(h) {
		md[h.Name] = []string{h.Value}
		return
	}
	md[h.Name] = append(slices.Clip(md[h.Name]), h.Value)
}
