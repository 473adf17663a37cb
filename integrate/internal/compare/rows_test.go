// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/compare"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const target = "xds:///svc"

// change changes the resources of a service "svc", or the channel's configuration.
type change func(t *testing.T, r *xdstest.Resources, w *integrate.WhatIf)

func merge(t *testing.T, text string, to proto.Message) {
	t.Helper()
	m := to.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	proto.Merge(to, m)
}

// cluster merges JSON into the Cluster.
func cluster(text string) change {
	return func(t *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) { merge(t, text, r.Clusters[0]) }
}

// route merges JSON into the route.
func route(text string) change {
	return func(t *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) {
		merge(t, text, r.Routes[0].VirtualHosts[0].Routes[0])
	}
}

// filter adds an HTTP filter.
func filter(text string) change {
	return func(t *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) {
		f := new(hcmv3.HttpFilter)
		merge(t, text, f)
		r.Listeners[0] = xdstest.Listener("svc", "svc", f)
	}
}

// config changes the configuration of the channel.
func config(f func(c *integrate.Config)) change {
	return func(_ *testing.T, _ *xdstest.Resources, w *integrate.WhatIf) { f(&w.Config) }
}

// boot sets the bootstrap, with members of the server and of the document.
func boot(server, document string) change {
	return config(func(c *integrate.Config) { c.Bootstrap = bootOf("control:1", "insecure", server, document) })
}

func bootOf(uri, creds, server, document string) []byte {
	return fmt.Appendf(nil, `{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": %q}] %s}], "node": {"id": "n", "metadata": {"GENERATOR": "grpc"}} %s}`, uri, creds, server, document)
}

// all makes several changes.
func all(list ...change) change {
	return func(t *testing.T, r *xdstest.Resources, w *integrate.WhatIf) {
		for _, c := range list {
			c(t, r, w)
		}
	}
}

const (
	ofType  = `"@type": "type.googleapis.com/`
	fault   = ofType + `envoy.extensions.filters.http.fault.v3.HTTPFault"`
	session = ofType + `envoy.extensions.filters.http.stateful_session.v3.StatefulSession", "sessionState": {"name": "x", "typedConfig": {` +
		ofType + `envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState", "cookie": {"name": "c"}}}`
)

// policies is the JSON of a load_balancing_policy.
func policies(list ...string) string {
	var all []string
	for _, p := range list {
		all = append(all, `{"typedExtensionConfig": {"name": "x", "typedConfig": {`+ofType+`envoy.extensions.load_balancing_policies.`+p+`}}}`)
	}
	return `{"policies": [` + strings.Join(all, ",") + `]}`
}

func tls(fields string) string {
	return `{"transportSocket": {"name": "envoy.transport_sockets.tls", "typedConfig": {` + ofType + `envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext" ` + fields + `,
		"commonTlsContext": {"validationContext": {"systemRootCerts": {}}}}}}`
}

func endpoints(text ...string) change {
	return func(t *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) {
		r.Endpoints[0].Endpoints = nil
		for i, s := range text {
			l := new(endpointv3.LocalityLbEndpoints)
			merge(t, fmt.Sprintf(`{"locality": {"zone": "z%d"}, "loadBalancingWeight": 1}`, i), l)
			merge(t, s, l)
			r.Endpoints[0].Endpoints = append(r.Endpoints[0].Endpoints, l)
		}
	}
}

// endpoint is the JSON of an LbEndpoint.
func endpoint(n, weight int) string {
	return fmt.Sprintf(`{"endpoint": {"address": {"socketAddress": {"address": "10.0.0.%d", "portValue": 80}}}, "loadBalancingWeight": %d}`, n, weight)
}

// aggregate makes the Cluster an aggregate of clusters "a" and "b", which have the endpoints.
func aggregate(_ *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) {
	a, b := xdstest.Cluster("a", "svc"), xdstest.Cluster("b", "svc")
	r.Clusters[0] = &clusterv3.Cluster{Name: "svc"}
	_ = protojson.Unmarshal([]byte(`{"name": "svc", "clusterType": {"name": "envoy.clusters.aggregate", "typedConfig": {`+ofType+
		`envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": ["a", "b"]}}}`), r.Clusters[0])
	r.Clusters = append(r.Clusters, a, b)
}

