// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// decodeRoutes returns the routes of a virtual host with the given JSON fields.
func decodeRoutes(tb testing.TB, fields string) []picker.Route {
	tb.Helper()
	rc := decodeAs[*RouteConfig](tb, RouteConfigType, `{"name": "r", "virtualHosts": [{"domains": ["*"], `+fields+`}]}`)
	return rc.VirtualHosts[0].Routes
}

// decodeRoute returns the only route, given its match and its action.
func decodeRoute(tb testing.TB, match, action string) picker.Route {
	tb.Helper()
	routes := decodeRoutes(tb, fmt.Sprintf(`"routes": [{"match": {%s}, "route": {%s}}]`, match, action))
	if len(routes) != 1 {
		tb.Fatalf("%s, %s: %d routes, want 1", match, action, len(routes))
	}
	return routes[0]
}

// TestRoutesLeftOut: A28, A36. A route is left out, kept, or kept without
// clusters.
func TestRoutesLeftOut(t *testing.T) {
	const cluster = `"route": {"cluster": "c"}`
	tests := []struct{ name, route, want string }{
		{"to a cluster", `"match": {"prefix": ""}, ` + cluster, "c"},
		{"query parameters, whatever else is wrong", `"match": {"queryParameters": [{"name": "q"}]}, "route": {"cluster": ""}`, "left out"},
		{"cluster from a header", `"match": {"prefix": ""}, "route": {"clusterHeader": "h"}`, "left out"},
		{"cluster from a plugin", `"match": {"prefix": ""}, "route": {"clusterSpecifierPlugin": "p"}`, "left out"},
		{"no cluster specifier", `"match": {"prefix": ""}, "route": {}`, "left out"},
		{"non_forwarding_action", `"match": {"prefix": ""}, "nonForwardingAction": {}`, "no clusters"},
		{"redirect", `"match": {"prefix": ""}, "redirect": {}`, "no clusters"},
		{"no action", `"match": {"prefix": ""}`, "no clusters"},
		{"matchers to ignore", `"match": {"prefix": "", "grpc": {}, "tlsContext": {}}, ` + cluster, "c"},
		{"binary header", `"match": {"prefix": "", "headers": [{"name": "X-Bin", "exactMatch": "x"}]}, ` + cluster, "left out"},
		{"binary header, inverted", `"match": {"prefix": "", "headers": [{"name": "x-bin", "exactMatch": "x", "invertMatch": true}]}, ` + cluster, "left out"},
		{"binary header present", `"match": {"prefix": "", "headers": [{"name": "x-bin", "presentMatch": true}]}, ` + cluster, "left out"},
		{"binary header absent", `"match": {"prefix": "", "headers": [{"name": "x-bin", "presentMatch": false}]}, ` + cluster, "c"},
		{"binary header not present", `"match": {"prefix": "", "headers": [{"name": "x-bin", "presentMatch": true, "invertMatch": true}]}, ` + cluster, "c"},
	}
	for _, tt := range tests {
		got := "left out"
		if routes := decodeRoutes(t, `"routes": [{`+tt.route+`}]`); len(routes) == 1 {
			got = "no clusters"
			if len(routes[0].Clusters) > 0 {
				got = routes[0].Clusters[0].Name
			}
			if len(routes[0].Headers) > 0 {
				t.Errorf("%s: headers are %+v", tt.name, routes[0].Headers)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestRoutePath: A28, T-RC-1.
func TestRoutePath(t *testing.T) {
	tests := []struct {
		match string
		want  picker.StringMatch
	}{
		{`"prefix": "/S"`, picker.StringMatch{Kind: picker.MatchPrefix, Value: "/S"}},
		{`"path": "/S/m", "caseSensitive": true`, picker.StringMatch{Kind: picker.MatchExact, Value: "/S/m"}},
		{`"path": "/S/m", "caseSensitive": false`, picker.StringMatch{Kind: picker.MatchExact, Value: "/S/m", IgnoreCase: true}},
	}
	for _, tt := range tests {
		if got := decodeRoute(t, tt.match, `"cluster": "c"`).Path; got != tt.want {
			t.Errorf("%s: path is %+v, want %+v", tt.match, got, tt.want)
		}
	}
	p := decodeRoute(t, `"safeRegex": {"regex": "/a|/b"}, "caseSensitive": false`, `"cluster": "c"`).Path
	for path, want := range map[string]bool{"/a": true, "/b": true, "/ab": false, "x/b": false, "/A": false, "/a\n": false} {
		if got := p.Kind == picker.MatchRegex && !p.IgnoreCase && p.Regex.MatchString(path); got != want {
			t.Errorf("/a|/b matches %q: %t, want %t", path, got, want)
		}
	}
	p = decodeRoute(t, `"safeRegex": {"regex": "/a|\\Q/b."}`, `"cluster": "c"`).Path // the quotation need not end
	for path, want := range map[string]bool{"/a": true, "/b.": true, "/bx": false, "/b.)$": false, "x/b.": false} {
		if got := p.Regex.MatchString(path); got != want {
			t.Errorf(`/a|\Q/b. matches %q: %t, want %t`, path, got, want)
		}
	}
}

// TestRouteHeaders: A28, A63, T-RC-3.
func TestRouteHeaders(t *testing.T) {
	text := func(kind picker.MatchKind, value string) picker.HeaderMatch {
		return picker.HeaderMatch{Name: "x-a", String: picker.StringMatch{Kind: kind, Value: value}}
	}
	ignoreCase := text(picker.MatchSuffix, "V")
	ignoreCase.String.IgnoreCase = true
	inverted := text(picker.MatchExact, "v")
	inverted.Invert = true
	tests := []struct {
		header string
		want   picker.HeaderMatch
	}{
		{`"exactMatch": "v"`, text(picker.MatchExact, "v")},
		{`"exactMatch": ""`, text(picker.MatchExact, "")},
		{`"exactMatch": "v", "invertMatch": true`, inverted},
		{`"prefixMatch": "v"`, text(picker.MatchPrefix, "v")},
		{`"suffixMatch": "v"`, text(picker.MatchSuffix, "v")},
		{`"containsMatch": "v"`, text(picker.MatchContains, "v")},
		{`"stringMatch": {"exact": "v"}`, text(picker.MatchExact, "v")},
		{`"stringMatch": {"prefix": "v"}`, text(picker.MatchPrefix, "v")},
		{`"stringMatch": {"contains": "v"}`, text(picker.MatchContains, "v")},
		{`"stringMatch": {"suffix": "V", "ignoreCase": true}`, ignoreCase},
		{`"rangeMatch": {"start": "-5", "end": "-5"}`, picker.HeaderMatch{Name: "x-a", Kind: picker.HeaderRange, Start: -5, End: -5}},
		{`"presentMatch": true`, picker.HeaderMatch{Name: "x-a", Kind: picker.HeaderPresent, Present: true}},
		{`"presentMatch": false`, picker.HeaderMatch{Name: "x-a", Kind: picker.HeaderPresent}},
	}
	for _, tt := range tests {
		r := decodeRoute(t, `"prefix": "", "headers": [{"name": "X-A", `+tt.header+`}]`, `"cluster": "c"`)
		if len(r.Headers) != 1 || r.Headers[0] != tt.want {
			t.Errorf("%s: headers are %+v, want %+v", tt.header, r.Headers, tt.want)
		}
	}
	for _, header := range []string{`"safeRegexMatch": {"regex": "v+"}`, `"stringMatch": {"safeRegex": {"regex": "v+"}, "ignoreCase": true}`} {
		m := decodeRoute(t, `"prefix": "", "headers": [{"name": "x-a", `+header+`}]`, `"cluster": "c"`).Headers[0].String
		if m.Kind != picker.MatchRegex || m.IgnoreCase || m.Regex.String() != "^(?:v+)$" {
			t.Errorf("%s: string is %+v", header, m)
		}
	}
}

// TestRegexpShared: equal expressions of a resource are compiled once.
func TestRegexpShared(t *testing.T) {
	routes := decodeRoutes(t, `"routes": [
		{"match": {"safeRegex": {"regex": "/a.*"}}, "route": {"cluster": "c", "hashPolicy": [{"header": {"headerName": "h", "regexRewrite": {"pattern": {"regex": "/a.*"}}}}]}},
		{"match": {"safeRegex": {"regex": "/a.*"}}, "route": {"cluster": "c"}}]`)
	if routes[0].Path.Regex != routes[1].Path.Regex {
		t.Error("two routes with the same expression have two of them")
	}
	if got := routes[0].Hash[0].Rewrite.String(); got != "/a.*" {
		t.Errorf("the expression of a rewrite is %q, want it as it was sent", got)
	}
}

// TestRouteFraction: T-RC-4.
func TestRouteFraction(t *testing.T) {
	tests := []struct {
		value string
		want  uint32
	}{
		{`{}`, 0},
		{`{"numerator": 25}`, 250000},
		{`{"numerator": 25, "denominator": "TEN_THOUSAND"}`, 2500},
		{`{"numerator": 25, "denominator": "MILLION"}`, 25},
		{`{"numerator": 100}`, 1e6},
		{`{"numerator": 429497, "denominator": "HUNDRED"}`, 1e6},
		{`{"numerator": 4294967295, "denominator": "MILLION"}`, 1e6},
	}
	for _, tt := range tests {
		got := decodeRoute(t, `"prefix": "", "runtimeFraction": {"defaultValue": `+tt.value+`}`, `"cluster": "c"`).Fraction
		if got == nil || *got != tt.want {
			t.Errorf("%s: fraction is %v, want %d", tt.value, got, tt.want)
		}
	}
	if got := decodeRoute(t, `"prefix": ""`, `"cluster": "c"`).Fraction; got != nil {
		t.Errorf("fraction is %d, want none", *got)
	}
}

// TestWeightedClusters: T-RC-6.
func TestWeightedClusters(t *testing.T) {
	r := decodeRoute(t, `"prefix": ""`, `"weightedClusters": {"totalWeight": 7, "clusters": [
		{"name": "a", "weight": 1}, {"name": "b", "weight": 0}, {"name": "c"}, {"name": "d", "weight": 4294967294}]}`)
	want := []picker.WeightedCluster{{Name: "a", Weight: 1}, {Name: "d", Weight: math.MaxUint32 - 1}}
	if !reflect.DeepEqual(r.Clusters, want) {
		t.Errorf("clusters are %+v, want %+v", r.Clusters, want)
	}
}

// TestRouteTimeout: A31.
func TestRouteTimeout(t *testing.T) {
	for action, want := range map[string]string{
		`"timeout": "5s"`:                                                                    "inherited",
		`"timeout": "5s", "maxStreamDuration": {}`:                                           "inherited",
		`"maxStreamDuration": {"maxStreamDuration": "1s"}`:                                   "1s",
		`"maxStreamDuration": {"maxStreamDuration": "0s"}`:                                   "0s",
		`"maxStreamDuration": {"grpcTimeoutHeaderMax": "2s"}`:                                "2s",
		`"maxStreamDuration": {"maxStreamDuration": "1s", "grpcTimeoutHeaderMax": "2s"}`:     "2s",
		`"maxStreamDuration": {"maxStreamDuration": "1s", "grpcTimeoutHeaderMax": "0s"}`:     "0s",
		`"maxStreamDuration": {"maxStreamDuration": "315576000000s"}`:                        time.Duration(math.MaxInt64).String(),
		`"maxStreamDuration": {"maxStreamDuration": "1s", "grpcTimeoutHeaderOffset": "-1s"}`: "1s",
	} {
		got := "inherited"
		if d := decodeRoute(t, `"prefix": ""`, `"cluster": "c", `+action).Timeout; d != nil {
			got = d.String()
		}
		if got != want {
			t.Errorf("%s: timeout is %s, want %s", action, got, want)
		}
	}
}

// TestRetryPolicy: A44.
func TestRetryPolicy(t *testing.T) {
	tests := []struct{ policy, want string }{
		{`"retryOn": "unavailable"`, "[14] 2 25ms 250ms"},
		{`"retryOn": "5xx, Cancelled,deadline-exceeded ,internal,resource-exhausted,unavailable,unavailable"`, "[1 4 13 8 14] 2 25ms 250ms"},
		{`"retryOn": "5xx"`, "none"},
		{`"numRetries": 3`, "none"},
		{`"retryOn": "internal", "numRetries": 4`, "[13] 5 25ms 250ms"},
		{`"retryOn": "internal", "numRetries": 4294967295`, "[13] 5 25ms 250ms"},
		{`"retryOn": "internal", "retryBackOff": {"baseInterval": "1s"}`, "[13] 2 1s 10s"},
		{`"retryOn": "internal", "retryBackOff": {"baseInterval": "1s", "maxInterval": "1s"}`, "[13] 2 1s 1s"},
		{`"retryOn": "internal", "retryBackOff": {"baseInterval": "0.000001s"}`, "[13] 2 1ms 10ms"},
		{`"retryOn": "internal", "retryBackOff": {"baseInterval": "0.0001s", "maxInterval": "0.0002s"}`, "[13] 2 1ms 1ms"},
		{`"retryOn": "internal", "retryBackOff": {"baseInterval": "315576000000s"}`, fmt.Sprint("[13] 2 ", time.Duration(math.MaxInt64), " ", time.Duration(math.MaxInt64/10*10))},
		{`"retryOn": "internal", "perTryTimeout": "1s", "retryHostPredicate": [{"name": "x"}]`, "[13] 2 25ms 250ms timeout 1s"},
		{`"retryOn": "internal,reset", "perTryTimeout": "1s"`, "[13] 2 25ms 250ms timeout 1s retried"},
		{`"retryOn": "deadline-exceeded", "perTryTimeout": "1s"`, "[4] 2 25ms 250ms timeout 1s retried"},
		{`"retryOn": "gateway-error", "perTryTimeout": "1s"`, "[] 2 25ms 250ms timeout 1s retried"},
		{`"retryOn": "5xx", "perTryTimeout": "1s"`, "[] 2 25ms 250ms timeout 1s retried"},
		{`"retryOn": "5xx", "perTryTimeout": "0s"`, "none"},
		{`"retryOn": "retriable-4xx", "perTryTimeout": "1s"`, "none"},
		{`"retryOn": "internal", "hostSelectionRetryMaxAttempts": 5, "retryPriority": {"name": "p"}`, "[13] 2 25ms 250ms"},
		{`"retryOn": "internal", "retryHostPredicate": [{"name": "x", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}]`, "[13] 2 25ms 250ms others"},
	}
	text := func(r *picker.RetryPolicy) string {
		if r == nil {
			return "none"
		}
		text := fmt.Sprint(r.On, r.MaxAttempts, r.BaseBackoff, r.MaxBackoff)
		if r.OtherHosts {
			text += " others"
		}
		if r.PerTryTimeout > 0 {
			text += fmt.Sprint(" timeout ", r.PerTryTimeout)
		}
		if r.OnTimeout {
			text += " retried"
		}
		return text
	}
	for _, tt := range tests {
		if got := text(decodeRoute(t, `"prefix": ""`, `"cluster": "c", "retryPolicy": {`+tt.policy+`}`).Retry); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.policy, got, tt.want)
		}
	}
	// A route's policy stands in for the virtual host's even if it allows nothing.
	routes := decodeRoutes(t, `"retryPolicy": {"retryOn": "cancelled"}, "routes": [
		{"match": {"prefix": ""}, "route": {"cluster": "c"}},
		{"match": {"prefix": ""}, "route": {"cluster": "c", "retryPolicy": {"retryOn": "internal"}}},
		{"match": {"prefix": ""}, "route": {"cluster": "c", "retryPolicy": {"retryOn": "5xx"}}}]`)
	for i, want := range []string{"[1] 2 25ms 250ms", "[13] 2 25ms 250ms", "none"} {
		if got := text(routes[i].Retry); got != want {
			t.Errorf("route %d: %s, want %s", i, got, want)
		}
	}
}

// TestHedgePolicy: a route's hedge_policy replaces that of its virtual host. Without
// per_try_timeout RPCs are not hedged.
func TestHedgePolicy(t *testing.T) {
	routes := decodeRoutes(t, `"hedgePolicy": {"hedgeOnPerTryTimeout": true}, "retryPolicy": {"retryOn": "internal", "perTryTimeout": "1s"}, "routes": [
		{"match": {"prefix": ""}, "route": {"cluster": "c"}},
		{"match": {"prefix": ""}, "route": {"cluster": "c", "hedgePolicy": {}}},
		{"match": {"prefix": ""}, "route": {"cluster": "c", "retryPolicy": {"retryOn": "internal"}}}]`)
	for i, want := range []struct {
		hedge bool
		after time.Duration
	}{{true, time.Second}, {false, time.Second}, {false, 0}} {
		if r := routes[i]; r.Hedge != want.hedge || r.Retry.PerTryTimeout != want.after {
			t.Errorf("route %d: hedged %t, after %v; want %t, after %v", i, r.Hedge, r.Retry.PerTryTimeout, want.hedge, want.after)
		}
	}
}

// TestHashPolicies: A42, T-RING-6.
func TestHashPolicies(t *testing.T) {
	const channelID = `{"filterState": {"key": "io.grpc.channel_id"}}`
	tests := []struct{ policies, want string }{
		{``, ""},
		{`{"header": {"headerName": "X-A"}, "terminal": true}, ` + channelID, "x-a! channel"},
		{`{"cookie": {"name": "c"}}, {"connectionProperties": {"sourceIp": true}}, {"queryParameter": {"name": "q"}}, {"filterState": {"key": "k"}}, {}`, ""},
		{`{"header": {"headerName": "x-bin"}}, {"header": {"headerName": "a"}}`, "a"},
		// Policies after a terminal policy that yields no hash apply if and only if no policy
		// before it has yielded a hash.
		{`{"cookie": {"name": "c"}, "terminal": true}, {"header": {"headerName": "a"}}`, "a"},
		{`{"header": {"headerName": "a"}}, {"cookie": {"name": "c"}, "terminal": true}, {"header": {"headerName": "b"}}`, "a! b"},
	}
	for _, tt := range tests {
		var got []string
		for _, h := range decodeRoute(t, `"prefix": ""`, `"cluster": "c", "hashPolicy": [`+tt.policies+`]`).Hash {
			name := h.Header
			if name == "" {
				name = "channel"
			}
			if h.Terminal {
				name += "!"
			}
			got = append(got, name)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: %q, want %q", tt.policies, s, tt.want)
		}
	}
}

// TestSubstitution: T-RC-2. The rewrite is applied as in hashing.
func TestSubstitution(t *testing.T) {
	for _, tt := range []struct{ pattern, substitution, in, want string }{
		{`^/(\w+)/(\w+)$`, `\2-\1`, "/a/b", "b-a"},
		{`b`, `[\0]`, "abcb", "a[b]c[b]"},
		{`b`, `\0\0`, "abc", "abbc"},
		{`(b)`, `$1${1}$$name`, "abc", "a$1${1}$$namec"},
		{`b`, `\\1`, "abc", `a\1c`},
		{`(b)`, `\12`, "abc", "ab2c"},
		{`b`, ``, "abc", "ac"},
		{`(b)(c)(d)(e)(f)(g)(h)(i)(j)`, `\9`, "abcdefghijk", "ajk"},
	} {
		action := fmt.Sprintf(`"cluster": "c", "hashPolicy": [{"header": {"headerName": "h", "regexRewrite": {"pattern": {"regex": %q}, "substitution": %q}}}]`, tt.pattern, tt.substitution)
		h := decodeRoute(t, `"prefix": ""`, action).Hash[0]
		if got := h.Rewrite.ReplaceAllString(tt.in, h.Substitution); got != tt.want {
			t.Errorf("rewriting %q: %q by %q gives %q, want %q", tt.in, tt.pattern, tt.substitution, got, tt.want)
		}
	}
}

// TestHostRewriteLiteral: the authority of a route needs a trusted server, and is validated (A111).
func TestHostRewriteLiteral(t *testing.T) {
	for _, tt := range []struct {
		literal       string
		trusted       bool
		want, err, ig string
	}{
		{literal: "a.test:80", trusted: true, want: "a.test:80"},
		{literal: "[::1]:80", trusted: true, want: "[::1]:80"},
		{literal: "", trusted: true},
		{literal: "a.test", ig: "RouteAction.host_rewrite_literal of a server without trusted_xds_server"},
		{literal: "a b", trusted: true, err: `host_rewrite_literal: must be the authority of a URI, without user information (it is "a b")`},
		{literal: "me@a.test", trusted: true, err: `host_rewrite_literal: must be the authority of a URI, without user information (it is "me@a.test")`},
		{literal: "a.test/path", trusted: true, err: `host_rewrite_literal: must be the authority of a URI, without user information (it is "a.test/path")`},
		{literal: strings.Repeat("a", 16385), trusted: true, err: "host_rewrite_literal: must have at most 16384 bytes (it is 16385)"},
	} {
		b := fromJSON(t, RouteConfigType, fmt.Sprintf(`{"name": "r", "virtualHosts": [{"routes": [{"match": {"prefix": ""}, "route": {"cluster": "c", "hostRewriteLiteral": %q}}]}]}`, tt.literal))
		v, err := Decode(RouteConfigType, b, Options{TrustedServer: tt.trusted})
		if tt.err != "" {
			if err == nil || !strings.HasSuffix(err.Error(), "route."+tt.err) {
				t.Errorf("%.20s: %v, want %s", tt.literal, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.literal, err)
			continue
		}
		host := v.(*RouteConfig).VirtualHosts[0]
		if got := host.Routes[0].Authority; got != tt.want || strings.Join(host.Ignored, "") != tt.ig {
			t.Errorf("%s: authority %q, ignored %q; want %q and %q", tt.literal, got, host.Ignored, tt.want, tt.ig)
		}
	}
}

// TestAutoHostRewrite: A81.
func TestAutoHostRewrite(t *testing.T) {
	b := fromJSON(t, RouteConfigType, `{"name": "r", "virtualHosts": [{"routes": [{"match": {"prefix": ""}, "route": {"cluster": "c", "autoHostRewrite": true}}]}]}`)
	for _, trusted := range []bool{false, true} {
		v, err := Decode(RouteConfigType, b, Options{TrustedServer: trusted})
		kit.Must(t, err)
		if got := v.(*RouteConfig).VirtualHosts[0].Routes[0].AutoHostRewrite; got != trusted {
			t.Errorf("rewriting by a server that is trusted (%t): %t", trusted, got)
		}
	}
}

// TestMatch: A28, T-RC-5, against trying every pattern in the order of the rules.
func TestMatch(t *testing.T) {
	domains := []string{"*", "foo.*", "foo.bar.*", "*.com", "*.bar.com", "foo.bar.com", "FOO.Bar.com:80", "*bar.com", "*.*", "foo.bar.co*"}
	rc := &RouteConfig{VirtualHosts: []VirtualHost{{Name: "none"}}}
	for _, d := range domains {
		rc.VirtualHosts = append(rc.VirtualHosts, VirtualHost{Name: d, Domains: []string{d}})
	}
	rc.VirtualHosts = append(rc.VirtualHosts, VirtualHost{Name: "late", Domains: domains})
	for authority, want := range map[string]string{
		"foo.bar.com":     "foo.bar.com",
		"FOO.bar.Com":     "foo.bar.com",
		"foo.bar.com:80":  "FOO.Bar.com:80",
		"x.bar.com":       "*.bar.com",
		"xbar.com":        "*bar.com",
		"bar.com":         "*.com", // a wildcard stands for something
		"foo.bar.net":     "foo.bar.*",
		"foo.x":           "foo.*",
		"foo.":            "*",
		"":                "*",
		"unrelated":       "*",
		"foo.bar.com:443": "foo.bar.co*",
	} {
		if got := rc.Match(authority); got == nil || got.Name != want {
			t.Errorf("Match(%q) = %+v, want %q", authority, got, want)
		}
	}
	if got := (&RouteConfig{VirtualHosts: rc.VirtualHosts[2:6]}).Match("other"); got != nil {
		t.Errorf("Match(other) = %q, want none", got.Name)
	}
	if n := testing.AllocsPerRun(10, func() { rc.Match("foo.bar.org") }); n > 2 { // for FOO.Bar.com:80
		t.Errorf("Match allocates %v times", n)
	}
	if got := slices.IndexFunc([]string{"a*", "*a", "a*b", "**", "", "*"}, func(d string) bool { return patternOf(d).kind == anyPattern }); got != 5 {
		t.Errorf("pattern %d matches anything", got)
	}
}

// TestInvalidSubstitution: a substitution that RE2 would not apply leaves the header's value as
// it is, and is reported as ignored.
func TestInvalidSubstitution(t *testing.T) {
	for _, substitution := range []string{`\2`, `\n`, `\`} {
		action := fmt.Sprintf(`"cluster": "c", "hashPolicy": [{"header": {"headerName": "h", "regexRewrite": {"pattern": {"regex": "(b)"}, "substitution": %q}}}]`, substitution)
		h := decodeRoute(t, `"prefix": ""`, action).Hash[0]
		if h.Header != "h" || h.Rewrite != nil || h.Substitution != "" {
			t.Errorf("substitution %q: hash policy %+v, want one by header h without a rewrite", substitution, h)
		}
	}
}

// TestShortMaxInterval: a max_interval below base_interval bounds the first backoff, too.
func TestShortMaxInterval(t *testing.T) {
	for _, tt := range []struct {
		base, most           string
		wantBase, wantLonger time.Duration
	}{
		{"1s", "0.5s", 500 * time.Millisecond, 500 * time.Millisecond},
		{"1s", "0.0001s", time.Millisecond, time.Millisecond},
		{"0.0001s", "2s", time.Millisecond, 2 * time.Second},
	} {
		r := decodeRoute(t, `"prefix": ""`, fmt.Sprintf(`"cluster": "c", "retryPolicy": {"retryOn": "unavailable", "retryBackOff": {"baseInterval": %q, "maxInterval": %q}}`, tt.base, tt.most)).Retry
		if r.BaseBackoff != tt.wantBase || r.MaxBackoff != tt.wantLonger {
			t.Errorf("backoff from %s to %s: %v to %v, want %v to %v", tt.base, tt.most, r.BaseBackoff, r.MaxBackoff, tt.wantBase, tt.wantLonger)
		}
	}
}

// TestEmptyRange: a range that ends before its start matches no value, and all if inverted.
func TestEmptyRange(t *testing.T) {
	h := decodeRoute(t, `"prefix": "", "headers": [{"name": "h", "rangeMatch": {"start": 5, "end": 3}}]`, `"cluster": "c"`).Headers[0]
	if h.Kind != picker.HeaderRange || h.Start != 5 || h.End != 3 {
		t.Errorf("header match %+v, want the range from 5 to 3", h)
	}
}
