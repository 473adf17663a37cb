// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A laxerRule is a row of the table of DIFFERENCES.md that lists the resources that this module
// accepts and stock rejects, which resource.RejectedByStock finds.
type laxerRule struct {
	resource string
	rejected string // by stock: the table's second cell
	json     []string
	alike    []string // similar resources, which stock accepts
}

const (
	sessionFilter = `"typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.stateful_session.v3.StatefulSession", "sessionState": {"name": "x", "typedConfig": {
		"@type": "type.googleapis.com/envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState", "cookie": {"name": "c"}}}}`
	sessionOverride = `"@type": "type.googleapis.com/envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute", "disabled": true`
	faultConfig     = `{"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"}`
	localhost       = `"loadAssignment": {"clusterName": "c", "endpoints": [{"lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "localhost", "portValue": 80}}}}]}]}`
	aggregateConfig = `"typedConfig": {"@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": ["c"]}`
)

func filterOverride(fields string) string {
	return `{"match": {"prefix": ""}, "route": {"cluster": "c"}, "typedPerFilterConfig": {"f": {` + fields + `}}}`
}

func filterConfig(fields string) string {
	return filterOverride(`"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", ` + fields)
}

func listOf(names ...string) string {
	var list []string
	for _, n := range names {
		list = append(list, `{"typedExtensionConfig": {"name": "x", "typedConfig": {"@type": "type.googleapis.com/`+n+`}}}`)
	}
	return `{"policies": [` + strings.Join(list, ",") + `]}`
}

const (
	envoyPolicies = "envoy.extensions.load_balancing_policies."
	plainPolicy   = envoyPolicies + `round_robin.v3.RoundRobin"`
	maglevPolicy  = envoyPolicies + `maglev.v3.Maglev"`
)

var laxerRules = []laxerRule{
	{"HttpConnectionManager", "an HTTP filter that is not optional, except for the router and fault injection: stateful sessions, and filters of `RegisterHTTPFilter`",
		[]string{`{"httpFilters": [{"name": "s", ` + sessionFilter + `}]}`, `{"httpFilters": [{"name": "s", "disabled": true, ` + sessionFilter + `}]}`},
		[]string{`{"httpFilters": [{"name": "s", "isOptional": true, ` + sessionFilter + `}]}`}},
	{"HttpConnectionManager", "a fault filter in a TypedStruct",
		[]string{`{"httpFilters": [{"name": "f", "isOptional": true, "typedConfig": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "typeUrl": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", "value": {}}}]}`},
		[]string{`{"httpFilters": [{"name": "f", "typedConfig": ` + faultConfig + `}]}`}},
	{"Route", "an override of such a filter that is not optional, also if the filter is",
		[]string{filterOverride(sessionOverride), filterConfig(`"config": {` + sessionOverride + `}`), filterConfig(`"disabled": true, "config": {` + sessionOverride + `}`)},
		[]string{filterConfig(`"isOptional": true, "config": {` + sessionOverride + `}`), filterConfig(`"config": ` + faultConfig)}},
	{"Route", "an override without a configuration, such as `disabled: true` alone, that is not optional",
		[]string{filterConfig(`"disabled": true`)}, []string{filterConfig(`"disabled": true, "isOptional": true`), filterConfig(`"disabled": true, "config": ` + faultConfig)}},
	{"RouteConfiguration", "an unsupported `cluster_specifier_plugins` that is not optional; its routes are omitted here",
		[]string{`{"clusterSpecifierPlugins": [{"extension": {"name": "x", "typedConfig": {"@type": "type.googleapis.com/google.protobuf.Empty", "value": {}}}}]}`},
		[]string{`{"clusterSpecifierPlugins": [{"isOptional": true, "extension": {"name": "x", "typedConfig": {"@type": "type.googleapis.com/google.protobuf.Empty", "value": {}}}}]}`}},
	{"Cluster", "a `lb_policy` other than `ROUND_ROBIN`, `LEAST_REQUEST` and `RING_HASH`, also beside `load_balancing_policy`",
		[]string{`{"lbPolicy": "MAGLEV"}`, `{"lbPolicy": "RANDOM"}`, `{"lbPolicy": "LOAD_BALANCING_POLICY_CONFIG", "loadBalancingPolicy": ` + listOf(plainPolicy) + `}`},
		[]string{`{"lbPolicy": "LEAST_REQUEST"}`, `{"lbPolicy": "RING_HASH"}`}},
	{"Cluster", "invalid messages of `lb_policy` beside `load_balancing_policy`",
		[]string{
			`{"lbPolicy": "RING_HASH", "ringHashLbConfig": {"hashFunction": "MURMUR_HASH_2"}, "loadBalancingPolicy": ` + listOf(plainPolicy) + `}`,
			`{"lbPolicy": "LEAST_REQUEST", "leastRequestLbConfig": {"choiceCount": 1}, "loadBalancingPolicy": ` + listOf(plainPolicy) + `}`,
		},
		[]string{`{"ringHashLbConfig": {"hashFunction": "MURMUR_HASH_2"}}`}},
	{"Cluster", "a `load_balancing_policy` without an entry that stock supports",
		[]string{
			`{"loadBalancingPolicy": ` + listOf(maglevPolicy) + `}`,
			`{"loadBalancingPolicy": ` + listOf(envoyPolicies+`wrr_locality.v3.WrrLocality", "endpointPickingPolicy": `+listOf(envoyPolicies+`random.v3.Random"`)) + `}`,
			`{"loadBalancingPolicy": ` + listOf(envoyPolicies+`random_subsetting.v3.RandomSubsetting", "subsetSize": 5, "childPolicy": `+listOf(plainPolicy)) + `}`,
		},
		[]string{
			`{"loadBalancingPolicy": ` + listOf(maglevPolicy, plainPolicy) + `}`,
			`{"loadBalancingPolicy": ` + listOf(envoyPolicies+`wrr_locality.v3.WrrLocality", "endpointPickingPolicy": `+listOf(maglevPolicy, plainPolicy)) + `}`,
			`{"loadBalancingPolicy": ` + listOf(`xds.type.v3.TypedStruct", "typeUrl": "x/ring_hash_experimental", "value": {}`) + `}`,
			`{"loadBalancingPolicy": ` + listOf(`udpa.type.v1.TypedStruct", "typeUrl": "x/no_such_policy", "value": {}`, plainPolicy) + `}`,
			`{"loadBalancingPolicy": ` + listOf(`xds.type.v3.TypedStruct", "typeUrl": "x/xdslb_least_latency", "value": {}`) + `}`,
		}},
	{"Cluster", "a `ring_hash` of `load_balancing_policy` with another `hash_function` than `XX_HASH`, such as the default",
		[]string{`{"loadBalancingPolicy": ` + listOf(envoyPolicies+`ring_hash.v3.RingHash"`, plainPolicy) + `}`},
		[]string{`{"loadBalancingPolicy": ` + listOf(envoyPolicies+`ring_hash.v3.RingHash", "hashFunction": "XX_HASH"`) + `}`}},
	{"Cluster", "these policies of an aggregate cluster, which are not used here",
		[]string{`{"clusterType": {"name": "envoy.clusters.aggregate", ` + aggregateConfig + `}, "lbPolicy": "MAGLEV"}`},
		[]string{`{"clusterType": {"name": "envoy.clusters.aggregate", ` + aggregateConfig + `}}`}},
	{"Cluster", "type `STRICT_DNS`", []string{`{"type": "STRICT_DNS", ` + localhost + `}`}, []string{`{"type": "LOGICAL_DNS", ` + localhost + `}`}},
	{"Cluster", "an aggregate cluster whose `cluster_type.name` is not `envoy.clusters.aggregate`",
		[]string{`{"clusterType": {"name": "x", ` + aggregateConfig + `}}`}, nil},
}

