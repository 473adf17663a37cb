// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A stricterRule is a row of the table of DIFFERENCES.md that lists the resources that stock
// accepts and this module rejects.
type stricterRule struct {
	resource string
	rejected string // the table's second cell
	reason   string // the table's third cell
	json     []string
}

// Reasons that the test checks, and reasons that it cannot check.
const (
	byAPI      = "xDS API"  // a validation rule in the API's proto files
	byProtobuf = "protobuf" // the documentation of google.protobuf.Duration
)

// stricterRules has examples of each rule: the JSON of a Route, an HTTPFault, a
// HttpConnectionManager, a Cluster, an LbEndpoint, or a list of LbEndpoints.
var stricterRules = []stricterRule{
	{"Route", "a cluster without a name", byAPI, routes(`"route": {"cluster": ""}`)},
	{"Route", "a weighted cluster without a name", "no such cluster can exist", routes(`"route": {"weightedClusters": {"clusters": [{"name": "", "weight": 1}, {"name": "c", "weight": 1}]}}`)},
	{"Route", "a header match without a name", byAPI, matches(`"headers": [{"presentMatch": true}]`)},
	{"Route", "a hash policy by a header without a name", byAPI, routes(`"route": {"cluster": "c", "hashPolicy": [{"header": {}}]}`)},
	{"Route", "an empty regular expression", byAPI, append(
		matches(`"headers": [{"name": "h", "safeRegexMatch": {}}]`, `"headers": [{"name": "h", "stringMatch": {"safeRegex": {}}}]`),
		routes(`"route": {"cluster": "c", "hashPolicy": [{"header": {"headerName": "h", "regexRewrite": {"pattern": {}}}}]}`)...)},
	{"Route", "a regular expression above 8 KiB, or all of a resource above 2^20 instructions", "[limits](../xds/SECURITY.md#sizes)", matches(
		`"headers": [{"name": "h", "safeRegexMatch": {"regex": "`+strings.Repeat("x", 8193)+`"}}]`,
		`"headers": [`+bigRegexps+`]`)},
	{"Route", "a runtime_fraction without default_value", byAPI, matches(`"runtimeFraction": {}`)},
	{"Route", "a fraction with an unknown denominator", byAPI, matches(`"runtimeFraction": {"defaultValue": {"numerator": 1, "denominator": 7}}`)},
	{"Route", "a duration that is negative or invalid", byProtobuf, routes(
		`"route": {"cluster": "c", "maxStreamDuration": {"maxStreamDuration": "-1s"}}`,
		`"route": {"cluster": "c", "maxStreamDuration": {"grpcTimeoutHeaderMax": "-1s"}}`,
		`"route": {"cluster": "c", "retryPolicy": {"retryOn": "internal", "perTryTimeout": "-1s"}}`)},
	{"HttpConnectionManager", "a max_stream_duration that is negative or invalid", byProtobuf, []string{`{"commonHttpProtocolOptions": {"maxStreamDuration": "-1s"}}`}},
	{"HTTPFault", "a delay or abort that does not say which", byAPI, []string{`{"delay": {}}`, `{"abort": {}}`}},
	{"HTTPFault", "a negative fixed_delay", byAPI, []string{`{"delay": {"fixedDelay": "-1s"}}`}},
	{"HTTPFault", "an http_status outside 200 to 599", byAPI, []string{`{"abort": {"httpStatus": 199}}`, `{"abort": {"httpStatus": 600}}`}},
	{"HTTPFault", "a percentage with an unknown denominator", byAPI, []string{`{"delay": {"fixedDelay": "1s", "percentage": {"denominator": 7}}}`, `{"abort": {"grpcStatus": 1, "percentage": {"denominator": 7}}}`}},
	{"VirtualHost", "a domain that is empty or has a wildcard within it", "no authority matches it", []string{`{"domains": [""]}`, `{"domains": ["a*b"]}`}},
	{"Cluster", "a ring whose minimum is above its maximum", "A42", []string{`{"lbPolicy": "RING_HASH", "ringHashLbConfig": {"minimumRingSize": 9, "maximumRingSize": 8}}`}},
	{"Cluster", "a ring of more than 8M entries", byAPI, []string{`{"lbPolicy": "RING_HASH", "ringHashLbConfig": {"maximumRingSize": 8388609}}`}},
	{"Cluster", "a retry_budget outside 0 to 100 %", byAPI, []string{`{"circuitBreakers": {"thresholds": [{"retryBudget": {"budgetPercent": {"value": 101}}}]}}`}},
	{"Cluster", "a LOGICAL_DNS port above 65535", byAPI, []string{`{"type": "LOGICAL_DNS", "loadAssignment": {"endpoints": [{"lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "h", "portValue": 65536}}}}]}]}}`}},
	{"Cluster", "an aggregate with a child without a name", "no such cluster can exist", []string{`{"clusterType": {"name": "envoy.clusters.aggregate", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": ["c", ""]}}}`}},
	{"Cluster", "a slow start that is negative or invalid", byProtobuf, []string{policy(`round_robin.v3.RoundRobin`, `"slowStartConfig": {"slowStartWindow": "-1s"}`)}},
	{"Cluster", "periods of client_side_weighted_round_robin that are negative or invalid", byProtobuf, []string{
		policy(`client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin`, `"blackoutPeriod": "-1s"`),
		policy(`client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin`, `"weightExpirationPeriod": "-1s"`)}},
	{"LbEndpoint", "an address that is a name", "A27; `ResourceOptions.AcceptHostnames` accepts names", []string{socket(`"address": "backend", "portValue": 80`)}},
	{"LbEndpoint", "an address that is empty, or without a port", byAPI, []string{socket(`"portValue": 80`), socket(`"address": "10.0.0.1"`)}},
	{"LbEndpoint", "a port above 65535", byAPI, []string{socket(`"address": "10.0.0.1", "portValue": 65536`)}},
	{"LbEndpoint", "an address that is not a socket address", "A27", []string{`[{}]`, `[{"endpoint": {}}]`, `[{"endpoint": {"address": {"pipe": {"path": "/x"}}}}]`}},
	{"LbEndpoint", "the same address in two spellings", "one endpoint would count twice (A27)", []string{
		`[{"endpoint": {"address": {"socketAddress": {"address": "::1", "portValue": 80}}}}, {"endpoint": {"address": {"socketAddress": {"address": "0:0::1", "portValue": 80}}}}]`}},
	{"LocalityLbEndpoints", "`leds_cluster_locality_config`", "LEDS is not supported, and there would be no endpoints", []string{`{"ledsClusterLocalityConfig": {"ledsConfig": {"ads": {}}, "ledsCollectionName": "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/c/*"}}`}},
}

