// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/adaptive_concurrency/v3" // in seeds
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/admission_control/v3"    // in seeds
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// routeSeeds are route configurations, and why each is of interest.
func routeSeeds() (list []*routev3.RouteConfiguration) {
	to := func(cluster, match string) string {
		return `{"match": {` + match + `}, "route": {"cluster": "` + cluster + `"}}`
	}
	header := func(cluster, match string) string { return to(cluster, `"prefix": "", "headers": [{`+match+`}]`) }
	fraction := func(cluster, n string) string {
		return to(cluster, `"prefix": "", "runtimeFraction": {"defaultValue": {"numerator": `+n+`}}`)
	}
	for name, routes := range map[string][]string{
		"":                 nil,
		"one":              {to("c", `"prefix": ""`)},
		"order":            {to("a", `"prefix": "/s/m"`), to("b", `"prefix": "/s/"`), to("c", `"prefix": "/s/m"`), to("d", `"prefix": ""`)},
		"later but longer": {to("b", `"prefix": "/s/"`), to("a", `"prefix": "/s/m"`)},
		"split":            {`{"match": {"prefix": "/s/"}, "route": {"weightedClusters": {"clusters": [{"name": "a", "weight": 3}, {"name": "b", "weight": 1}, {"name": "a", "weight": 2}, {"name": "z", "weight": 0}]}}}`},
		"paths":            {to("a", `"path": "/S/m", "caseSensitive": false`), to("b", `"prefix": "/S", "caseSensitive": false`), to("c", `"safeRegex": {"regex": "/s|/s/m"}`), to("d", `"path": "/s/m"`)}, // T-RC-1
		"fractions":        {fraction("a", "0"), fraction("b", "50"), fraction("c", "100"), to("d", `"prefix": ""`)},
		"headers": {
			header("a", `"name": "X", "exactMatch": "v"`), header("b", `"name": "x", "prefixMatch": "v", "invertMatch": true`), header("c", `"name": "y", "rangeMatch": {"start": -1, "end": 8}`),
			header("d", `"name": "z", "presentMatch": false`), header("e", `"name": "z-bin", "presentMatch": true`), header("g", `"name": "w", "stringMatch": {"contains": "Kk", "ignoreCase": true}`),
			header("h", `"name": "v", "safeRegexMatch": {"regex": "a|ab"}`), header("i", `"name": "u", "stringMatch": {"exact": "Kk", "ignoreCase": true}`), header("f", `"name": "content-type", "suffixMatch": "grpc"`),
		},
		"no action": {`{"match": {"prefix": "/s"}, "nonForwardingAction": {}}`},
		"hash":      {`{"match": {"prefix": ""}, "route": {"cluster": "c", "hashPolicy": [{"header": {"headerName": "x"}}]}}`},
	} {
		list = append(list, ofJSON(new(routev3.RouteConfiguration), fmt.Sprintf(`{"name": %q, "virtualHosts": [{"domains": ["*"], "routes": [%s]}]}`, name, strings.Join(routes, ", "))))
	}
	hosts := xdstest.RouteConfig("hosts", xdstest.Route("", "c")) // every kind of domain (A28)
	for _, domain := range []string{"a.example.com", "*.example.com", "a.*", "A.EXAMPLE.COM", "*ample.com"} {
		hosts.VirtualHosts = append(hosts.VirtualHosts, &routev3.VirtualHost{Name: domain, Domains: []string{domain}})
	}
	slices.SortFunc(list, func(a, b *routev3.RouteConfiguration) int { return strings.Compare(a.Name, b.Name) })
	return append(list, hosts)
}

// FuzzRouteConfig takes an RDS resource through decoding to matches. An RPC has
// the path, and for the headers that routes look at, in the order of their
// appearance, one line each; no line is no header, and a "|" parts two values.
func FuzzRouteConfig(f *testing.F) {
	seeds := recorded(f, resource.RouteConfigType, "-rds", "routes.txt")
	for _, m := range routeSeeds() {
		seeds = append(seeds, encode(f, m))
	}
	for i, b := range seeds {
		f.Add(b, "a.example.com", "/s/m", "va\n-1", uint64(i)<<60)
		f.Add(b, "b.Example.com", "/S/M", "v|w\n08", ^uint64(0)) // two patterns with a wildcard
		f.Add(b, "a.b", "/s", "\n8\nz\nxKKx", uint64(5))
		f.Add(b, ".example.com", "/", "\n-2\nz\n\n\nkK", uint64(5)) // a wildcard is not empty
	}
	f.Fuzz(func(t *testing.T, value []byte, authority, path, headers string, r uint64) {
		var v any
		var err error
		kit.Spend(t, 512*len(value)+expressions(value), func() {
			v, err = resource.Decode(resource.RouteConfigType, value, resource.Options{TrustedServer: true})
		})
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkRouteConfig(t, v.(*resource.RouteConfig), authority, path, headers, r)
	})
}

