// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// A fakeHeaders are the headers of an RPC, as a Build header hook.
type fakeHeaders map[string][]string

func (h fakeHeaders) get(_ context.Context, name string) []string { return h[name] }

// slowMatch is the oracle: A28 as it reads, one route after the other.
func slowMatch(routes []Route, path string, headers fakeHeaders, r uint64) int32 {
	for i, route := range routes {
		ok := slowString(route.Path, path)
		for _, h := range route.Headers {
			ok = ok && slowHeader(h, headers)
		}
		if f := route.Fraction; f != nil {
			ok = ok && always.perMillion(*f).hit(draw(r, drawRoute+uint64(i)))
		}
		if ok {
			return int32(i)
		}
	}
	return noRoute
}

func slowString(m StringMatch, s string) bool {
	v := m.Value
	if m.IgnoreCase && m.Kind != MatchRegex {
		s, v = slowLower(s), slowLower(v)
	}
	return [...]bool{
		MatchPrefix:   strings.HasPrefix(s, v),
		MatchExact:    s == v,
		MatchSuffix:   strings.HasSuffix(s, v),
		MatchContains: strings.Contains(s, v),
		MatchRegex:    m.Regex != nil && m.Regex.MatchString(s),
	}[m.Kind]
}

func slowLower(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] += 32 * byte(strings.Count("ABCDEFGHIJKLMNOPQRSTUVWXYZ", string(b[i:i+1])))
	}
	return string(b)
}

func slowHeader(m HeaderMatch, headers fakeHeaders) bool {
	values := headers[m.Name]
	if m.Name == "content-type" {
		values = []string{"application/grpc"}
	} else if strings.HasSuffix(m.Name, "-bin") {
		values = nil
	}
	present, value := len(values) > 0, strings.Join(values, ",")
	if m.Kind == HeaderPresent {
		return (present == m.Present) != m.Invert
	}
	match := false
	if m.Kind == HeaderString {
		match = slowString(m.String, value)
	} else if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		match = n >= m.Start && n < m.End
	}
	return present && match != m.Invert
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

var randomRegexps = []*regexp.Regexp{
	regexp.MustCompile(`^(?:/a.*)$`), regexp.MustCompile(`^(?:/[ab]/b)$`), regexp.MustCompile(`^(?:.*K)$`), regexp.MustCompile(`^(?:)$`), regexp.MustCompile(`^(?:5|x)$`),
}

func randomString(rng *rand.Rand) StringMatch {
	m := StringMatch{Kind: MatchKind(rng.IntN(5)), Value: randomPath(rng), IgnoreCase: rng.IntN(4) == 0}
	if m.Kind == MatchRegex {
		m.Regex = pick(rng, randomRegexps...) // shared, as by a RouteConfiguration
		if rng.IntN(4) == 0 {
			m.Regex = regexp.MustCompile(m.Regex.String())
		}
	}
	return m
}

// randomPath makes paths of which many are equal or start the same, some with
// bytes that only wrong folding changes.
func randomPath(rng *rand.Rand) string {
	s := pick(rng, "", "/", "/a", "/A", "/ab")
	for range rng.IntN(4) {
		s += pick(rng, "/", "a", "b", "B", "ab/", "K", "\u212a", "\xff", "[", "{")
	}
	return s
}

func randomHeader(rng *rand.Rand) HeaderMatch {
	return HeaderMatch{
		Name:    pick(rng, "x", "y", "z", "u", "v", "w", "x-bin", "content-type"),
		Kind:    headerMatchKind(rng.IntN(3)),
		String:  randomString(rng),
		Start:   rng.Int64N(4) - 1,
		End:     rng.Int64N(8),
		Present: rng.IntN(2) == 0,
		Invert:  rng.IntN(2) == 0,
	}
}

// randomRoutes makes routes of all kinds, or routes by path only.
func randomRoutes(rng *rand.Rand) []Route {
	routes, plain := make([]Route, rng.IntN(20)), rng.IntN(3) == 0
	for i := range routes {
		r := &routes[i]
		r.Clusters = []WeightedCluster{{Name: "c", Weight: 1}}
		if plain {
			r.Path = StringMatch{Kind: MatchKind(rng.IntN(2)), Value: randomPath(rng)}
			continue
		}
		r.Path = randomString(rng)
		if rng.IntN(3) > 0 {
			r.Path.Kind = MatchKind(rng.IntN(2)) // prefix or exact
		}
		for range rng.IntN(5) - 2 {
			r.Headers = append(r.Headers, randomHeader(rng))
		}
		if rng.IntN(5) == 0 {
			f := pick(rng, uint32(0), 1e6, 1, 999999, 500000)
			r.Fraction = &f
		}
	}
	return routes
}