// bigRegexps is a list of regular expressions that are small, but not all together.
var bigRegexps = func() string {
	var list []string
	for i := range 400 {
		list = append(list, fmt.Sprintf(`{"name": "h", "safeRegexMatch": {"regex": "(%d.{30}){30}"}}`, 1000+i))
	}
	return strings.Join(list, ",")
}()

func routes(actions ...string) (list []string) {
	for _, action := range actions {
		list = append(list, `{"match": {"prefix": ""}, `+action+`}`)
	}
	return list
}

func matches(conditions ...string) (list []string) {
	for _, c := range conditions {
		list = append(list, `{"match": {"prefix": "", `+c+`}, "route": {"cluster": "c"}}`)
	}
	return list
}

func policy(name, config string) string {
	return `{"loadBalancingPolicy": {"policies": [{"typedExtensionConfig": {"name": "x", "typedConfig": {
		"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality",
		"endpointPickingPolicy": {"policies": [{"typedExtensionConfig": {"name": "y", "typedConfig": {
			"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.` + name + `", ` + config + `}}}]}}}}]}}`
}

func socket(fields string) string {
	return `[{"endpoint": {"address": {"socketAddress": {` + fields + `}}}}]`
}

// apply puts an example into a service. It returns the type of the resource to be rejected,
// and the messages that the example consists of.
func (r *stricterRule) apply(t *testing.T, example string, s *xdstest.Resources) (typ string, messages []proto.Message) {
	read := func(text string, m proto.Message) {
		if err := protojson.Unmarshal([]byte(text), m); err != nil {
			t.Fatalf("%.200s: %v", text, err)
		}
		messages = append(messages, m)
	}
	host := s.Routes[0].VirtualHosts[0]
	switch r.resource {
	case "Route":
		host.Routes = []*routev3.Route{{}}
		read(example, host.Routes[0])
		return xdstest.RDS, messages
	case "VirtualHost":
		v := new(routev3.VirtualHost)
		read(example, v)
		v.Name = "v"
		s.Routes[0].VirtualHosts = append(s.Routes[0].VirtualHosts, v)
		return xdstest.RDS, messages
	case "HTTPFault":
		f := new(faultv3.HTTPFault)
		read(example, f)
		config, _ := anypb.New(f)
		s.Listeners[0] = xdstest.Listener("svc", "svc", &hcmv3.HttpFilter{Name: "fault", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}})
		return xdstest.LDS, messages
	case "HttpConnectionManager":
		hcm := new(hcmv3.HttpConnectionManager)
		kit.Must(t, s.Listeners[0].ApiListener.ApiListener.UnmarshalTo(hcm))
		change := new(hcmv3.HttpConnectionManager)
		read(example, change)
		proto.Merge(hcm, change)
		s.Listeners[0].ApiListener.ApiListener, _ = anypb.New(hcm)
		return xdstest.LDS, nil
	case "Cluster":
		c := proto.Clone(s.Clusters[0])
		read(example, c)
		name := s.Clusters[0].Name
		proto.Merge(s.Clusters[0], c)
		s.Clusters[0].Name = name
		return xdstest.CDS, []proto.Message{s.Clusters[0]}
	case "LocalityLbEndpoints":
		change := new(endpointv3.LocalityLbEndpoints)
		read(example, change)
		s.Endpoints[0].Endpoints[0].LbEndpoints = nil
		proto.Merge(s.Endpoints[0].Endpoints[0], change)
		return xdstest.EDS, messages
	}
	list := new(endpointv3.LocalityLbEndpoints)
	read(`{"lbEndpoints": `+example+`}`, list)
	proto.Merge(s.Endpoints[0].Endpoints[0], list)
	return xdstest.EDS, messages
}

