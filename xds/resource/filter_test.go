// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/picker"
)

const (
	hcmURL    = `"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"`
	routerURL = `"@type": "type.googleapis.com/` + routerType + `"`
	faultURL  = `"@type": "type.googleapis.com/` + faultType + `"`
	router    = `{"name": "router", "typedConfig": {` + routerURL + `}}`
	rds       = `"rds": {"routeConfigName": "r", "configSource": {"self": {}}}`
)

// decodeFilters returns the filters of a listener with the given ones and the
// router.
func decodeFilters(tb testing.TB, filters ...string) []picker.Filter {
	tb.Helper()
	return decodeAs[*Listener](tb, ListenerType, fmt.Sprintf(
		`{"name": "l", "apiListener": {"apiListener": {%s, %s, "httpFilters": [%s]}}}`,
		hcmURL, rds, strings.Join(append(filters, router), ", "))).Filters
}

// TestListener: A27-LIS-1 … 3, A31, A47.
func TestListener(t *testing.T) {
	l := decodeAs[*Listener](t, ListenerType, `{"name": "l", "apiListener": {"apiListener": {`+hcmURL+`, `+rds+`,
		"commonHttpProtocolOptions": {"maxStreamDuration": "3s"}, "httpFilters": [`+router+`]}}}`)
	if want := (Listener{Name: "l", RouteConfigName: "r", MaxStreamDuration: 3 * time.Second}); !reflect.DeepEqual(*l, want) {
		t.Errorf("listener is %+v, want %+v", *l, want)
	}

	l = decodeAs[*Listener](t, ListenerType, `{"name": "l", "apiListener": {"apiListener": {`+hcmURL+`,
		"routeConfig": {"virtualHosts": [{"name": "v", "domains": ["*"]}]}, "httpFilters": [`+router+`]}}}`)
	want := Listener{Name: "l", RouteConfig: &RouteConfig{VirtualHosts: []VirtualHost{{Name: "v", Domains: []string{"*"}}}}}
	if !reflect.DeepEqual(*l, want) {
		t.Errorf("listener is %+v, want %+v", *l, want)
	}

	// Clients do not validate socket listeners.
	l = decodeAs[*Listener](t, ListenerType, `{"name": "l", "address": {}, "filterChains": [{}]}`)
	if want := (Listener{Name: "l", Socket: true}); !reflect.DeepEqual(*l, want) {
		t.Errorf("listener is %+v, want %+v", *l, want)
	}
}

