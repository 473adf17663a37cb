// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	typedstructv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// EDSCluster gets its endpoints by EDS.
func EDSCluster() *clusterv3.Cluster { return eds("orders") }

// LogicalDNS resolves a hostname and connects to one of its addresses.
func LogicalDNS() *clusterv3.Cluster { return byDNS(clusterv3.Cluster_LOGICAL_DNS) }

// StrictDNS resolves a hostname, of which each address is an endpoint.
func StrictDNS() *clusterv3.Cluster { return byDNS(clusterv3.Cluster_STRICT_DNS) }

func byDNS(kind clusterv3.Cluster_DiscoveryType) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 "orders",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: kind},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: "orders",
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{endpoint("localhost", 80)},
			}},
		},
	}
}

// Aggregate uses the second cluster when no endpoint of the first one is reachable.
func Aggregate() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: "orders",
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name:        "envoy.clusters.aggregate",
			TypedConfig: anyOf(&aggregatev3.ClusterConfig{Clusters: []string{"orders-canary", "orders-backup"}}),
		}},
	}
}

// withLimits returns cluster "orders" with circuit breakers.
func withLimits(limits *clusterv3.CircuitBreakers_Thresholds) *clusterv3.Cluster {
	c := eds("orders")
	c.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{limits}}
	return c
}

// MaxRequests limits the RPCs in flight. Further RPCs fail at once.
func MaxRequests() *clusterv3.Cluster {
	return withLimits(&clusterv3.CircuitBreakers_Thresholds{MaxRequests: number(100)})
}

// RetryBudget limits retries to 20 % of the RPCs in flight, and always allows three.
func RetryBudget() *clusterv3.Cluster {
	return withLimits(&clusterv3.CircuitBreakers_Thresholds{RetryBudget: &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
		BudgetPercent: &typev3.Percent{Value: 20}, MinRetryConcurrency: number(3),
	}})
}

// MaxRetries limits the retries in flight.
func MaxRetries() *clusterv3.Cluster {
	return withLimits(&clusterv3.CircuitBreakers_Thresholds{MaxRetries: number(3)})
}

// SuccessRate ejects endpoints whose success rate is far below the average. Five endpoints must have
// 20 RPCs each within the interval.
func SuccessRate() *clusterv3.Cluster {
	c := eds("orders")
	c.OutlierDetection = &clusterv3.OutlierDetection{
		Interval: seconds(10), BaseEjectionTime: seconds(30), MaxEjectionPercent: number(20),
		SuccessRateMinimumHosts: number(5), SuccessRateRequestVolume: number(20), SuccessRateStdevFactor: number(1900),
		EnforcingSuccessRate: number(100),
	}
	return c
}

// FailurePercentage ejects endpoints that fail half of their RPCs.
func FailurePercentage() *clusterv3.Cluster {
	c := eds("orders")
	c.OutlierDetection = &clusterv3.OutlierDetection{
		Interval: seconds(10), BaseEjectionTime: seconds(30), MaxEjectionPercent: number(50),
		FailurePercentageThreshold: number(50), FailurePercentageMinimumHosts: number(2), FailurePercentageRequestVolume: number(20),
		EnforcingFailurePercentage: number(100), EnforcingSuccessRate: number(0),
	}
	return c
}

// ConsecutiveErrors ejects an endpoint as soon as five RPCs in a row fail as if with an HTTP status of
// 500 or above. The success rate is not evaluated.
func ConsecutiveErrors() *clusterv3.Cluster {
	c := eds("orders")
	c.OutlierDetection = &clusterv3.OutlierDetection{
		Interval: seconds(10), BaseEjectionTime: seconds(30), MaxEjectionPercent: number(50),
		Consecutive_5Xx: number(5), EnforcingSuccessRate: number(0),
	}
	return c
}

// HealthCheck sends RPCs to endpoints whose health service reports SERVING for service
// "shop.Orders".
func HealthCheck() *clusterv3.Cluster {
	c := eds("orders")
	c.HealthChecks = []*corev3.HealthCheck{{HealthChecker: &corev3.HealthCheck_GrpcHealthCheck_{
		GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{ServiceName: "shop.Orders"},
	}}}
	return c
}

// TLS verifies servers with the roots of the bootstrap's certificate provider instance "default", and
// accepts only certificates with one particular SPIFFE ID. The client presents no certificate.
func TLS() *clusterv3.Cluster {
	c := eds("orders")
	c.TransportSocket = &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: anyOf(&tlsv3.UpstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{
				ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
					CaCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: "default"},
					// gRPC does not read the newer field match_typed_subject_alt_names alone.
					MatchSubjectAltNames: []*matcherv3.StringMatcher{{
						MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "spiffe://shop.example/ns/shop/sa/orders"},
					}},
				}},
			},
		})},
	}
	return c
}

// LoadReports sends load reports (LRS) to the server that sent the cluster.
func LoadReports() *clusterv3.Cluster {
	c := eds("orders")
	c.LrsServer = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}}}
	return c
}

// OlderFields selects a policy by lb_policy and its message.
func OlderFields() *clusterv3.Cluster {
	c := eds("orders")
	c.LbPolicy = clusterv3.Cluster_RING_HASH
	c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{
		MinimumRingSize: wrapperspb.UInt64(1024), MaximumRingSize: wrapperspb.UInt64(4096),
	}}
	return c
}

// Preferences lists policies in order of preference, for clients that support different ones.
func Preferences() *clusterv3.Cluster {
	c := eds("orders")
	c.LoadBalancingPolicy = policies(
		extension("custom", typed("shop_custom", nil)),
		extension("least_request", &leastrequestv3.LeastRequest{}),
		extension("round_robin", &roundrobinv3.RoundRobin{}),
	)
	return c
}

// typed returns a policy by its name in gRPC's registry.
func typed(name string, config map[string]any) *typedstructv3.TypedStruct {
	value, err := structpb.NewStruct(config)
	if err != nil {
		panic(err) // a value in config is not JSON
	}
	return &typedstructv3.TypedStruct{TypeUrl: "type.googleapis.com/" + name, Value: value}
}
