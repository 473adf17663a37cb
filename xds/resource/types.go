// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/xdslb/xdslb/picker"
)

// Type is one of the resource types of gRPC's xDS.
type Type uint8

// The resource types, in the order in which they refer to each other.
const (
	ListenerType Type = iota
	RouteConfigType
	ClusterType
	EndpointsType
	NumTypes
)

// Listener is a client's view of envoy.config.listener.v3.Listener.
type Listener struct {
	Name string
	// Socket marks a listener without api_listener: valid, but an error for a client channel
	// that requested it (A27-LIS-1, A74).
	Socket bool
	// Exactly one of the two is set unless Socket is.
	RouteConfigName string
	RouteConfig     *RouteConfig

	MaxStreamDuration time.Duration // A31; 0 means no limit
	// Filters are the HTTP filters in order (A39), without the router and filters without
	// effect. Their Config is a *Fault (A33), a *Session (A55), or the result of a
	// FilterType; routes override it with a FilterOverride.
	Filters []picker.Filter

	Ignored []string // as in picker.Config, excluding RouteConfig
	Stock   []string // see RejectedByStock; including RouteConfig
}

// RouteConfig is envoy.config.route.v3.RouteConfiguration.
type RouteConfig struct {
	Name         string // empty if inline and unnamed
	VirtualHosts []VirtualHost
	Stock        []string // see RejectedByStock; empty if inline
}

// VirtualHost is envoy.config.route.v3.VirtualHost. Its retry policy applies to its routes
// without one of their own; its filter overrides are their HostOverrides.
type VirtualHost struct {
	Name    string
	Domains []string // see RouteConfig.Match
	Routes  []picker.Route
	Ignored []string // of the host, its routes and the RouteConfiguration, as in picker.Config
}

// Cluster is envoy.config.cluster.v3.Cluster.
type Cluster struct {
	Name string
	Kind clusterKind
	// EDSService is the EDS resource name of a ClusterEDS: service_name, or the
	// cluster's name if service_name is empty.
	EDSService string
	// ServiceName is service_name as received: the name of the service in load reports and
	// circuit breakers (T-LRS-4). It may be empty.
	ServiceName string
	// DNSTargets are the host:ports that a ClusterDNS resolves, sorted, at least one. One of type LOGICAL_DNS
	// has only one, with the host DNSHost. One of type STRICT_DNS looks them up every DNSRefresh, and has the
	// endpoints Strict, with names as addresses.
	DNSTargets []string
	DNSHost    string
	DNSRefresh time.Duration
	Strict     *Endpoints // otherwise nil
	// Children are the clusters of a ClusterAggregate, in priority order.
	Children []string

	Policy      picker.Policy
	MaxRequests uint32 // A32; default 1024, 0 allows no RPCs
	Retries     *picker.RetryLimit
	// LoadReporting means that lrs_server is self (A27-CL-5). Metrics are the ORCA metrics to
	// propagate (A85): known names, each once, in the order received.
	LoadReporting bool
	Metrics       []string
	DefaultLimit  bool                     // MaxRequests is the default
	Outlier       *picker.OutlierDetection // A50; nil means off
	Override      picker.OverrideHosts     // A55
	TLS           *picker.TLS              // A29; nil means no TLS
	HealthCheck   *picker.HealthCheck      // A17; nil means none
	Ignored       []string                 // as in picker.Config
	Stock         []string                 // see RejectedByStock
}

// clusterKind is the way in which a cluster discovers its endpoints.
type clusterKind uint8

// The cluster kinds.
const (
	ClusterEDS clusterKind = iota
	ClusterDNS
	ClusterAggregate
)

// Endpoints is envoy.config.endpoint.v3.ClusterLoadAssignment. A priority, locality or endpoint
// slice that an update did not change is the same slice as before, so that consumers of updates
// can skip it; see Options.Previous.
type Endpoints struct {
	Name       string
	Priorities []picker.Priority
	Drops      []picker.Drop
	Unhealthy  []picker.Unhealthy // by address

	// The next version shares endpoints and metadata with this one, where their encodings are the
	// same.
	metadata map[string]*metadata        // by encoding: all of this version, and no others
	wire     map[localityKey][]wireChunk // of the endpoints
	names    bool                        // Options.AcceptHostnames
}

// policy returns the load balancing policy of a cluster. If load_balancing_policy is set,
// lb_policy is ignored (A52-SRC-1).
func (d *decoder) policy(m *clusterv3.Cluster, p *path) picker.Policy {
	result, err := d.opt.Policies.OfCluster(m)
	if err != nil {
		p.fail(clip(err.Error(), maxPolicyRule))
	}
	return result
}
