// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// A routeTable is the compiled form of a virtual host's routes. The first match
// in the order of the configuration counts (A28); the table gets at it by other
// ways than trying one route after the other.
//
// The path, which all routes look at, leads through an index to the routes it
// matches; only the conditions of these are checked, and of these only as long
// as no earlier route has matched. Routes whose paths cannot be indexed (regular
// expressions) are tried in turn, again only those before the best match so far.
// What a route demands of headers that no RPC shows, or that all do, is decided
// when the table is built.
type routeTable struct {
	routes []route // by index in the configuration
	// always is the first route if it matches every RPC, which is all there is to
	// a target with a single route; else -1.
	always    int32
	cased     *pathIndex
	folded    *pathIndex // of routes that ignore case
	unindexed []int32    // routes that are in neither index, ascending
	plain     bool       // all routes are in cased and have no conditions: the path says it all
	random    bool       // a route draws
}

// A route is the compiled form of a Route: its conditions besides an indexed
// path, and its destination.
type route struct {
	free     bool         // no conditions
	path     *StringMatch // nil if the route is in an index
	headers  []headerCondition
	fraction chance
	cluster  int32 // ≥ 0, or noCluster, or splitClusters
	split    *Alias
	clusters []int32 // by index that split draws
}

// The destinations of a route that are not one cluster.
const (
	noCluster     = -1 // the route does not forward (A36)
	splitClusters = -2
)

type headerCondition struct {
	*HeaderMatch
	slot int // in request.values; equal for equal names
}

// noRoute is above every index of a route, so that it gives way to every match.
const noRoute = math.MaxInt32

// newRouteTable compiles routes. clusters has the index of each cluster by name.
// O(routes·log routes) without the headers; the table refers to routes.
func newRouteTable(routes []Route, clusters map[string]int32) (*routeTable, error) {
	t := &routeTable{routes: make([]route, len(routes)), always: -1}
	slots := make(map[string]int)
	var cased, folded []pathEntry
	for i := range routes {
		live, err := t.compile(&t.routes[i], &routes[i], slots, clusters)
		if err != nil {
			return nil, fmt.Errorf("picker: route %d %q: %w", i, routes[i].Name, err)
		}
		if !live {
			continue
		}
		path := &routes[i].Path
		e := pathEntry{path.Value, path.Kind == MatchExact, int32(i)}
		switch r := &t.routes[i]; {
		case path.Kind != MatchExact && path.Kind != MatchPrefix:
			r.path, r.free = path, false
			t.unindexed = append(t.unindexed, e.route)
		case path.IgnoreCase && path.Value != "":
			folded = append(folded, e)
		default:
			cased = append(cased, e)
			if i == 0 && r.free && e.value == "" && !e.exact {
				t.always = 0
			}
		}
	}
	t.cased, t.folded = newPathIndex(cased, false), newPathIndex(folded, true)
	t.plain = t.cased != nil && len(cased) == len(routes) && !slices.ContainsFunc(t.routes, func(r route) bool { return !r.free })
	return t, nil
}

// compile fills in r but for an index. The route is not live if nothing can match
// it. slots numbers the headers.
func (t *routeTable) compile(r *route, cfg *Route, slots map[string]int, clusters map[string]int32) (live bool, err error) {
	if err := cfg.Path.check(); err != nil {
		return false, fmt.Errorf("path: %w", err)
	}
	live = true
	for k := range cfg.Headers {
		m := &cfg.Headers[k]
		if err := m.check(); err != nil {
			return false, err
		}
		if settled, match := m.settled(); settled {
			live = live && match
			continue
		}
		slot, seen := slots[m.Name]
		if !seen {
			slot = len(slots)
			slots[m.Name] = slot
		}
		r.headers = append(r.headers, headerCondition{m, slot})
	}
	r.fraction = certain
	if f := cfg.Fraction; f != nil {
		if *f > 1e6 {
			return false, fmt.Errorf("fraction: %d per million", *f)
		}
		r.fraction = certain.perMillion(*f)
	}
	r.free = len(r.headers) == 0 && r.fraction == certain
	t.random = t.random || live && r.fraction.random()
	return live, t.aim(r, cfg.Clusters, clusters)
}

// aim fills in the destination of a route.
func (t *routeTable) aim(r *route, to []WeightedCluster, clusters map[string]int32) error {
	weights, indexes := make([]uint32, len(to)), make([]int32, len(to))
	for k, c := range to {
		index, ok := clusters[c.Name]
		if !ok {
			return fmt.Errorf("cluster %q is not configured", c.Name)
		}
		weights[k], indexes[k] = c.Weight, index
	}
	switch len(to) {
	case 0:
		r.cluster = noCluster
	case 1:
		r.cluster = indexes[0]
	default:
		split, err := NewAlias(weights)
		if err != nil {
			return fmt.Errorf("weighted clusters: %w", err)
		}
		r.cluster, r.split, r.clusters = splitClusters, split, indexes
		t.random = t.random || split.random()
	}
	return nil
}

// A request is the RPC that a route is sought for.
type request struct {
	ctx    context.Context
	method string
	r      uint64
	header func(ctx context.Context, name string) []string

	// Headers that were read, by slot, since the routes of a table tend to look
	// at the same ones. There is room for the usual number.
	known  [4]bool
	values [4][]string
}

// match returns the index of the first route that matches, or noRoute.
func (t *routeTable) match(ctx context.Context, method string, r uint64, header func(ctx context.Context, name string) []string) int32 {
	if t.plain {
		return t.cased.first(method)
	}
	// A composite literal would be copied into place, from words that were
	// stored a moment ago in smaller pieces, which stalls for 10 ns.
	var q request
	q.ctx, q.method, q.r, q.header = ctx, method, r, header
	best := int32(noRoute)
	if t.cased != nil {
		best = t.climb(t.cased, &q, best)
	}
	if t.folded != nil {
		best = t.climb(t.folded, &q, best)
	}
	if len(t.unindexed) > 0 {
		best = t.first(t.unindexed, &q, best)
	}
	return best
}

// climb returns the first route in x that matches and is before best, or best.
// It starts with the most specific paths: they are usually listed first, and
// once one of them has matched the conditions of the others need no look.
func (t *routeTable) climb(x *pathIndex, q *request, best int32) int32 {
	node, exact := x.find(q.method)
	if len(exact) > 0 {
		best = t.first(exact, q, best)
	}
	for node >= 0 && x.nodes[node].soonest < best {
		best = t.first(x.nodes[node].prefix, q, best)
		node = x.nodes[node].up
	}
	return best
}

// first returns the first of the candidates that matches and is before best, or
// best.
func (t *routeTable) first(candidates []int32, q *request, best int32) int32 {
	for _, i := range candidates {
		if i >= best {
			break
		}
		if r := &t.routes[i]; r.free || t.holds(r, i, q) {
			return i
		}
	}
	return best
}

// holds checks the conditions of route i.
func (t *routeTable) holds(r *route, i int32, q *request) bool {
	if r.path != nil && !r.path.matches(q.method) {
		return false
	}
	for _, h := range r.headers {
		if !h.matches(q.lookUp(h)) {
			return false
		}
	}
	return r.fraction == certain || r.fraction.hit(draw(q.r, drawRoute+uint64(i)))
}

// lookUp returns the values of the header.
func (q *request) lookUp(h headerCondition) []string {
	if h.slot >= len(q.values) {
		return q.header(q.ctx, h.Name)
	}
	if !q.known[h.slot] {
		q.known[h.slot], q.values[h.slot] = true, q.header(q.ctx, h.Name)
	}
	return q.values[h.slot]
}
