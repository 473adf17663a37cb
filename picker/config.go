// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"net/netip"
	"time"
)

// Config is everything one target's picks depend on, as the control plane sent
// it: plain values, already validated, shared freely and never written after
// they were handed over. The zero value routes nothing.
type Config struct {
	// Routes are those of the target's virtual host, in match order. A Config
	// with the same slice as another has the same routes.
	Routes []Route
	// Clusters are all that a route names, in any order, each once. A cluster
	// with the same address as one of an earlier Config is the same cluster,
	// down to its endpoints, so that whoever follows the updates can pass over
	// what did not change.
	Clusters []*Cluster

	// Listener-wide settings that a route can override.
	MaxStreamDuration time.Duration // HCM common_http_protocol_options; 0 is none
	Filters           []Filter      // HTTP filters in order, without the router
}

// Cluster is one destination of the routes: a leaf cluster, or an aggregate
// (A37, A75) whose leaves are tried in order like priorities.
type Cluster struct {
	Name string
	// Err says why the cluster cannot be used at all (its resource is missing
	// or invalid and there is no earlier version). Leaves is then empty and
	// every RPC routed here fails UNAVAILABLE with Err as the reason.
	Err    error
	Leaves []Leaf
}

// Leaf is one CDS cluster with its endpoints.
type Leaf struct {
	Name    string // CDS name
	Service string // EDS service name; with Name it keys breaker and load reports

	Policy      Policy
	MaxRequests uint32 // circuit breaker (A32); 1024 where CDS names none
	Drops       []Drop // EDS drop_overloads, in list order
	Load        LoadReporting
	Outlier     *OutlierDetection // nil: off (A50)
	Override    OverrideHosts     // picks ignore it

	Priorities []Priority // by priority, no gaps; empty when EDS has no endpoints
	// Note explains an empty or stale leaf ("EDS resource x: not found"); it
	// is quoted in the errors of RPCs that fail for lack of an endpoint (A74).
	Note error
}

// OverrideHosts says which endpoints session affinity may send RPCs to (A55). The
// zero value is A55's default: those of health Healthy.
type OverrideHosts struct {
	NotHealthy bool // none of health Healthy
	Draining   bool // those of health Draining
}

// LoadReporting is a cluster's lrs_server setting.
type LoadReporting struct {
	// Server identifies the LRS server (bootstrap's Server.Key); empty is off.
	Server string
	// Metrics lists the ORCA metrics to propagate (A85).
	Metrics []string
}

// Priority is the set of localities of one priority.
type Priority struct {
	Localities []Locality
}

// LocalityID names a locality. It is comparable and can key a map.
type LocalityID struct {
	Region, Zone, SubZone string
}

// Locality is a group of endpoints that shares one weight.
type Locality struct {
	ID        LocalityID
	Weight    uint32 // ≥ 1; the sum over a priority fits uint32 (A27-CLA-3)
	Endpoints []Endpoint
	Metadata  Metadata // nil for most
}

// Endpoint is one backend. It is 48 bytes; what few endpoints have is behind
// Extra.
type Endpoint struct {
	Addr   netip.AddrPort // first address, canonical (IPv4-mapped is unmapped, no zone)
	Weight uint32         // ≥ 1; 1 where EDS names none (EDF-3)
	Health Health
	Extra  *EndpointExtra
}

// EndpointExtra holds what most endpoints do not have.
type EndpointExtra struct {
	Addrs    []netip.AddrPort // additional_addresses (A61), without Endpoint.Addr
	Hostname string           // for authority rewriting (A81)
	HashKey  string           // envoy.lb/hash_key: ring position (A76)
	Metadata Metadata
}

// Metadata is a protobuf-free copy of envoy.config.core.v3.Metadata's
// filter_metadata: filter name to a JSON-like object.
type Metadata map[string]map[string]any

// Health is an endpoint's EDS health, as far as it is not a reason to leave it
// out of the configuration (A27-CLA-8).
type Health uint8

// Endpoints that are neither of these are not part of a Config.
const (
	Healthy  Health = iota // HEALTHY or UNKNOWN: is picked
	Draining               // DRAINING: gets no new RPC, except by session affinity (A55)
)

// Drop is one drop_overloads category.
type Drop struct {
	Category string
	// PerMillion is the chance in 10⁶ that an RPC is dropped, at most 10⁶.
	PerMillion uint32
}

// Filter is one HTTP filter of the listener (A39).
type Filter struct {
	Name     string // instance name; keys Route.Overrides
	Type     string // full name of the message that configures it
	Config   any    // as decoded by the filter's converter
	Disabled bool   // until a route says otherwise
}