// drop removes the last Cluster.
func drop(_ *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) {
	r.Clusters = r.Clusters[:len(r.Clusters)-1]
}

const (
	rejectsListener = "a Listener that grpc-go rejects"
	rejectsRoutes   = "a RouteConfiguration that grpc-go rejects"
	rejectsCluster  = "a Cluster that grpc-go rejects"
	lacksPolicy     = "an LB policy that grpc-go lacks"
	systemRoots     = "system_root_certs without GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS=true"
	disabledFault   = "a disabled fault filter"
	discovery       = "an overlay that changes how clusters find their endpoints"
)

// cases has the features of channels and resources, by the features that are expected: none means that
// stock serves the resources alike.
var cases = []struct {
	name   string
	want   []string
	where  string // part of the first feature's users
	change change
}{
	{"plain", nil, "", cluster(`{}`)},
	{"ring hash", nil, "", cluster(`{"lbPolicy": "RING_HASH"}`)},
	{"session", []string{rejectsListener}, "StatefulSession", filter(`{"name": "s", "typedConfig": {` + session + `}}`)},
	{"disabled session", []string{rejectsListener}, "StatefulSession", filter(`{"name": "s", "disabled": true, "typedConfig": {` + session + `}}`)},
	{"optional session", []string{"an optional HTTP filter"}, "filter s, StatefulSession", filter(`{"name": "s", "isOptional": true, "typedConfig": {` + session + `}}`)},
	{"optional session with an override", []string{rejectsRoutes, "an optional HTTP filter"}, `typed_per_filter_config["s"]`, all(
		filter(`{"name": "s", "isOptional": true, "typedConfig": {`+session+`}}`),
		route(`{"typedPerFilterConfig": {"s": {`+ofType+`envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute", "disabled": true}}}`))},
	{"fault in a TypedStruct", []string{rejectsListener}, "TypedStruct", filter(`{"name": "f", "typedConfig": {` + ofType + `xds.type.v3.TypedStruct", "typeUrl": "x/envoy.extensions.filters.http.fault.v3.HTTPFault"}}`)},
	{"fault", nil, "", filter(`{"name": "f", "typedConfig": {` + fault + `}}`)},
	{"disabled fault", []string{disabledFault}, "filter f", filter(`{"name": "f", "disabled": true, "typedConfig": {` + fault + `}}`)},
	{"fault disabled by the route", []string{disabledFault}, "route 0", all(filter(`{"name": "f", "typedConfig": {`+fault+`}}`),
		route(`{"typedPerFilterConfig": {"f": {`+ofType+`envoy.config.route.v3.FilterConfig", "disabled": true, "config": {`+fault+`}}}}`))},
	{"fault disabled without a configuration", []string{rejectsRoutes, disabledFault}, "without a configuration", all(filter(`{"name": "f", "typedConfig": {`+fault+`}}`),
		route(`{"typedPerFilterConfig": {"f": {`+ofType+`envoy.config.route.v3.FilterConfig", "disabled": true}}}`))},
	{"plugin", []string{rejectsRoutes}, "cluster_specifier_plugins[0]", func(t *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) {
		merge(t, `{"clusterSpecifierPlugins": [{"extension": {"name": "x", "typedConfig": {`+ofType+`google.protobuf.Empty", "value": {}}}}]}`, r.Routes[0])
	}},
	{"optional plugin", nil, "", func(t *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) {
		merge(t, `{"clusterSpecifierPlugins": [{"isOptional": true, "extension": {"name": "x", "typedConfig": {`+ofType+`google.protobuf.Empty", "value": {}}}}]}`, r.Routes[0])
	}},
	{"MAGLEV", []string{rejectsCluster}, "Cluster svc: lb_policy: MAGLEV", cluster(`{"lbPolicy": "MAGLEV"}`)},
	{"lb_policy beside a list", []string{rejectsCluster}, "lb_policy: LOAD_BALANCING_POLICY_CONFIG", cluster(`{"lbPolicy": "LOAD_BALANCING_POLICY_CONFIG", "loadBalancingPolicy": ` + policies(`round_robin.v3.RoundRobin"`) + `}`)},
	{"maglev alone", []string{rejectsCluster}, "load_balancing_policy.policies", cluster(`{"loadBalancingPolicy": ` + policies(`maglev.v3.Maglev"`) + `}`)},
	{"maglev in wrr_locality", []string{rejectsCluster}, "endpoint_picking_policy.policies", cluster(`{"loadBalancingPolicy": ` + policies(`wrr_locality.v3.WrrLocality", "endpointPickingPolicy": `+policies(`random.v3.Random"`)) + `}`)},
	{"maglev with an alternative", []string{lacksPolicy}, "Cluster svc", cluster(`{"loadBalancingPolicy": ` + policies(`maglev.v3.Maglev"`, `round_robin.v3.RoundRobin"`) + `}`)},
	{"random subset", []string{lacksPolicy}, "Cluster svc", cluster(`{"loadBalancingPolicy": ` + policies(`random_subsetting.v3.RandomSubsetting", "subsetSize": 5, "childPolicy": `+policies(`round_robin.v3.RoundRobin"`), `round_robin.v3.RoundRobin"`) + `}`)},
	{"ring of the default hash", []string{rejectsCluster}, "hash_function: DEFAULT_HASH", cluster(`{"loadBalancingPolicy": ` + policies(`ring_hash.v3.RingHash"`) + `}`)},
	{"ring of XX_HASH", nil, "", cluster(`{"loadBalancingPolicy": ` + policies(`ring_hash.v3.RingHash", "hashFunction": "XX_HASH"`) + `}`)},
	{"gRPC's ring", nil, "", cluster(`{"loadBalancingPolicy": {"policies": [{"typedExtensionConfig": {"name": "x", "typedConfig": {` + ofType + `xds.type.v3.TypedStruct", "typeUrl": "x/ring_hash_experimental", "value": {}}}}]}}`)},
	{"system roots", []string{systemRoots}, "Cluster svc", cluster(tls(""))},
	{"SNI", []string{systemRoots, "sni, auto_host_sni or auto_sni_san_validation without GRPC_EXPERIMENTAL_XDS_SNI=true"}, "", cluster(tls(`, "sni": "a"`))},
	{"aggregate", nil, "", aggregate},
	{"another aggregate", []string{rejectsCluster}, "cluster_type.name", all(aggregate, func(_ *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) {
		r.Clusters[0].GetClusterType().Name = "aggregate"
	})},
	{"missing child", []string{"an aggregate cluster without one of its children"}, "Cluster b", all(aggregate, drop)},
	{"policies of children", []string{"an LB policy of a child of an aggregate cluster"}, "Cluster b", all(aggregate, func(_ *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) {
		r.Clusters[2].LbPolicy = clusterv3.Cluster_RING_HASH
	})},
	{"overlay of the discovery", []string{discovery}, "Cluster svc, by", overlay(`{"resource": "cluster", "name": "*", "merge": {"eds_cluster_config": {"service_name": "svc"}, "type": "EDS", "load_assignment": {"cluster_name": "x"}}}`)},
	{"overlay", []string{"an overlay", "outlier detection by consecutive failures"}, "Cluster svc, by", overlay(`{"resource": "cluster", "name": "*", "merge": {"outlier_detection": {"consecutive_5xx": 5}}}`)},
	{"overlay without effect", nil, "", overlay(`{"resource": "cluster", "name": "other", "merge": {"outlier_detection": {"consecutive_5xx": 5}}}`)},
	// A patch that repairs a Cluster for stock does not, since stock does not see it.
	{"overlay over MAGLEV", []string{rejectsCluster, "an overlay"}, "MAGLEV", all(cluster(`{"lbPolicy": "MAGLEV"}`), overlay(`{"resource": "cluster", "name": "*", "merge": {"lb_policy": "ROUND_ROBIN"}}`))},
	{"call_creds", []string{"call_creds in the bootstrap without GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS=true"}, "", config(func(c *integrate.Config) {
		c.Bootstrap = bootOf("control:1", "tls", `, "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": "/t"}}]`, "")
	})},
	{"delta", []string{"incremental ADS, by Config.Delta or the bootstrap"}, "", config(func(c *integrate.Config) { c.Delta = true })},
	{"delta in the bootstrap", []string{"incremental ADS, by Config.Delta or the bootstrap"}, "", boot(`, "server_features": ["xdslb.delta_ads"]`, "")},
	{"dial options", []string{"Config.ControlPlaneDialOptions"}, "", config(func(c *integrate.Config) { c.ControlPlaneDialOptions = []grpc.DialOption{grpc.EmptyDialOption{}} })},
	{"health service", []string{"Config.HealthCheckService"}, "", config(func(c *integrate.Config) { c.HealthCheckService = "x" })},
	{"throttling", []string{"Config.RetryThrottling"}, "", config(func(c *integrate.Config) { c.RetryThrottling = integrate.RetryThrottling{MaxTokens: 10, TokenRatio: 1} })},
	{"kept resources", []string{"ResourceOptions.KeepDeleted"}, "", config(func(c *integrate.Config) { c.Resources.KeepDeleted = true })},
	{"default of max_requests", []string{"Config.DefaultMaxRequests"}, "Cluster svc", config(func(c *integrate.Config) { c.DefaultMaxRequests = 5000 })},
	{"max_requests", nil, "", all(config(func(c *integrate.Config) { c.DefaultMaxRequests = 5000 }), cluster(`{"circuitBreakers": {"thresholds": [{"maxRequests": 9}]}}`))},
	{"endpoint weights", []string{"endpoint weights"}, "Cluster svc", endpoints(`{"lbEndpoints": [` + endpoint(1, 1) + `,` + endpoint(2, 3) + `]}`)},
	{"ignored weights", nil, "", all(endpoints(`{"lbEndpoints": [`+endpoint(1, 1)+`,`+endpoint(2, 3)+`]}`), config(func(c *integrate.Config) { c.IgnoreEndpointWeights = true }))},
	{"weights of a ring", nil, "", all(endpoints(`{"lbEndpoints": [`+endpoint(1, 1)+`,`+endpoint(2, 3)+`]}`), cluster(`{"lbPolicy": "RING_HASH"}`))},
	{"zones", []string{"zone-aware routing"}, "Cluster svc", all(cluster(`{"commonLbConfig": {"zoneAwareLbConfig": {}}}`), config(func(c *integrate.Config) { c.LocalCluster = "own" }))},
	{"zones without a local cluster", nil, "", cluster(`{"commonLbConfig": {"zoneAwareLbConfig": {}}}`)},
	{"slow start", []string{"slow start"}, "Cluster svc", cluster(`{"roundRobinLbConfig": {"slowStartConfig": {"slowStartWindow": "60s"}}}`)},
	{"LEAST_REQUEST", []string{"LEAST_REQUEST in lb_policy"}, "Cluster svc", all(cluster(`{"lbPolicy": "LEAST_REQUEST"}`), endpoints(`{"lbEndpoints": [`+endpoint(1, 1)+`]}`, `{"lbEndpoints": [`+endpoint(2, 1)+`]}`))},
	{"LEAST_REQUEST of one locality", nil, "", cluster(`{"lbPolicy": "LEAST_REQUEST"}`)},
	{"bounded load", []string{"hash_balance_factor"}, "Cluster svc", cluster(`{"lbPolicy": "RING_HASH", "commonLbConfig": {"consistentHashingLbConfig": {"hashBalanceFactor": 120}}}`)},
	{"retry budget", []string{"retry_budget or max_retries of circuit breakers"}, "Cluster svc", cluster(`{"circuitBreakers": {"thresholds": [{"maxRetries": 9}]}}`)},
	{"health checks", []string{"health_checks of clusters"}, "Cluster svc", cluster(`{"healthChecks": [{"timeout": "1s", "interval": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1, "grpcHealthCheck": {}}]}`)},
	{"success rate", nil, "", cluster(`{"outlierDetection": {}}`)},
	{"per_try_timeout", []string{"per_try_timeout"}, "route 0", route(`{"route": {"cluster": "svc", "retryPolicy": {"retryOn": "unavailable", "perTryTimeout": "1s"}}}`)},
	{"hedging", []string{"hedge_on_per_try_timeout", "per_try_timeout"}, "route 0", route(`{"route": {"cluster": "svc", "hedgePolicy": {"hedgeOnPerTryTimeout": true}, "retryPolicy": {"retryOn": "unavailable", "perTryTimeout": "1s"}}}`)},
	{"previous hosts", []string{"previous_hosts in retry policies"}, "route 0", route(`{"route": {"cluster": "svc", "retryPolicy": {"retryOn": "unavailable", "retryHostPredicate": [{"name": "x", "typedConfig": {` + ofType + `envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}]}}}`)},
	{"retries", nil, "", route(`{"route": {"cluster": "svc", "retryPolicy": {"retryOn": "unavailable"}}}`)},
	{"header mutations", []string{"request_headers_to_add or request_headers_to_remove"}, "route 0", route(`{"requestHeadersToRemove": ["x"]}`)},
	{"header mutations of a cluster", []string{"request_headers_to_add or request_headers_to_remove"}, "route 0", route(`{"route": {"weightedClusters": {"clusters": [{"name": "svc", "weight": 1, "requestHeadersToRemove": ["x"]}]}}}`)},
	{"authority", []string{"host_rewrite_literal"}, "route 0", all(boot(`, "server_features": ["trusted_xds_server"]`, ""), route(`{"route": {"cluster": "svc", "hostRewriteLiteral": "x"}}`))},
	{"authority of endpoints", []string{"auto_host_rewrite without GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE=true"}, "route 0", all(boot(`, "server_features": ["trusted_xds_server"]`, ""), route(`{"route": {"cluster": "svc", "autoHostRewrite": true}}`))},
	{"SPIFFE", []string{"spiffe_trust_bundle_map_file without GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE=true"}, "", boot("", `, "certificate_providers": {"p": {"plugin_name": "file_watcher", "config": {"spiffe_trust_bundle_map_file": "/x"}}}`)},
}

