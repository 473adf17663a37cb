// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A routeTable is the compiled form of a virtual host's routes. It finds the first route, in
// configuration order, that matches an RPC (A28), without trying each of them.
//
// An index maps the RPC's path to the routes whose path matches. Only their other conditions
// are checked, and only as long as an earlier route remains. Routes whose paths cannot be
// indexed (regular expressions, for example) are tried in turn, also only those before the best
// match so far, each expression once. Conditions on headers that have the same value in all RPCs are evaluated when
// the table is built.
type routeTable struct {
	routes []route // by index in the configuration
	// always is 0 if the first route matches every RPC, as it does for most targets with a
	// single route, otherwise -1.
	always    int32
	only      int32 // the cluster of that route if it has exactly one, otherwise less than 0
	cased     *pathIndex
	folded    *pathIndex   // routes that ignore case
	unindexed []exprRoutes // routes in neither index, ascending by the first one
	exprs     int          // expressions for headers that several conditions share
	plain     bool         // all routes are in cased and unconditional, so only the path matters
	random    bool         // matching, or the choice of a weighted cluster, needs a random word
}

// A route is the compiled form of a Route: its target and the conditions that are not in an
// index.
type route struct {
	unconditional bool // there are no further conditions
	headers       []headerCondition
	fraction      probability
	cluster       int32 // ≥ 0, or noCluster, or splitClusters
	split         *Alias
	clusters      []int32 // parallel to the weights of split
}

// The values of route.cluster that are not the index of a cluster.
const (
	noCluster     = -1 // the route does not forward (A36)
	splitClusters = -2
)

type headerCondition struct {
	*HeaderMatch
	slot int // in request.values; equal for equal names
	expr int // number of a shared expression, or notShared
}

// noRoute is greater than every index of a route, so that any match precedes it.
const noRoute = math.MaxInt32

// newRouteTable compiles routes, and keeps a reference to them. clusters maps the names of
// clusters to their indexes. O(routes·log routes), not counting header matchers.
func newRouteTable(routes []Route, clusters map[string]int32) (*routeTable, error) {
	t := &routeTable{routes: make([]route, len(routes)), always: -1, only: -1}
	c := routeCompiler{clusters, map[string]int{}, map[exprKey]bool{}, map[StringMatch]int{}}
	var cased, folded []pathEntry
	for i := range routes {
		live, err := t.compile(&t.routes[i], &routes[i], &c)
		if err != nil {
			return nil, fmt.Errorf("route %d %q: %w", i, routes[i].Name, err)
		}
		if !live {
			continue
		}
		path := &routes[i].Path
		e := pathEntry{path.Value, path.Kind == MatchExact, int32(i)}
		switch r := &t.routes[i]; {
		case path.Kind != MatchExact && path.Kind != MatchPrefix:
			c.addUnindexed(t, path, e.route)
		case path.IgnoreCase && path.Value != "":
			folded = append(folded, e)
		default:
			cased = append(cased, e)
			if i == 0 && r.unconditional && e.value == "" && !e.exact {
				t.always, t.only = 0, r.cluster
			}
		}
	}
	t.shareExprs()
	t.cased, t.folded = newPathIndex(cased, false), newPathIndex(folded, true)
	t.plain = t.cased != nil && len(cased) == len(routes) && !slices.ContainsFunc(t.routes, func(r route) bool { return !r.unconditional })
	return t, nil
}

// compile fills in r. live is false if no RPC can match the route.
func (t *routeTable) compile(r *route, cfg *Route, c *routeCompiler) (live bool, err error) {
	if err := cfg.Path.check(); err != nil {
		return false, fmt.Errorf("path: %w", err)
	}
	live = true
	for k := range cfg.Headers {
		m := &cfg.Headers[k]
		if err := m.check(); err != nil {
			return false, err
		}
		if constant, match := c.constant(m); constant {
			live = live && match
			continue
		}
		slot, seen := c.slots[m.Name]
		if !seen {
			slot = len(c.slots)
			c.slots[m.Name] = slot
		}
		r.headers = append(r.headers, headerCondition{HeaderMatch: m, slot: slot})
	}
	r.fraction = always
	if f := cfg.Fraction; f != nil {
		if *f > 1e6 {
			return false, fmt.Errorf("fraction: %d per million", *f)
		}
		r.fraction = always.perMillion(*f)
	}
	r.unconditional = len(r.headers) == 0 && r.fraction == always
	t.random = t.random || live && r.fraction.random()
	return live, t.compileTarget(r, cfg.Clusters, c.clusters)
}