// A28, T-RC-1, T-RC-3, T-RC-4, T-RC-7: the compiled table agrees with the oracle for a million
// pairs of tables and requests.
func TestRouteTableOracle(t *testing.T) {
	tables, requests := 2000, 500
	if testing.Short() || raceEnabled {
		tables = 200
	}
	rng := rand.New(rand.NewPCG(11, 12))
	paths, headers := make([]string, 5000), make([]fakeHeaders, 5000)
	for i := range paths {
		paths[i], headers[i] = randomPath(rng), make(fakeHeaders)
		for _, name := range []string{"x", "y", "z", "u", "v", "w", "x-bin", "content-type"} {
			for range rng.IntN(5) - 2 {
				headers[i][name] = append(headers[i][name], pick(rng, "5", "-1", "0", "x", "", "9223372036854775808", randomPath(rng)))
			}
		}
	}
	matched := 0
	for range tables {
		routes := randomRoutes(rng)
		table, err := newRouteTable(routes, map[string]int32{"c": 0})
		kit.Must(t, err)
		for range requests {
			path, headers, r := pick(rng, paths...), pick(rng, headers...), rng.Uint64()
			want := slowMatch(routes, path, headers, r)
			got := table.match(bg, path, r, headers.get)
			if got != want {
				t.Fatalf("path %q, headers %q, r %#x: route %d, want %d of %+v", path, headers, r, got, want, routes)
			}
			if table.always >= 0 && want != table.always {
				t.Fatalf("path %q: route %d, but the table always takes %d", path, want, table.always)
			}
			if got != noRoute {
				matched++
			}
		}
	}
	t.Logf("%d tables and %d requests, of which %d matched a route", tables, tables*requests, matched)
	if matched < tables*requests/10 {
		t.Errorf("only %d requests matched a route", matched)
	}
}

// The oracle itself, on cases that are written down.
func TestRouteCases(t *testing.T) {
	zero, all := uint32(0), uint32(1e6)
	exact := func(v string) StringMatch { return StringMatch{Kind: MatchExact, Value: v} }
	prefix := func(v string) StringMatch { return StringMatch{Kind: MatchPrefix, Value: v} }
	header := func(m HeaderMatch) Route { return Route{Path: prefix(""), Headers: []HeaderMatch{m}} }
	for _, test := range []struct {
		name    string
		routes  []Route
		path    string
		headers fakeHeaders
		want    int32
	}{
		{"first match", []Route{{Path: prefix("/s/")}, {Path: exact("/s/m")}}, "/s/m", nil, 0},
		{"first match that is specific", []Route{{Path: exact("/s/m")}, {Path: prefix("/s/")}}, "/s/m", nil, 0},
		{"longer than exact", []Route{{Path: exact("/s/m")}, {Path: prefix("/s/")}}, "/s/mm", nil, 1},
		{"shorter than prefix", []Route{{Path: prefix("/s/m")}}, "/s/", nil, noRoute},
		{"no routes", nil, "/s/m", nil, noRoute},
		{"case", []Route{{Path: exact("/S/m")}, {Path: StringMatch{Kind: MatchExact, Value: "/S/M", IgnoreCase: true}}}, "/s/m", nil, 1},
		{"fraction 0", []Route{{Path: prefix(""), Fraction: &zero}, {Path: prefix("")}}, "/", nil, 1},
		{"fraction 1", []Route{{Path: prefix(""), Fraction: &all}, {Path: prefix("")}}, "/", nil, 0},
		{"absent and inverted", []Route{header(HeaderMatch{Name: "x", String: exact("1"), Invert: true})}, "/", nil, noRoute},
		{"absence demanded", []Route{header(HeaderMatch{Name: "x", Kind: HeaderPresent})}, "/", nil, 0},
		{"presence inverted", []Route{header(HeaderMatch{Name: "x", Kind: HeaderPresent, Present: true, Invert: true})}, "/", nil, 0},
		{"range start", []Route{header(HeaderMatch{Name: "x", Kind: HeaderRange, Start: 3, End: 5})}, "/", fakeHeaders{"x": {"3"}}, 0},
		{"range end", []Route{header(HeaderMatch{Name: "x", Kind: HeaderRange, Start: 3, End: 5})}, "/", fakeHeaders{"x": {"5"}}, noRoute},
		{"joined", []Route{header(HeaderMatch{Name: "x", String: exact("a,b")})}, "/", fakeHeaders{"x": {"a", "b"}}, 0},
		{"binary", []Route{header(HeaderMatch{Name: "x-bin", Kind: HeaderPresent, Present: true})}, "/", fakeHeaders{"x-bin": {"a"}}, noRoute},
		{"content type", []Route{header(HeaderMatch{Name: "content-type", String: exact("application/grpc")})}, "/", nil, 0},
	} {
		for i := range test.routes {
			test.routes[i].Clusters = []WeightedCluster{{Name: "c", Weight: 1}}
		}
		if got := slowMatch(test.routes, test.path, test.headers, 0); got != test.want {
			t.Errorf("%s: the oracle returns %d, want %d", test.name, got, test.want)
		}
		table, err := newRouteTable(test.routes, map[string]int32{"c": 0})
		kit.Must(t, err)
		if got := table.match(bg, test.path, 0, test.headers.get); got != test.want {
			t.Errorf("%s: route %d, want %d", test.name, got, test.want)
		}
	}
}