func overlay(patch string) change {
	return config(func(c *integrate.Config) { c.Overlay = []byte(`{"patches": [` + patch + `]}`) })
}

// inspect returns the status of a channel by the changed resources.
func inspect(t *testing.T, c change) *report.TargetStatus {
	t.Helper()
	r := xdstest.Service("svc", xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.1:80")}, {Addr: netip.MustParseAddrPort("10.0.0.2:80")}}})
	w := integrate.WhatIf{Target: target}
	c(t, &r, &w)
	list := map[string][]json.RawMessage{}
	add := func(key string, m proto.Message) {
		text, err := protojson.Marshal(m)
		kit.Must(t, err)
		list[key] = append(list[key], text)
	}
	for _, m := range r.Listeners {
		add("listeners", (*listenerv3.Listener)(m))
	}
	for _, m := range r.Routes {
		add("routes", (*routev3.RouteConfiguration)(m))
	}
	for _, m := range r.Clusters {
		add("clusters", m)
	}
	for _, m := range r.Endpoints {
		add("endpoints", m)
	}
	w.Resources, _ = json.Marshal(list)
	s, err := integrate.InspectWhatIf(w)
	kit.Must(t, err)
	for _, c := range s.Clusters {
		if c.Error != "" {
			t.Fatalf("the cluster fails: %s", c.Error)
		}
	}
	return s
}

func features(list []report.StockDifference) (names []string) {
	for _, d := range list {
		names = append(names, d.Feature)
	}
	return names
}

// TestRows checks which features of resources and channels are reported, with a case for each row.
func TestRows(t *testing.T) {
	for _, v := range []string{"GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG", "XDSLB_OVERLAY"} {
		t.Setenv(v, "")
	}
	t.Setenv("GRPC_XDS_BOOTSTRAP", "/some/file")
	rows, covered := compare.Features(), map[string]bool{}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			s := inspect(t, tt.change)
			got := features(s.StockDifferences)
			want := slices.Clone(tt.want)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("features %q, want %q", got, want)
			}
			for _, d := range s.StockDifferences {
				covered[d.Feature] = true
				if loses, ok := rows[d.Feature]; !ok || loses != d.LosesRPCs || d.Effect == "" || d.LosesRPCs && d.Remedy == "" {
					t.Errorf("%+v", d)
				}
				if d.Feature == tt.want[0] && tt.where != "" && !strings.Contains(strings.Join(d.Where, "; "), tt.where) {
					t.Errorf("%s: users are %q, want %q among them", d.Feature, d.Where, tt.where)
				}
			}
		})
	}
	t.Run("bootstrap", func(t *testing.T) {
		t.Setenv("GRPC_XDS_BOOTSTRAP", "")
		s := inspect(t, boot("", ""))
		const want = "Config.Bootstrap without a bootstrap in the environment"
		if got := features(s.StockDifferences); !slices.Equal(got, []string{want}) {
			t.Errorf("features %q, want %q", got, want)
		}
		covered[want] = true
	})
	t.Run("variables", func(t *testing.T) {
		for _, v := range []string{"SYSTEM_ROOT_CERTS", "SNI", "BOOTSTRAP_CALL_CREDS", "AUTHORITY_REWRITE", "MTLS_SPIFFE", "EXT_PROC_ON_CLIENT"} {
			t.Setenv("GRPC_EXPERIMENTAL_XDS_"+v, "true")
		}
		for _, tt := range cases {
			if len(tt.want) > 0 && (strings.Contains(tt.want[0], "GRPC_EXPERIMENTAL") || tt.want[0] == disabledFault) {
				if s := inspect(t, tt.change); len(s.StockDifferences) > 0 {
					t.Errorf("%s, with the variable: %q", tt.name, features(s.StockDifferences))
				}
			}
		}
	})
	t.Run("channel", func(t *testing.T) {
		const (
			agent  = "several targets behind an agent that accepts one stream"
			delta  = "a control plane that serves incremental ADS only"
			source = "a source in the process in place of a control plane, or as its fallback"
		)
		xds.RegisterSource("rows", func(string) (xds.Source, error) { return nil, nil })
		for _, tt := range []struct {
			uri, variant, want string
			targets            int
		}{
			{"unix:///etc/istio/proxy/XDS", "StreamAggregatedResources", "", 1},
			{"unix:///etc/istio/proxy/XDS", "StreamAggregatedResources", agent, 2},
			{"istiod:15012", "StreamAggregatedResources", "", 2},
			{"control:1", "DeltaAggregatedResources", delta, 1},
			{"rows:", "DeltaAggregatedResources", source, 1},
			{"rows:", "", source, 1},
		} {
			b, err := bootstrap.Parser{}.Parse("test", bootOf(tt.uri, "insecure", "", ""))
			kit.Must(t, err)
			list := compare.Differences(&compare.Input{Bootstrap: b, Variants: map[string]string{tt.uri: tt.variant}, Targets: func() int { return tt.targets }})
			if got := strings.Join(features(list), ", "); got != tt.want || len(compare.Losses(list)) != len(list) {
				t.Errorf("%+v: %+v", tt, list)
			}
			covered[tt.want] = true
		}
	})
	for _, f := range slices.Sorted(maps.Keys(rows)) {
		if !covered[f] {
			t.Errorf("no case has the feature %q", f)
		}
	}
}