// apply puts an example into a service, and returns its type and the changed resource.
func (r *laxerRule) apply(t *testing.T, example string, s *xdstest.Resources) (string, proto.Message) {
	switch r.resource {
	case "RouteConfiguration":
		change := new(routev3.RouteConfiguration)
		if err := protojson.Unmarshal([]byte(example), change); err != nil {
			t.Fatalf("%s: %v", example, err)
		}
		proto.Merge(s.Routes[0], change)
		return xdstest.RDS, s.Routes[0]
	case "HttpConnectionManager":
		change := new(hcmv3.HttpConnectionManager)
		if err := protojson.Unmarshal([]byte(example), change); err != nil {
			t.Fatalf("%s: %v", example, err)
		}
		s.Listeners[0] = xdstest.Listener("svc", "svc", change.GetHttpFilters()...)
		return xdstest.LDS, s.Listeners[0]
	}
	typ, _ := (&stricterRule{resource: r.resource}).apply(t, example, s)
	if typ == xdstest.CDS {
		return typ, s.Clusters[0]
	}
	return typ, s.Routes[0]
}

// types are the resource types of the examples.
var types = map[string]resource.Type{xdstest.LDS: resource.ListenerType, xdstest.RDS: resource.RouteConfigType, xdstest.CDS: resource.ClusterType}

// TestLaxer holds resource.RejectedByStock to stock: both clients answer each example, which this
// module accepts. Stock rejects it if and only if that function returns a reason.
func TestLaxer(t *testing.T) {
	n := xdstest.NewNetwork()
	for _, rule := range laxerRules {
		for i, example := range slices.Concat(rule.json, rule.alike) {
			rejected := i < len(rule.json)
			t.Run(fmt.Sprintf("%s %.40s %d", rule.resource, rule.rejected, i), func(t *testing.T) {
				for _, name := range both {
					r := xdstest.Service("svc", xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("127.0.0.1:1")}}})
					typ, m := rule.apply(t, example, &r)
					text, err := proto.Marshal(m)
					kit.Must(t, err)
					decoded, err := resource.Decode(types[typ], text, resource.Options{})
					if reasons := resource.RejectedByStock(decoded); err != nil || len(reasons) > 0 != rejected {
						t.Errorf("RejectedByStock returns %q, want reasons: %t (%v)", reasons, rejected, err)
					}
					if err := verdict(t, n, name, r, typ); (err != nil) != (rejected && name == stock) {
						t.Errorf("%s: error %v", name, err)
					}
				}
			})
		}
	}
}

// TestLaxerTable checks that DIFFERENCES.md has exactly these rules.
func TestLaxerTable(t *testing.T) {
	text, err := os.ReadFile("../../integrate/DIFFERENCES.md")
	kit.Must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Resources that this module accepts and stock rejects\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{"| message | stock rejects |"}
	for _, r := range laxerRules {
		want = append(want, fmt.Sprintf("| %s | %s |", r.resource, r.rejected))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