// Headers are read only if a route that depends on them is still in question,
// and then once.
func TestRouteHeaderReads(t *testing.T) {
	routes := []Route{{Path: StringMatch{Kind: MatchExact, Value: "/s/m"}}}
	for range 10 {
		routes = append(routes, Route{Headers: []HeaderMatch{{Name: "x", String: StringMatch{Kind: MatchExact, Value: "1"}}}})
	}
	for i := range routes {
		routes[i].Clusters = []WeightedCluster{{Name: "c", Weight: 1}}
	}
	table, err := newRouteTable(routes, map[string]int32{"c": 0})
	kit.Must(t, err)
	reads := 0
	count := func(context.Context, string) []string { reads++; return nil }
	if got := table.match(bg, "/s/m", 0, count); got != 0 || reads != 0 {
		t.Errorf("/s/m: route %d after %d reads, want 0 after 0", got, reads)
	}
	if got := table.match(bg, "/s/n", 0, count); got != noRoute || reads != 1 {
		t.Errorf("/s/n: route %d after %d reads, want none after 1", got, reads)
	}
}

func TestRouteErrors(t *testing.T) {
	over := uint32(1e6 + 1)
	to := []WeightedCluster{{Name: "c", Weight: 1}}
	for _, test := range []struct {
		route Route
		want  string
	}{
		{Route{Name: "r", Path: StringMatch{Kind: MatchRegex}}, `route 0 "r": path: regex match without a regex`},
		{Route{Path: StringMatch{Kind: 9}}, "path: unknown match kind 9"},
		{Route{Headers: []HeaderMatch{{Name: "x", Kind: 9}}}, `header "x": unknown match kind 9`},
		{Route{Headers: []HeaderMatch{{Name: "x", String: StringMatch{Kind: MatchRegex}}}}, `header "x": regex match without a regex`},
		{Route{Fraction: &over, Clusters: to}, "fraction: 1000001 per million"},
		{Route{Clusters: []WeightedCluster{{Name: "d", Weight: 1}}}, `cluster "d" is not configured`},
		{Route{Clusters: []WeightedCluster{{Name: "c"}, {Name: "c"}}}, "weighted clusters: alias: none of 2 weights is above 0"},
	} {
		if _, err := newRouteTable([]Route{test.route}, map[string]int32{"c": 0}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: error %v, want %q", test.route, err, test.want)
		}
	}
}

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

// TestDestinations checks that the result of Match with a random word is one of the
// Destinations, and that each of these is reached by some word, for random routes.
func TestDestinations(t *testing.T) {
	const tables, words = 2000, 400
	rng := rand.New(rand.NewPCG(1, 2))
	clusters := map[string]int32{"a": 0, "b": 1, "c": 2}
	sum := 0
	for range tables {
		routes := randomRoutes(rng)
		for i := range routes {
			routes[i].Clusters = nil
			for _, name := range []string{"a", "b", "c"} {
				if rng.IntN(2) == 0 {
					routes[i].Clusters = append(routes[i].Clusters, WeightedCluster{Name: name, Weight: 1})
				}
			}
			if f := routes[i].Fraction; f != nil && *f > 0 && *f < 1e6 {
				half := uint32(5e5) // so that words find it
				routes[i].Fraction = &half
			}
		}
		table, err := newRouteTable(routes, clusters)
		kit.Must(t, err)
		headers := fakeHeaders{"x": {randomPath(rng)}, "y": {"5"}}
		s := &Snapshot{table: table, routes: routes, env: Env{Header: headers.get}}
		path := randomPath(rng)
		want := map[string]bool{}
		for cluster, outcome := range s.Destinations(bg, path) {
			want[fmt.Sprint(cluster, outcome)] = true
		}
		sum += len(want)
		got := map[string]bool{}
		for range words {
			_, cluster, outcome := s.Match(bg, path, rng.Uint64())
			key := fmt.Sprint(cluster, outcome)
			if got[key] = true; !want[key] {
				t.Fatalf("path %q leads to %s, which is not among %v: %+v", path, key, want, routes)
			}
		}
		if len(got) < len(want) && len(routes) < 6 { // a chance of one in 64 · 3 or more
			t.Fatalf("path %q leads to %v, never to the rest of %v: %+v", path, got, want, routes)
		}
	}
	if sum < tables*5/4 {
		t.Errorf("only %d destinations in %d tables", sum, tables)
	}
}