// TestFilters: A39, A55, T-RC-8.
func TestFilters(t *testing.T) {
	const unknown = `"typedConfig": {"@type": "type.googleapis.com/envoy.config.core.v3.Node"}`
	got := decodeFilters(t,
		`{"name": "a", "typedConfig": {`+faultURL+`}}`,
		`{"name": "b", "isOptional": true, `+unknown+`}`,
		`{"name": "c", "isOptional": true}`,
		`{"name": "d", "typedConfig": {"@type": "type.googleapis.com/`+builtin[2].config+`"}}`,
		`{"name": "e", "typedConfig": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "typeUrl": "x/`+faultType+`",
			"value": {"max_active_faults": 3, "delay": {"fixed_delay": "1s", "percentage": {"numerator": 50}}, "other": 1}}}`,
		`{"name": "f", "typedConfig": {"@type": "type.googleapis.com/udpa.type.v1.TypedStruct", "typeUrl": "`+faultType+`"}}`,
		`{"name": "g", "disabled": true, "typedConfig": {`+faultURL+`, "abort": {"grpcStatus": 3}}}`,
		`{"name": "h", "isOptional": true, "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.admission_control.v3.AdmissionControl"}}`,
		`{"name": "i", "isOptional": true, "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency"}}`,
	)
	none := &Fault{MaxActive: math.MaxUint32}
	want := []picker.Filter{
		{Name: "a", Type: faultType, Config: none},
		{Name: "d", Type: builtin[2].config, Config: &Session{}},
		{Name: "e", Type: faultType, Config: &Fault{MaxActive: 3, Delay: &FaultDelay{Fixed: time.Second, Chance: Percentage{500000, 10000}}}},
		{Name: "f", Type: faultType, Config: none},
		{Name: "g", Type: faultType, Config: &Fault{MaxActive: math.MaxUint32, Abort: &FaultAbort{Code: 3, Chance: Percentage{0, 1e4}}}, Disabled: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("filters are %+v, want %+v", got, want)
	}
}

// TestFiltersLimit checks that a listener may have 1000 filters (T-SEC-2).
func TestFiltersLimit(t *testing.T) {
	decode := func(filters int) error {
		var list []string
		for i := range filters - 1 {
			list = append(list, fmt.Sprintf(`{"name": "%d", "typedConfig": {%s}}`, i, faultURL))
		}
		_, err := Decode(ListenerType, fromJSON(t, ListenerType, fmt.Sprintf(
			`{"name": "l", "apiListener": {"apiListener": {%s, %s, "httpFilters": [%s]}}}`, hcmURL, rds, strings.Join(append(list, router), ", "))), Options{})
		return err
	}
	if err := decode(1000); err != nil {
		t.Errorf("1000 filters are rejected: %v", err)
	}
	const want = `Listener "l": api_listener.api_listener.http_filters: must have at most 1000 filters (it has 1001)`
	if err := decode(1001); err == nil || err.Error() != want {
		t.Errorf("1001 filters: error %v, want %s", err, want)
	}
}

// TestFault: A33.
func TestFault(t *testing.T) {
	tests := []struct {
		config string
		want   Fault
	}{
		{`"delay": {"headerDelay": {}, "percentage": {"numerator": 5, "denominator": "TEN_THOUSAND"}}, "maxActiveFaults": 0`,
			Fault{Delay: &FaultDelay{Header: true, Chance: Percentage{500, 100}}}},
		{`"delay": {"fixedDelay": "0.25s"}, "maxActiveFaults": 7`,
			Fault{Delay: &FaultDelay{Fixed: 250 * time.Millisecond, Chance: Percentage{0, 10000}}, MaxActive: 7}},
		{`"abort": {"headerAbort": {}, "percentage": {"numerator": 101}}`,
			Fault{Abort: &FaultAbort{Header: true, Chance: Percentage{1e6, 10000}}, MaxActive: math.MaxUint32}},
		{`"abort": {"grpcStatus": 0, "percentage": {"numerator": 3, "denominator": "MILLION"}}`,
			Fault{Abort: &FaultAbort{Code: 0, Chance: Percentage{3, 1}}, MaxActive: math.MaxUint32}},
		{`"abort": {"grpcStatus": 17}`,
			Fault{Abort: &FaultAbort{Code: 2, Chance: Percentage{0, 10000}}, MaxActive: math.MaxUint32}},
		{`"abort": {"httpStatus": 503}, "upstreamCluster": "x", "headers": [{"name": "h"}]`,
			Fault{Abort: &FaultAbort{Code: 14, Chance: Percentage{0, 10000}}, MaxActive: math.MaxUint32}},
	}
	for _, tt := range tests {
		filters := decodeFilters(t, `{"name": "f", "typedConfig": {`+faultURL+`, `+tt.config+`}}`)
		if !reflect.DeepEqual(filters[0].Config, &tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.config, filters[0].Config, tt.want)
		}
	}
}

func TestAbortCode(t *testing.T) {
	for status, want := range map[uint32]string{
		0: "2 false", 199: "2 false", 200: "2 true", 400: "13 true", 401: "16 true", 403: "7 true", 404: "12 true",
		418: "2 true", 429: "14 true", 502: "14 true", 503: "14 true", 504: "14 true", 599: "2 true", 600: "2 false",
	} {
		code, ok := AbortCode(status)
		if got := fmt.Sprint(code, ok); got != want {
			t.Errorf("AbortCode(%d) = %s, want %s", status, got, want)
		}
	}
}