// TestManyUsers checks that the list of the users of a feature is bounded, and that each user is in it once.
func TestManyUsers(t *testing.T) {
	s := inspect(t, func(_ *testing.T, r *xdstest.Resources, _ *integrate.WhatIf) {
		host := r.Routes[0].VirtualHosts[0]
		for i := range 20 {
			added := xdstest.Route(fmt.Sprintf("/%d", i), "svc")
			added.RequestHeadersToRemove = []string{"x"}
			host.Routes = append(host.Routes, added)
		}
	})
	if len(s.StockDifferences) != 1 || len(s.StockDifferences[0].Where) != 9 || s.StockDifferences[0].Where[8] != "and 12 more" {
		t.Errorf("%+v, want 8 routes, and 12 more", s.StockDifferences)
	}
}

// TestShares compares the shares of both with the ones that follow from the weights: in stock a
// locality has its share by weight, and its endpoints equal parts of it; LEAST_REQUEST gives all
// endpoints of a priority the same share there.
func TestShares(t *testing.T) {
	list := func(weight int, e ...string) string {
		return fmt.Sprintf(`{"loadBalancingWeight": %d, "lbEndpoints": [%s]}`, weight, strings.Join(e, ","))
	}
	weighted := endpoints(list(3, endpoint(1, 1), endpoint(2, 3)), list(1, endpoint(3, 5), endpoint(4, 5)))
	for _, tt := range []struct {
		name   string
		change change
		moved  float64
		causes []string
		shares map[string][2]float64 // stock, xdslb
	}{
		{"equal weights", endpoints(list(3, endpoint(1, 2), endpoint(2, 2)), list(1, endpoint(3, 5))), 0, nil, nil},
		{"weights", weighted, .75 * .25, []string{"endpoint weights"}, map[string][2]float64{
			"10.0.0.1:80": {.375, .1875}, "10.0.0.2:80": {.375, .5625},
		}},
		{"ignored weights", all(weighted, config(func(c *integrate.Config) { c.IgnoreEndpointWeights = true })), 0, nil, nil},
		{"a draining endpoint", all(endpoints(list(1, endpoint(1, 2), endpoint(2, 2), strings.Replace(endpoint(3, 9), `{`, `{"healthStatus": "DRAINING", `, 1)))), 0, nil, nil},
		{"LEAST_REQUEST", all(cluster(`{"lbPolicy": "LEAST_REQUEST"}`), endpoints(list(3, endpoint(1, 1)), list(1, endpoint(2, 1)))), .25,
			[]string{"locality weights with LEAST_REQUEST"}, map[string][2]float64{"10.0.0.1:80": {.5, .75}, "10.0.0.2:80": {.5, .25}}},
		{"ring hash", all(weighted, cluster(`{"lbPolicy": "RING_HASH"}`)), 0, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := inspect(t, tt.change).ShareShifts
			if tt.moved == 0 {
				if len(s) > 0 {
					t.Errorf("%+v, want no shift", s)
				}
				return
			}
			if len(s) != 1 || s[0].Cluster != "svc" || math.Abs(s[0].Moved-tt.moved) > 1e-6 || !slices.Equal(s[0].Causes, tt.causes) || len(s[0].Endpoints) != len(tt.shares) {
				t.Fatalf("%+v, want %v moved by %q", s, tt.moved, tt.causes)
			}
			for _, e := range s[0].Endpoints {
				want, ok := tt.shares[e.Address]
				if !ok || math.Abs(e.Stock-want[0]) > 1e-6 || math.Abs(e.Xdslb-want[1]) > 1e-6 {
					t.Errorf("%+v, want %v", e, want)
				}
			}
		})
	}
}

// TestManyShares checks that the list of endpoints is bounded, and has those that change most.
func TestManyShares(t *testing.T) {
	var e []string
	for i := range 40 {
		e = append(e, endpoint(i+1, 1+i/39*400))
	}
	s := inspect(t, endpoints(`{"lbEndpoints": [`+strings.Join(e, ",")+`]}`)).ShareShifts
	if len(s) != 1 || len(s[0].Endpoints) != 10 || s[0].Endpoints[0].Address != "10.0.0.40:80" {
		t.Errorf("%+v, want 10 endpoints, with the heaviest first", s)
	}
}
