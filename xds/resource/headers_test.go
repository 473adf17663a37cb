// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/picker"
)

// headersText describes header mutations, one level after the other.
func headersText(levels []*picker.HeaderMutations) string {
	var texts []string
	for _, m := range levels {
		text := ""
		for _, name := range m.Remove {
			text += "-" + name + " "
		}
		for _, h := range m.Add {
			text += fmt.Sprintf("%s%s=%q ", [...]string{"+", "?", "=", "!"}[h.Action], h.Name, h.Value)
		}
		texts = append(texts, strings.TrimSpace(text))
	}
	return strings.Join(texts, " | ")
}

// TestHeaderMutations: the actions, names and values of header mutations; mutations that gRPC cannot send or
// sets itself is reported as ignored, and mutations that Envoy rejects are rejected.
func TestHeaderMutations(t *testing.T) {
	add := func(header, more string) string {
		return `"requestHeadersToAdd": [{"header": {` + header + `}` + more + `}]`
	}
	for _, tt := range []struct{ fields, want, ignored, err string }{
		{fields: add(`"key": "X-A", "value": "1"`, ``), want: `+x-a="1"`},
		{fields: add(`"key": "x-a", "value": "1"`, `, "append": true`), want: `+x-a="1"`},
		{fields: add(`"key": "x-a", "value": "1"`, `, "append": false`), want: `=x-a="1"`},
		{fields: add(`"key": "x-a", "value": "1"`, `, "appendAction": "ADD_IF_ABSENT"`), want: `?x-a="1"`},
		{fields: add(`"key": "x-a", "value": "1"`, `, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"`), want: `=x-a="1"`},
		{fields: add(`"key": "x-a", "value": "1"`, `, "appendAction": "OVERWRITE_IF_EXISTS"`), want: `!x-a="1"`},
		{fields: add(`"key": "x-a"`, ``)},
		{fields: add(`"key": "x-a"`, `, "keepEmptyValue": true`), want: `+x-a=""`},
		{fields: add(`"key": "x-a", "value": "100%% of it"`, ``), want: `+x-a="100% of it"`},
		{fields: add(`"key": "x-bin", "value": "AP8="`, ``), want: `+x-bin="\x00\xff"`},
		{fields: add(`"key": "x-bin", "value": "AP8"`, ``), want: `+x-bin="\x00\xff"`},
		{fields: `"requestHeadersToRemove": ["X-A", "x-b", "x-a"]`, want: "-x-a -x-b"},
		{fields: `"requestHeadersToRemove": ["x-a"], ` + add(`"key": "x-a", "value": "1"`, ``), want: `-x-a +x-a="1"`},

		{fields: add(`"key": "x-a", "value": "%START_TIME%"`, ``), ignored: `request_headers_to_add "x-a" with a command of Envoy in its value`},
		{fields: add(`"key": "x-a", "rawValue": "AP8="`, ``), ignored: `request_headers_to_add "x-a" with raw_value`},
		{fields: add(`"key": "x-a", "value": "é"`, ``), ignored: `request_headers_to_add "x-a" whose value is not printable ASCII`},
		{fields: add(`"key": "x!a", "value": "1"`, ``), ignored: `request_headers_to_add "x!a", a name that gRPC cannot send`},
		{fields: add(`"key": "grpc-timeout", "value": "1S"`, ``), ignored: `request_headers_to_add "grpc-timeout", which gRPC sets`},
		{fields: add(`"key": "User-Agent", "value": "x"`, ``), ignored: `request_headers_to_add "user-agent", which gRPC sets`},
		{fields: `"requestHeadersToRemove": ["Content-Type", "te"]`, ignored: `request_headers_to_remove "content-type", which gRPC sets; request_headers_to_remove "te", which gRPC sets`},

		{fields: add(`"key": ":path", "value": "/"`, ``), err: `request_headers_to_add[0].header.key: must not be the host or begin with a colon (it is ":path")`},
		{fields: add(`"key": "Host", "value": "h"`, ``), err: `request_headers_to_add[0].header.key: must not be the host or begin with a colon (it is "Host")`},
		{fields: `"requestHeadersToRemove": ["host"]`, err: `request_headers_to_remove[0]: must not be the host or begin with a colon (it is "host")`},
		{fields: add(`"key": "", "value": "1"`, ``), err: `request_headers_to_add[0].header.key: must not be empty`},
		{fields: add(`"key": "a b", "value": "1"`, ``), err: `request_headers_to_add[0].header.key: must be the name of a header (it is "a b")`},
		{fields: add(`"key": "x-a", "value": "1\n2"`, ``), err: `request_headers_to_add[0].header.value: must not contain line breaks or NUL (it is "1\n2")`},
		{fields: add(`"key": "x-bin", "value": "?"`, ``), err: `request_headers_to_add[0].header.value: must be base64, since the header is binary (it is "?")`},
		{fields: add(`"key": "x-a", "value": "`+strings.Repeat("x", 16385)+`"`, ``), err: `request_headers_to_add[0].header.value: must have at most 16384 bytes (it is 16385)`},
		{fields: add(`"key": "`+strings.Repeat("x", 16385)+`"`, ``), err: `request_headers_to_add[0].header.key: must have at most 16384 bytes (it is 16385)`},
		{fields: add(`"key": "x-a", "value": "1"`, `, "append": true, "appendAction": "ADD_IF_ABSENT"`), err: `request_headers_to_add[0].append: must not be set together with append_action`},
		{fields: add(`"key": "x-a", "value": "1"`, `, "appendAction": 9`), err: `request_headers_to_add[0].append_action: must be a known action (it is 9)`},
		{fields: `"requestHeadersToRemove": [` + strings.Repeat(`"x",`, 1000) + `"x"]`, err: `request_headers_to_remove: must have at most 1000 headers (it is 1001)`},
	} {
		short := tt.fields[:min(len(tt.fields), 200)]
		v, err := Decode(RouteConfigType, fromJSON(t, RouteConfigType, `{"name": "r", "virtualHosts": [{"domains": ["*"], "routes": [{"match": {"prefix": ""}, "route": {"cluster": "c"}, `+tt.fields+`}]}]}`), Options{})
		if tt.err != "" {
			var e *resourceError
			if !errors.As(err, &e) || len(e.Errors) != 1 || e.Errors[0].String() != "virtual_hosts[0].routes[0]."+tt.err {
				t.Errorf("%s: %v, want %s", short, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", short, err)
			continue
		}
		host := v.(*RouteConfig).VirtualHosts[0]
		if got := headersText(host.Routes[0].RequestHeaders); got != tt.want || strings.Join(host.Ignored, "; ") != tt.ignored {
			t.Errorf("%s: mutations %s, ignored %q; want %s and %q", short, got, host.Ignored, tt.want, tt.ignored)
		}
	}
}

// TestHeaderLevels: mutations are evaluated from the most to the least specific level, or in reverse
// order with most_specific_header_mutations_wins; those of a weighted cluster always are first.
func TestHeaderLevels(t *testing.T) {
	remove := func(name string) string { return `"requestHeadersToRemove": ["` + name + `"]` }
	for _, tt := range []struct{ whole, plain, own string }{
		{"", "-host2 | -global", "-route | -host2 | -global"},
		{`"mostSpecificHeaderMutationsWins": true, `, "-global | -host2", "-global | -host2 | -route"},
	} {
		rc := decodeAs[*RouteConfig](t, RouteConfigType, `{"name": "r", `+tt.whole+remove("global")+`, "virtualHosts": [{"domains": ["*"], `+remove("host2")+`, "routes": [
			{"match": {"prefix": "/a"}, "route": {"cluster": "c"}},
			{"match": {"prefix": "/b"}, "route": {"weightedClusters": {"clusters": [{"name": "a", "weight": 1, `+remove("cluster")+`}, {"name": "b", "weight": 1}]}}, `+remove("route")+`}]}]}`)
		routes := rc.VirtualHosts[0].Routes
		if got := headersText(routes[0].RequestHeaders); got != tt.plain {
			t.Errorf("%sa route without mutations has %s, want %s", tt.whole, got, tt.plain)
		}
		to := routes[1].Clusters
		if got := headersText(routes[1].RequestHeaders); got != tt.own || headersText([]*picker.HeaderMutations{to[0].RequestHeaders}) != "-cluster" || to[1].RequestHeaders != nil {
			t.Errorf("%sa route with mutations has %s, and its clusters %v and %v; want %s, -cluster and none", tt.whole, got, to[0].RequestHeaders, to[1].RequestHeaders, tt.own)
		}
	}
}
