// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// askedContext is a context that ends after its error was requested some times.
type askedContext struct {
	context.Context
	asked, ends int
}

func (c *askedContext) Err() error {
	if c.asked++; c.asked > c.ends {
		return context.DeadlineExceeded
	}
	return nil
}

// TestExpressionsOnce checks that an RPC evaluates a regular expression once, in however many routes it is,
// and none once its context has ended (T-SEC-2). The error of the context is requested before each
// evaluation but the first.
func TestExpressionsOnce(t *testing.T) {
	const each = 100
	expressions := make([]*regexp.Regexp, 20)
	for i := range expressions {
		expressions[i] = regexp.MustCompile(fmt.Sprintf("^(?:never%d)$", i))
	}
	paths := func(n int) (routes []Route) {
		for i := range n * each {
			routes = append(routes, Route{Path: StringMatch{Kind: MatchRegex, Regex: expressions[i%n]}})
		}
		return routes
	}
	headers := func(n int) (routes []Route) {
		for i := range n * each {
			routes = append(routes, Route{Headers: []HeaderMatch{{Name: "x", String: StringMatch{Kind: MatchRegex, Regex: expressions[i%n]}}}})
		}
		return routes
	}
	for _, tt := range []struct {
		name      string
		routes    []Route
		ends      int // after so many requests of the error
		asked     int
		otherwise int32 // the route that matches
	}{
		{"a path", paths(1), 1e6, 0, each},
		{"paths", paths(5), 1e6, 4, 5 * each},
		{"a header", headers(1), 1e6, 0, each},
		{"headers", headers(20), 1e6, 19, 20 * each},
		{"paths, too late", paths(20), 7, 8, noRoute},
		{"headers, too late", headers(20), 7, 8, noRoute},
		{"nothing to evaluate", nil, 0, 0, 0},
		{"one expression, too late", paths(1), 0, 0, each},
	} {
		routes := append(tt.routes, Route{}) // matches all RPCs
		for i := range routes {
			routes[i].Clusters = []WeightedCluster{{Name: "c", Weight: 1}}
		}
		table, err := newRouteTable(routes, map[string]int32{"c": 0})
		kit.Must(t, err)
		ctx := &askedContext{Context: t.Context(), ends: tt.ends}
		got := table.match(ctx, "/s/m", 0, func(context.Context, string) []string { return []string{"value"} })
		if got != tt.otherwise || ctx.asked != tt.asked {
			t.Errorf("%s: route %d after %d requests of the context's error, want %d after %d", tt.name, got, ctx.asked, tt.otherwise, tt.asked)
		}
	}
}