// isValid reports whether the messages obey the validation rules of the API.
func isValid(messages []proto.Message) bool {
	return !slices.ContainsFunc(messages, func(m proto.Message) bool {
		v, ok := m.(interface{ ValidateAll() error })
		return ok && v.ValidateAll() != nil
	})
}

// verdict returns the error_detail of the client's first answer to the resources of a type, or
// nil if it accepts them.
func verdict(t *testing.T, n *xdstest.Network, name string, r xdstest.Resources, typ string) error {
	answers := make(chan error, 1)
	s := &side{name: name, net: n}
	s.control = xdstest.New(t, xdstest.Options{Listen: n.Listen, OnRequest: func(_ int64, req *discoveryv3.DiscoveryRequest) {
		if req.GetTypeUrl() != typ || req.GetResponseNonce() == "" {
			return
		}
		var err error
		if req.GetErrorDetail() != nil {
			err = errors.New(req.GetErrorDetail().GetMessage())
		}
		select {
		case answers <- err:
		default:
		}
	}})
	kit.Must(t, s.control.Set(r))
	cc := s.dial(t, "svc")
	defer cc.Close()
	cc.Connect()
	select {
	case err := <-answers:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s: no answer within a minute", name)
		return nil
	}
}

// TestStricter holds the table of DIFFERENCES.md to both clients: stock accepts each example and
// this module rejects it, for a reason that the API's validation rules confirm or do not know.
func TestStricter(t *testing.T) {
	n := xdstest.NewNetwork()
	for _, rule := range stricterRules {
		for i, example := range rule.json {
			t.Run(fmt.Sprintf("%s %s %d", rule.resource, rule.rejected, i), func(t *testing.T) {
				for _, name := range both {
					r := xdstest.Service("svc", xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("127.0.0.1:1")}}})
					typ, messages := rule.apply(t, example, &r)
					if valid := isValid(messages); valid == (rule.reason == byAPI) {
						t.Errorf("the validation rules of the xDS API accept it: %t, and the table's reason is %q", valid, rule.reason)
					}
					if err := verdict(t, n, name, r, typ); (err == nil) != (name == stock) {
						t.Errorf("%s: error %v", name, err)
					}
				}
			})
		}
	}
}

// TestStricterTable checks that DIFFERENCES.md has exactly these rules.
func TestStricterTable(t *testing.T) {
	text, err := os.ReadFile("../../integrate/DIFFERENCES.md")
	kit.Must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Resources that stock accepts and this module rejects\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got, want []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want = []string{"| message | rejected | reason |"}
	for _, r := range stricterRules {
		want = append(want, fmt.Sprintf("| %s | %s | %s |", r.resource, r.rejected, r.reason))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

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
