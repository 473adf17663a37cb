// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// decodeCluster returns an EDS cluster with the given JSON fields.
func decodeCluster(tb testing.TB, fields string) *Cluster {
	tb.Helper()
	return decodeAs[*Cluster](tb, ClusterType, `{"name": "c", "type": "EDS", `+fields+`}`)
}

const ads = `"edsClusterConfig": {"edsConfig": {"ads": {}}}`

// TestCluster: A27-CL-1 … 6, A32, A37, A47, A85.
func TestCluster(t *testing.T) {
	eds := Cluster{Name: "c", EDSService: "c", MaxRequests: 1024, DefaultLimit: true}
	with := func(change func(c *Cluster)) Cluster {
		c := eds
		change(&c)
		return c
	}
	const dns = `"type": "LOGICAL_DNS", "loadAssignment": {"endpoints": [{"lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "%s", "portValue": 443}}}}]}]}`
	tests := []struct {
		name, json string
		want       Cluster
	}{
		{"no service name", `"type": "EDS", ` + ads, eds},
		{"a service name, from the same server", `"type": "EDS", "edsClusterConfig": {"serviceName": "s", "edsConfig": {"self": {}}}`,
			with(func(c *Cluster) { c.EDSService, c.ServiceName = "s", "s" })},
		{"A27-CL-5", `"type": "EDS", "lrsServer": {"self": {}}, ` + ads, with(func(c *Cluster) { c.LoadReporting = true })},
		{"A85", `"type": "EDS", "lrsReportEndpointMetrics": ["cpu_utilization", "named_metrics.a", "x", "named_metrics.", "named_metrics.a", "named_metrics.*"], ` + ads,
			with(func(c *Cluster) { c.Metrics = []string{"cpu_utilization", "named_metrics.a", "named_metrics.*"} })},
		{"A32: the first thresholds of the priority DEFAULT", `"type": "EDS", "circuitBreakers": {"thresholds": [
			{"priority": "HIGH", "maxRequests": 1}, {"maxRequests": 0}, {"maxRequests": 2}]}, ` + ads, with(func(c *Cluster) { c.MaxRequests, c.DefaultLimit = 0, false })},
		{"T-CB-1: also if they do not say", `"type": "EDS", "circuitBreakers": {"thresholds": [{}, {"maxRequests": 2}]}, ` + ads, eds},
		{"a retry budget, with Envoy's defaults", `"type": "EDS", "circuitBreakers": {"thresholds": [{"priority": "HIGH"}, {"retryBudget": {}, "maxRetries": 9}]}, ` + ads,
			with(func(c *Cluster) { c.Retries = &picker.RetryLimit{Percent: 20, Min: 3} })},
		{"a retry budget", `"type": "EDS", "circuitBreakers": {"thresholds": [{"retryBudget": {"budgetPercent": {"value": 0.5}, "minRetryConcurrency": 0}}]}, ` + ads,
			with(func(c *Cluster) { c.Retries = &picker.RetryLimit{Percent: .5} })},
		{"max_retries", `"type": "EDS", "circuitBreakers": {"thresholds": [{"maxRetries": 9}, {"maxRetries": 8}]}, ` + ads,
			with(func(c *Cluster) { c.Retries = &picker.RetryLimit{Min: 9} })},
		{"max_retries that limit nothing", `"type": "EDS", "circuitBreakers": {"thresholds": [{"maxRetries": 4294967295}]}, ` + ads, eds},
		{"A37: a host to resolve", fmt.Sprintf(dns, "example.com"), Cluster{Name: "c", Kind: ClusterDNS, DNSHost: "example.com", DNSTargets: []string{"example.com:443"}, MaxRequests: 1024, DefaultLimit: true}},
		{"A37: an IPv6 address", fmt.Sprintf(dns, "::1"), Cluster{Name: "c", Kind: ClusterDNS, DNSHost: "::1", DNSTargets: []string{"[::1]:443"}, MaxRequests: 1024, DefaultLimit: true}},
		{"A37: an aggregate, whatever its type is called", `"clusterType": {"name": "x", "typedConfig": {
			"@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": ["b", "a", "b"]}}`,
			Cluster{Name: "c", Kind: ClusterAggregate, Children: []string{"b", "a", "b"}, MaxRequests: 1024, DefaultLimit: true,
				Stock: []string{"cluster_type.name: must be envoy.clusters.aggregate"}}},
		{"A52-SRC-1: lb_policy does not count beside load_balancing_policy", `"type": "EDS", "lbPolicy": "MAGLEV", ` + ads + `, "loadBalancingPolicy": {"policies": [
			{"typedExtensionConfig": {"name": "x", "typedConfig": {"@type": "type.googleapis.com/envoy.config.core.v3.Node"}}},
			{"typedExtensionConfig": {"name": "x", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"}}}]}`,
			with(func(c *Cluster) { c.Policy.Flat, c.Stock = true, []string{"lb_policy: MAGLEV is unsupported"} })},
	}
	for _, tt := range tests {
		if got := decodeAs[*Cluster](t, ClusterType, `{"name": "c", `+tt.json+`}`); !reflect.DeepEqual(*got, tt.want) {
			t.Errorf("%s: cluster is %+v, want %+v", tt.name, *got, tt.want)
		}
	}
}