// compileTarget fills in the clusters of a route.
func (t *routeTable) compileTarget(r *route, to []WeightedCluster, clusters map[string]int32) error {
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

// A request is the RPC for which a route is looked up.
type request struct {
	ctx    context.Context
	method string
	r      uint64
	header func(ctx context.Context, name string) []string

	// A cache of headers by slot, since the routes of a table tend to read the same ones.
	// Further headers are read for each route.
	known  [4]bool
	values [4][]string

	// The results of shared expressions for headers, so that each is evaluated once.
	results   [8]uint8
	more      []uint8 // of the others
	evaluated bool    // an expression was evaluated
	ended     bool    // the context ended before another one: the result does not matter
}

// match returns the index of the first route that matches, or noRoute. It returns noRoute if ctx ends
// before the expressions of the routes have been evaluated.
func (t *routeTable) match(ctx context.Context, method string, r uint64, header func(ctx context.Context, name string) []string) int32 {
	if t.plain {
		return t.cased.first(method)
	}
	// Assigned field by field: a composite literal is copied into place in words that were just
	// stored in smaller pieces, which stalls for 10 ns.
	var q request
	q.ctx, q.method, q.r, q.header = ctx, method, r, header
	best := int32(noRoute)
	if t.cased != nil {
		best = t.walkUp(t.cased, &q, best)
	}
	if t.folded != nil {
		best = t.walkUp(t.folded, &q, best)
	}
	if len(t.unindexed) > 0 {
		best = t.matchExprs(&q, best)
	}
	if q.ended {
		return noRoute
	}
	return best
}

// walkUp returns the first route in x that matches and precedes best, or best. It starts with
// the most specific paths: they are usually listed first, and after a match only earlier routes
// have to be checked.
func (t *routeTable) walkUp(x *pathIndex, q *request, best int32) int32 {
	node, exact := x.find(q.method)
	if len(exact) > 0 {
		best = t.first(exact, q, best)
	}
	for node >= 0 && x.nodes[node].minRoute < best {
		best = t.first(x.nodes[node].prefix, q, best)
		node = x.nodes[node].up
	}
	return best
}

// first returns the first of the candidates that matches and precedes best, or best.
func (t *routeTable) first(candidates []int32, q *request, best int32) int32 {
	for _, i := range candidates {
		if i >= best {
			break
		}
		if r := &t.routes[i]; r.unconditional || t.matches(r, i, q) {
			return i
		}
	}
	return best
}

// matches reports whether an RPC meets the conditions of route i, which is r.
func (t *routeTable) matches(r *route, i int32, q *request) bool {
	for k := range r.headers {
		h := &r.headers[k]
		if h.Kind == HeaderString && h.String.Kind == MatchRegex {
			if !t.meets(h, q) {
				return false
			}
		} else if !h.matches(q.lookUp(*h)) {
			return false
		}
	}
	return r.fraction == always || r.fraction.hit(draw(q.r, drawRoute+uint64(i)))
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

// check returns an error if the matcher is invalid.
func (m *StringMatch) check() error {
	switch {
	case m.Kind > MatchRegex:
		return fmt.Errorf("unknown match kind %d", m.Kind)
	case m.Kind == MatchRegex && m.Regex == nil:
		return fmt.Errorf("regex match without a regex")
	}
	return nil
}

// matches reports whether s matches (A63). It does not allocate.
func (m *StringMatch) matches(s string) bool {
	v := m.Value
	switch m.Kind {
	case MatchPrefix, MatchExact, MatchSuffix:
		if len(s) < len(v) || m.Kind == MatchExact && len(s) != len(v) {
			return false
		}
		if m.Kind == MatchSuffix {
			s = s[len(s)-len(v):]
		} else {
			s = s[:len(v)]
		}
		return s == v || m.IgnoreCase && equalFold(s, v)
	case MatchContains:
		if !m.IgnoreCase {
			return strings.Contains(s, v)
		}
		for ; len(s) >= len(v); s = s[1:] {
			if equalFold(s[:len(v)], v) {
				return true
			}
		}
		return false
	default:
		return m.Regex.MatchString(s)
	}
}

func (m *HeaderMatch) check() error {
	switch {
	case m.Kind > HeaderPresent:
		return fmt.Errorf("header %q: unknown match kind %d", m.Name, m.Kind)
	case m.Kind == HeaderString:
		if err := m.String.check(); err != nil {
			return fmt.Errorf("header %q: %w", m.Name, err)
		}
	}
	return nil
}

// matches reports whether the values of a header match (T-RC-3). It allocates only to join
// several values, and for the error of a value that is not a number.
func (m *HeaderMatch) matches(values []string) bool {
	if len(values) == 0 {
		return m.Kind == HeaderPresent && m.Present == m.Invert
	}
	v := values[0]
	if len(values) > 1 && m.Kind != HeaderPresent {
		v = strings.Join(values, ",")
	}
	switch m.Kind {
	case HeaderPresent:
		return m.Present != m.Invert
	case HeaderString:
		return m.String.matches(v) != m.Invert
	default: // HeaderRange
		n, err := strconv.ParseInt(v, 10, 64)
		return (err == nil && m.Start <= n && n < m.End) != m.Invert
	}
}

// constant reports whether the condition has the same result for all RPCs, and that result:
// binary headers are never visible, and the content type is known (A28).
func (m *HeaderMatch) constant() (constant, match bool) {
	switch {
	case strings.HasSuffix(m.Name, "-bin"):
		return true, m.matches(nil)
	case m.Name == "content-type":
		return true, m.matches(contentType)
	}
	return false, false
}

// contentType is the content type of all RPCs as visible to routes and hash policies. It must
// not be modified.
var contentType = []string{"application/grpc"}
