// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"time"

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
	LbEndpointType // the members of glob collections (LEDS)
	NumTypes
)

// Listener is a client's view of envoy.config.listener.v3.Listener.
type Listener struct {
	Name string
	// Socket marks a listener without api_listener: valid, but an error for
	// a client channel that asked for it (A27-LIS-1, A74).
	Socket bool
	// Exactly one of the two is set unless Socket is.
	RouteConfigName string
	RouteConfig     *RouteConfig

	MaxStreamDuration time.Duration // A31; 0 is no limit
	// Filters are the HTTP filters in order (A39), without the router and those
	// that have no effect. Their Config is a *Fault (A33), a *Session (A55), an
	// *AdmissionControl, *AdaptiveConcurrency, or what a FilterType made of it; routes override it with a FilterOverride.
	Filters []picker.Filter

	Ignored []string // as in picker.Config, but for that of RouteConfig
}

// RouteConfig is envoy.config.route.v3.RouteConfiguration.
type RouteConfig struct {
	Name         string // empty if inline and unnamed
	VirtualHosts []VirtualHost
}

// VirtualHost is envoy.config.route.v3.VirtualHost. Its retry policy is
// that of its routes that have none of their own, its filter overrides are their
// HostOverrides.
type VirtualHost struct {
	Name    string
	Domains []string // see RouteConfig.Match
	Routes  []picker.Route
	Ignored []string // by the host, its routes and the whole, as in picker.Config
}

// Cluster is envoy.config.cluster.v3.Cluster.
type Cluster struct {
	Name string
	Kind ClusterKind
	// EDSService is the EDS resource name of a ClusterEDS: service_name, or
	// else the cluster's name.
	EDSService string
	// ServiceName is service_name as it was sent: what load reports and
	// circuit breakers know the service by (T-LRS-4). It may be empty.
	ServiceName string
	// DNSTarget is the host:port that a ClusterDNS resolves; DNSHost the host.
	DNSTarget string
	DNSHost   string
	// Children are the clusters of a ClusterAggregate, in priority order.
	Children []string

	Policy      picker.Policy
	MaxRequests uint32 // A32; 1024 where it is not set, 0 lets nothing pass
	Retries     *picker.RetryLimit
	// LoadReporting says that lrs_server is self (A27-CL-5); Metrics what to
	// propagate (A85): names of ORCA metrics that there are, each once, in the
	// order they were sent.
	LoadReporting bool
	Metrics       []string
	Outlier       *picker.OutlierDetection // A50; nil is off
	Override      picker.OverrideHosts     // A55
	TLS           *picker.TLS              // A29; nil is none
	Ignored       []string                 // as in picker.Config
}

// ClusterKind enumerates how a cluster finds its endpoints.
type ClusterKind uint8

// The cluster kinds.
const (
	ClusterEDS ClusterKind = iota
	ClusterDNS
	ClusterAggregate
)

// Endpoints is envoy.config.endpoint.v3.ClusterLoadAssignment. A priority,
// locality or endpoint slice that an update did not touch is the same slice
// as before, so that whoever follows the updates can pass over it; see
// DecodeEndpoints.
type Endpoints struct {
	Name       string
	Priorities []picker.Priority
	Drops      []picker.Drop
	Unhealthy  []picker.Unhealthy // by address
	// Collections are where the endpoints of some localities are; see Merger.
	Collections []Collection

	// metadata is what the endpoints' metadata were decoded from, for the
	// next version to recognise.
	metadata map[string]*metadata
}