// TestPolicyErrorLength checks that errors of policies quote a limited length (T-SEC-2),
// including errors of converters of the program.
func TestPolicyErrorLength(t *testing.T) {
	long := strings.Repeat("!", 1e5)
	for _, tt := range []struct{ policy, want string }{
		{`"typeUrl": "ring_hash_experimental", "value": {"requestHashHeader": "` + long + `"}`, "is not the name of a text header"},
		{`"typeUrl": "weighted_round_robin", "value": {"blackoutPeriod": "` + long + `"}`, "invalid google.protobuf.Duration value"},
	} {
		b := fromJSON(t, ClusterType, `{"name": "c", "type": "EDS", `+ads+`, "loadBalancingPolicy": {"policies": [{"typedExtensionConfig": {"typedConfig": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct", `+tt.policy+`}}}]}}`)
		_, err := Decode(ClusterType, b, Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 3000 {
			t.Errorf("error is %.1000v, want %s in at most 3000 bytes", err, tt.want)
		}
	}
}

// TestOutlierDetection: A50.
func TestOutlierDetection(t *testing.T) {
	defaults := picker.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 10,
		SuccessRate: &picker.SuccessRate{StdevFactor: 1900, Enforcement: 100, MinimumHosts: 5, RequestVolume: 100},
	}
	with := func(change func(o *picker.OutlierDetection)) *picker.OutlierDetection {
		o := defaults
		change(&o)
		return &o
	}
	tests := []struct {
		json string
		want *picker.OutlierDetection
	}{
		{`"altStatName": "x"`, nil},
		{`"outlierDetection": {}`, &defaults},
		{`"outlierDetection": {"enforcingConsecutive5xx": 300, "enforcingSuccessRate": 0}`, with(func(o *picker.OutlierDetection) { o.SuccessRate = nil })},
		{`"outlierDetection": {"consecutive5xx": 3, "consecutiveGatewayFailure": 4, "consecutiveLocalOriginFailure": 5}`, with(func(o *picker.OutlierDetection) {
			o.Consecutive5xx = &picker.Consecutive{Failures: 3, Enforcement: 100}
		})},
		{`"outlierDetection": {"consecutive5xx": 3, "enforcingConsecutive5xx": 0, "consecutiveGatewayFailure": 4, "enforcingConsecutiveGatewayFailure": 7, "consecutiveLocalOriginFailure": 5, "splitExternalLocalOriginErrors": true}`, with(func(o *picker.OutlierDetection) {
			o.ConsecutiveGateway = &picker.Consecutive{Failures: 4, Enforcement: 7}
			o.ConsecutiveLocalOrigin = &picker.Consecutive{Failures: 5, Enforcement: 100}
			o.SplitLocalOrigin = true
		})},
		{`"outlierDetection": {"baseEjectionTime": "400s"}`, with(func(o *picker.OutlierDetection) {
			o.BaseEjectionTime, o.MaxEjectionTime = 400*time.Second, 400*time.Second
		})},
		{`"outlierDetection": {"baseEjectionTime": "400s", "maxEjectionTime": "1s", "interval": "0s", "maxEjectionPercent": 0}`, with(func(o *picker.OutlierDetection) {
			o.BaseEjectionTime, o.MaxEjectionTime, o.Interval, o.MaxEjectionPercent = 400*time.Second, time.Second, 0, 0
		})},
		{`"outlierDetection": {"successRateStdevFactor": 1, "enforcingSuccessRate": 2, "successRateMinimumHosts": 3, "successRateRequestVolume": 4}`, with(func(o *picker.OutlierDetection) {
			o.SuccessRate = &picker.SuccessRate{StdevFactor: 1, Enforcement: 2, MinimumHosts: 3, RequestVolume: 4}
		})},
		{`"outlierDetection": {"enforcingFailurePercentage": 50}`, with(func(o *picker.OutlierDetection) {
			o.FailurePercentage = &picker.FailurePercentage{Threshold: 85, Enforcement: 50, MinimumHosts: 5, RequestVolume: 50}
		})},
		{`"outlierDetection": {"enforcingFailurePercentage": 100, "failurePercentageThreshold": 0, "failurePercentageMinimumHosts": 0, "failurePercentageRequestVolume": 1}`, with(func(o *picker.OutlierDetection) {
			o.FailurePercentage = &picker.FailurePercentage{Enforcement: 100, RequestVolume: 1}
		})},
		{`"outlierDetection": {"enforcingFailurePercentage": 0, "failurePercentageThreshold": 3}`, &defaults},
	}
	for _, tt := range tests {
		if got := decodeCluster(t, ads+`, `+tt.json).Outlier; !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.json, got, tt.want)
		}
	}
}