// TestOverrides: A39. Virtual host, route and cluster have their own overrides, and a route has
// its virtual host's in addition.
func TestOverrides(t *testing.T) {
	abort := func(code int) string { return fmt.Sprintf(`{%s, "abort": {"grpcStatus": %d}}`, faultURL, code) }
	wrap := func(config, more string) string {
		return `{"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", ` + more + `"config": ` + config + `}`
	}
	node := `{"@type": "type.googleapis.com/envoy.config.core.v3.Node"}`
	routes := decodeRoutes(t, `"typedPerFilterConfig": {"a": `+abort(1)+`, "b": `+wrap(abort(2), "")+`}, "routes": [
		{"match": {"prefix": ""}, "route": {"cluster": "c"}},
		{"match": {"prefix": ""}, "typedPerFilterConfig": {
			"b": `+abort(3)+`,
			"c": `+wrap(node, `"isOptional": true, `)+`,
			"d": {"@type": "type.googleapis.com/`+builtin[2].override+`"},
			"e": {"@type": "type.googleapis.com/`+builtin[3].override+`"},
			"f": {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true},
			"g": {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig"}
		}, "route": {"weightedClusters": {"clusters": [{"name": "x", "weight": 1, "typedPerFilterConfig": {"a": `+abort(4)+`}}, {"name": "y", "weight": 1}]}}}]`)
	text := func(m map[string]any) string {
		out := map[string]any{}
		for name, v := range m {
			o := v.(FilterOverride)
			if f, ok := o.Config.(*Fault); ok && o.Type == faultType {
				out[name] = f.Abort.Code
			} else if s, ok := o.Config.(*Session); ok && o.Type == builtin[2].config {
				out[name] = *s
			} else {
				out[name] = o
			}
		}
		return fmt.Sprint(out)
	}
	for _, tt := range []struct {
		got  map[string]any
		want string
	}{
		{routes[0].Overrides, "map[]"},
		{routes[0].HostOverrides, "map[a:1 b:2]"},
		{routes[1].HostOverrides, "map[a:1 b:2]"},
		{routes[1].Overrides, "map[b:3 d:{  0s} f:{ <nil> true} g:{ <nil> false}]"},
		{routes[1].Clusters[0].Overrides, "map[a:4]"},
		{routes[1].Clusters[1].Overrides, "map[]"},
	} {
		if got := text(tt.got); got != tt.want {
			t.Errorf("overrides are %s, want %s", got, tt.want)
		}
	}
}

// TestSession: A55. A state that is not in a cookie has no effect; it is no reason
// to refuse a listener.
func TestSession(t *testing.T) {
	const url = "type.googleapis.com/envoy.extensions."
	state := func(typ, rest string) string {
		return `"sessionState": {"name": "s", "typedConfig": {"@type": "` + url + typ + `"` + rest + `}}`
	}
	cookie := func(c string) string {
		return state("http.stateful_session.cookie.v3.CookieBasedSessionState", `, "cookie": {`+c+`}`)
	}
	for config, want := range map[string]Session{
		cookie(`"name": "c", "path": "/p", "ttl": "120s"`): {"c", "/p", 2 * time.Minute},
		cookie(`"name": "c"`):                              {"c", "/", 0},
		state("filters.http.router.v3.Router", ""):         {},
		``: {},
	} {
		if config != "" {
			config = ", " + config
		}
		filters := decodeFilters(t, `{"name": "s", "typedConfig": {"@type": "type.googleapis.com/`+builtin[2].config+`"`+config+`}}`)
		if !reflect.DeepEqual(filters[0].Config, &want) {
			t.Errorf("%s: %+v, want %+v", config, filters[0].Config, want)
		}
	}
	for config, want := range map[string]string{
		cookie(``):                          "cookie.name: must not be empty",
		cookie(`"name": "c", "ttl": "-1s"`): "cookie.ttl: must not be negative",
	} {
		_, err := Decode(ListenerType, fromJSON(t, ListenerType, `{"name": "l", "apiListener": {"apiListener": {`+hcmURL+`, `+rds+`, "httpFilters": [
			{"name": "s", "typedConfig": {"@type": "type.googleapis.com/`+builtin[2].config+`", `+config+`}}, `+router+`]}}}`), Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", config, err, want)
		}
	}
}

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