// expressions returns the allocation allowed in addition to a multiple of the resource's
// length: for regular expressions, if there may be any, and for errors.
func expressions(value []byte) int {
	if strings.ContainsAny(string(value), "{+*?|[(\\") {
		return 256 << 20
	}
	return 256 << 10
}

// checkRouteConfig matches an authority, and then an RPC in every virtual host.
func checkRouteConfig(t *testing.T, rc *resource.RouteConfig, authority, path, headers string, r uint64) {
	t.Helper()
	want := -1
	for i, host := range rc.VirtualHosts {
		for _, domain := range host.Domains {
			if rank(domain, authority) > 0 && (want < 0 || rank(domain, authority) > bestRank(rc.VirtualHosts[want].Domains, authority)) {
				want = i
			}
		}
	}
	switch got := rc.Match(authority); {
	case want < 0 && got != nil:
		t.Errorf("Match(%q) = %q, want none", authority, got.Domains)
	case want >= 0 && got != &rc.VirtualHosts[want]:
		t.Errorf("Match(%q) = %+v, want virtual host %d: %q", authority, got, want, rc.VirtualHosts[want].Domains)
	}
	for i := range rc.VirtualHosts {
		checkMatch(t, rc.VirtualHosts[i].Routes, path, headers, r)
	}
}

func bestRank(domains []string, authority string) (best int) {
	for _, domain := range domains {
		best = max(best, rank(domain, authority))
	}
	return best
}

// rank orders the domains that match an authority by precedence (A28); it is 0 if
// a domain does not match.
func rank(domain, authority string) int {
	const exact, suffix, prefix = 3 << 24, 2 << 24, 1 << 24
	d, a := fold(domain), fold(authority)
	start, end := strings.TrimPrefix(d, "*"), strings.TrimSuffix(d, "*")
	switch {
	case d == "*":
		return 1
	case start != d && len(a) > len(start) && strings.HasSuffix(a, start):
		return suffix + len(d)
	case start == d && end != d && len(a) > len(end) && strings.HasPrefix(a, end):
		return prefix + len(d)
	case d == a && d == start && d == end:
		return exact
	}
	return 0
}

