// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"regexp"
)

// This file has the regular expressions of routes. Equal expressions of a RouteConfiguration share a
// regexp.Regexp. An RPC evaluates each of them once for a value, however many routes have it, and none
// after the RPC's context has ended, since expressions may be slow (T-SEC-2).

// exprRoutes are the routes, ascending, with the same condition on the path that is not indexed.
type exprRoutes struct {
	path   *StringMatch
	routes []int32
}

// An exprKey identifies the result of an expression for a header.
type exprKey struct {
	name   string
	regexp *regexp.Regexp
	invert bool
}

// exprKeyOf returns the key of a header condition. ok is false if the condition has no expression.
func exprKeyOf(m *HeaderMatch) (key exprKey, ok bool) {
	if m.Kind != HeaderString || m.String.Kind != MatchRegex {
		return key, false
	}
	return exprKey{m.Name, m.String.Regex, m.Invert}, true
}

// notShared is the headerCondition.expr of conditions without an expression that occurs repeatedly.
const notShared = -1

// shareExprs numbers the expressions for headers that occur repeatedly.
func (t *routeTable) shareExprs() {
	uses, numbers := map[exprKey]int{}, map[exprKey]int{}
	for i := range t.routes {
		for _, h := range t.routes[i].headers {
			if key, ok := exprKeyOf(h.HeaderMatch); ok {
				uses[key]++
			}
		}
	}
	for i := range t.routes {
		headers := t.routes[i].headers
		for k := range headers {
			headers[k].expr = notShared
			key, ok := exprKeyOf(headers[k].HeaderMatch)
			if !ok || uses[key] < 2 {
				continue
			}
			n, found := numbers[key]
			if !found {
				n = len(numbers)
				numbers[key] = n
			}
			headers[k].expr = n
		}
	}
	t.exprs = len(numbers)
}

// The results of shared expressions in request.results.
const (
	unknownResult = iota
	mismatchResult
	matchResult
)

// meets reports whether an RPC meets a condition with an expression for a header. It is false once the
// RPC's context has ended.
func (t *routeTable) meets(h *headerCondition, q *request) bool {
	var result *uint8
	switch {
	case h.expr == notShared:
	case h.expr < len(q.results):
		result = &q.results[h.expr]
	default:
		if q.more == nil {
			q.more = make([]uint8, t.exprs-len(q.results)) // a table with so many is rare
		}
		result = &q.more[h.expr-len(q.results)]
	}
	if result != nil && *result != unknownResult {
		return *result == matchResult
	}
	if q.mustEnd() {
		return false
	}
	match := h.matches(q.lookUp(*h))
	if result != nil {
		if *result = mismatchResult; match {
			*result = matchResult
		}
	}
	return match
}

// mustEnd is called before an expression is evaluated. It reports whether the RPC's context has ended,
// which the first expression does not look at.
func (q *request) mustEnd() bool {
	if q.evaluated && !q.ended {
		q.ended = ended(q.ctx)
	}
	q.evaluated = true
	return q.ended
}

//go:noinline
func ended(ctx context.Context) bool { return ctx != nil && ctx.Err() != nil }

// matchExprs returns the first route that matches among those whose path is not indexed, if it precedes
// best, or best.
func (t *routeTable) matchExprs(q *request, best int32) int32 {
	for i := range t.unindexed {
		x := &t.unindexed[i]
		if x.routes[0] >= best || q.mustEnd() {
			break
		}
		if x.path.matches(q.method) {
			best = t.first(x.routes, q, best)
		}
	}
	return best
}

// A routeCompiler has the state of newRouteTable.
type routeCompiler struct {
	clusters  map[string]int32    // index by name
	slots     map[string]int      // of headers, by name
	constants map[exprKey]bool    // results of expressions for headers that all RPCs have
	unindexed map[StringMatch]int // index in routeTable.unindexed
}

// addUnindexed adds a route whose path cannot be indexed.
func (c *routeCompiler) addUnindexed(t *routeTable, path *StringMatch, route int32) {
	key := *path
	if key.Kind == MatchRegex {
		key = StringMatch{Kind: MatchRegex, Regex: path.Regex}
	}
	i, found := c.unindexed[key]
	if !found {
		i = len(t.unindexed)
		c.unindexed[key] = i
		t.unindexed = append(t.unindexed, exprRoutes{path: path})
	}
	t.unindexed[i].routes = append(t.unindexed[i].routes, route)
}

// constant is HeaderMatch.constant, which evaluates each expression once.
func (c *routeCompiler) constant(m *HeaderMatch) (constant, match bool) {
	key, ok := exprKeyOf(m)
	if !ok || m.Name != "content-type" {
		return m.constant()
	}
	match, found := c.constants[key]
	if !found {
		_, match = m.constant()
		c.constants[key] = match
	}
	return true, match
}