// TestClusterHealthChecks: the first grpc_health_check applies. Other checks, and settings that A17
// does not have, are reported as ignored.
func TestClusterHealthChecks(t *testing.T) {
	for _, tt := range []struct{ checks, want, ignored string }{
		{``, "none", ""},
		{`{"grpcHealthCheck": {}}`, `""`, ""},
		{`{"interval": "5s", "unhealthyThreshold": 2, "grpcHealthCheck": {"serviceName": "s"}}`, `"s"`, ""},
		{`{"httpHealthCheck": {"path": "/"}}`, "none", "Cluster.health_checks other than grpc_health_check"},
		{`{"grpcHealthCheck": {"serviceName": "s"}}, {"grpcHealthCheck": {}}`, `"s"`, "Cluster.health_checks after the first grpc_health_check"},
		{`{"grpcHealthCheck": {"authority": "a", "initialMetadata": [{"header": {"key": "k", "value": "v"}}]}}`, `""`, "GrpcHealthCheck.authority; GrpcHealthCheck.initial_metadata"},
	} {
		c := decodeAs[*Cluster](t, ClusterType, `{"name": "c", "type": "EDS", "edsClusterConfig": {"edsConfig": {"ads": {}}}, "healthChecks": [`+tt.checks+`]}`)
		got := "none"
		if c.HealthCheck != nil {
			got = strconv.Quote(c.HealthCheck.Service)
		}
		if got != tt.want || strings.Join(c.Ignored, "; ") != tt.ignored {
			t.Errorf("%s: %s, ignored %q; want %s and %q", tt.checks, got, c.Ignored, tt.want, tt.ignored)
		}
	}
}

// TestStrictDNSCluster: a STRICT_DNS cluster has endpoints with names to look up, by the rules of EDS except for
// localities, whose IDs and weights are optional.
func TestStrictDNSCluster(t *testing.T) {
	host := func(name, fields string) string {
		return `{"endpoint": {"address": {"socketAddress": {"address": "` + name + `", "portValue": 80` + fields + `}}}}`
	}
	decode := func(fields, endpoints string) (*Cluster, error) {
		c, err := Decode(ClusterType, fromJSON(t, ClusterType, `{"name": "c", "type": "STRICT_DNS", `+fields+`"loadAssignment": {"endpoints": [`+endpoints+`]}}`), Options{})
		cluster, _ := c.(*Cluster)
		return cluster, err
	}
	two := `{"lbEndpoints": [` + host("b.example", "") + `,` + host("::1", "") + `]}, {"priority": 1, "locality": {"zone": "z"}, "loadBalancingWeight": 7, "lbEndpoints": [` + host("a.example", "") + `]}`
	for fields, every := range map[string]time.Duration{``: 5 * time.Second, `"dnsRefreshRate": "0.001s", `: time.Second, `"dnsRefreshRate": "90s", `: 90 * time.Second} {
		c, err := decode(fields, two)
		kit.Must(t, err)
		if want := []string{"[::1]:80", "a.example:80", "b.example:80"}; !slices.Equal(c.DNSTargets, want) || c.DNSRefresh != every || c.Kind != ClusterDNS || !reflect.DeepEqual(c.Stock, []string{"type: STRICT_DNS is unsupported"}) {
			t.Errorf("%s: %+v, want targets %q", fields, c, want)
		}
		if p := c.Strict.Priorities; len(p) != 2 || p[0].Localities[0].Weight != 1 || p[1].Localities[0].Weight != 7 || p[1].Localities[0].ID.Zone != "z" {
			t.Errorf("priorities %+v", p)
		}
	}
	const in = "load_assignment.endpoints"
	for endpoints, want := range map[string]string{
		``: in + ": must have an endpoint that may receive RPCs",
		`{"lbEndpoints": [` + host("a.example", "") + `,` + host("a.example", "") + `]}`:                                      in + "[0].lb_endpoints[1].endpoint: must not have an address that occurred before",
		`{"lbEndpoints": [` + host("1.2.3", "") + `]}`:                                                                        in + "[0].lb_endpoints[0].endpoint.address.socket_address.address: must be an IPv4 or IPv6 address",
		`{"lbEndpoints": [` + host("a", `, "resolverName": "x"`) + `]}`:                                                       in + "[0].lb_endpoints[0].endpoint.address.socket_address.resolver_name: must be empty",
		`{"lbEndpoints": [` + strings.Replace(host("a", ``), `{"address`, `{"additionalAddresses": [{}], "address`, 1) + `]}`: in + "[0].lb_endpoints[0].endpoint.additional_addresses: must be empty",
		`{"priority": 1, "lbEndpoints": [` + host("a", ``) + `]}`:                                                             in + ": must have a locality of priority 0",
	} {
		if _, err := decode("", endpoints); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", endpoints, err, want)
		}
	}
}