// fold maps ASCII letters to lower case.
func fold(s string) string {
	b := []byte(s)
	for i, c := range b {
		if strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZ", c) >= 0 {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// checkMatch compares Match with the first route that matches. A route that
// matches by chance may or may not be it.
func checkMatch(t *testing.T, routes []picker.Route, path, headers string, r uint64) {
	t.Helper()
	values := make(map[string][]string)
	lines, named := strings.Split(headers, "\n"), make(map[string]bool)
	for _, route := range routes {
		for _, h := range route.Headers {
			if i := len(named); !named[h.Name] && i < len(lines) && lines[i] != "" {
				values[h.Name] = strings.Split(lines[i], "|")
			}
			named[h.Name] = true
		}
	}
	var possible []int32 // in order; the last is certain
	for i := range routes {
		f := routes[i].Fraction
		if f != nil && *f == 0 || !naiveMatch(&routes[i], path, values) {
			continue
		}
		possible = append(possible, int32(i))
		if f == nil || *f == 1e6 {
			break
		}
	}
	g := match(t, routes, path, values, r)
	if g.Route < 0 {
		if g.Outcome != picker.NoRoute || len(possible) > 0 && certain(&routes[possible[len(possible)-1]]) {
			t.Fatalf("Match(%q, %v) = %+v, but routes %v match", path, values, g, possible)
		}
		return
	}
	if !slices.Contains(possible, g.Route) {
		t.Fatalf("Match(%q, %v) = %+v, want one of routes %v", path, values, g, possible)
	}
	to := routes[g.Route].Clusters
	name := clusterNames(routes)[max(g.Cluster, 0)]
	switch {
	case len(to) == 0 && (g.Outcome != picker.NotForwarding || g.Cluster >= 0):
		t.Fatalf("Match(%q, %v) = %+v, but the route has no cluster", path, values, g)
	case len(to) > 0 && (g.Outcome != picker.Picked || !slices.ContainsFunc(to, func(c picker.WeightedCluster) bool { return c.Name == name })):
		t.Fatalf("Match(%q, %v) = %+v, cluster %q of %+v", path, values, g, name, to)
	}
}

func certain(r *picker.Route) bool { return r.Fraction == nil || *r.Fraction == 1e6 }

func naiveMatch(r *picker.Route, path string, values map[string][]string) bool {
	for _, h := range r.Headers {
		v, present := values[h.Name]
		if h.Name == "content-type" { // which is known (A28)
			v, present = []string{"application/grpc"}, true
		}
		n, err := strconv.ParseInt(strings.Join(v, ","), 10, 64)
		holds := false
		switch {
		case h.Kind == picker.HeaderPresent:
			holds = present == h.Present
		case !present:
			return false
		case h.Kind == picker.HeaderRange:
			holds = err == nil && h.Start <= n && n < h.End
		default:
			holds = naiveString(&h.String, strings.Join(v, ","))
		}
		if holds == h.Invert {
			return false
		}
	}
	return naiveString(&r.Path, path)
}

// naiveString is the matchers of A63. An expression has to match all of the text.
func naiveString(m *picker.StringMatch, s string) bool {
	v := m.Value
	if m.IgnoreCase {
		v, s = fold(v), fold(s)
	}
	switch m.Kind {
	case picker.MatchPrefix:
		return strings.HasPrefix(s, v)
	case picker.MatchExact:
		return s == v
	case picker.MatchSuffix:
		return strings.HasSuffix(s, v)
	case picker.MatchContains:
		return strings.Contains(s, v)
	}
	at := m.Regex.FindStringIndex(s)
	return len(at) == 2 && at[0] == 0 && at[1] == len(s)
}

// listenerSeeds are listeners, and why each is of interest.
func listenerSeeds() []*listenerv3.Listener {
	fault := ofJSON(new(hcmv3.HttpFilter), `{"name": "fault", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", "abort": {"httpStatus": 503, "percentage": {"numerator": 5}}}}`)
	unknown := ofJSON(new(hcmv3.HttpFilter), `{"name": "unknown", "typedConfig": {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {}}}`)
	optional := proto.CloneOf(unknown)
	optional.IsOptional = true
	list := []*listenerv3.Listener{
		{},
		{Name: "socket"}, // for servers
		xdstest.Listener("l", "routes"),
		xdstest.Listener("l", ""),
		xdstest.Listener("l", "routes", fault),
		xdstest.Listener("l", "routes", fault, fault), // a name twice (A39)
		xdstest.Listener("l", "routes", unknown),
		xdstest.Listener("l", "routes", optional),
	}
	for _, m := range routeSeeds() {
		list = append(list, testplane.InlineListener("inline", m, fault))
	}
	return list
}

// FuzzListener takes an LDS resource through decoding, and the routes inside of
// it, if any, to matches.
func FuzzListener(f *testing.F) {
	for _, m := range listenerSeeds() {
		f.Add(encode(f, m), "a.example.com", "/s/m")
	}
	for _, b := range recorded(f, resource.ListenerType, "lds", "listener.txt") {
		f.Add(b, "echo", "/s/m")
	}
	f.Fuzz(func(t *testing.T, value []byte, authority, path string) {
		var v any
		var err error
		kit.Spend(t, 512*len(value)+expressions(value), func() { v, err = resource.Decode(resource.ListenerType, value, resource.Options{}) })
		if err != nil {
			checkRefusal(t, err)
			return
		}
		l, m := v.(*resource.Listener), new(listenerv3.Listener)
		if err := proto.Unmarshal(value, m); err != nil {
			t.Fatalf("was accepted, but proto.Unmarshal returns %v", err)
		}
		if l.Name != m.GetName() || l.Name == "" || l.Socket != (m.GetApiListener() == nil) {
			t.Errorf("%v\nis decoded to %+v", m, l)
		}
		if inline := l.RouteConfig != nil; !l.Socket && inline == (l.RouteConfigName != "") || l.MaxStreamDuration < 0 {
			t.Errorf("%v\nis decoded to %+v", m, l)
		}
		names := make(map[string]bool)
		for _, filter := range l.Filters {
			ok := false
			switch c := filter.Config.(type) {
			case *resource.Fault:
				ok = c != nil
			case *resource.Session:
				ok = c != nil && c.TTL >= 0 && (c.Cookie != "" || *c == resource.Session{})
			}
			if !ok || filter.Name == "" || names[filter.Name] {
				t.Errorf("%v\nhas filter %+v", m, filter)
			}
			names[filter.Name] = true
		}
		if l.RouteConfig != nil {
			checkRouteConfig(t, l.RouteConfig, authority, path, "v\n7", 0)
		}
	})
}
