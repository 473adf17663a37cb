// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"encoding/json"
	"math"
	"net/netip"
	"regexp"
	"time"
)

// Config is the configuration of one target from the control plane. It consists of plain,
// validated values that are never modified once they are in a Config, and is therefore safe to
// share. The zero value routes nothing.
type Config struct {
	// Routes are the routes of the target's virtual host, in match order. Two Configs with the
	// same slice have the same routes.
	Routes []Route
	// Clusters are all clusters named by routes, in any order, each once. A pointer that was in
	// an earlier Config refers to the same cluster with the same endpoints, so consumers of
	// updates can skip unchanged clusters.
	Clusters []*Cluster

	// Listener-wide settings that a route can override.
	MaxStreamDuration time.Duration // HCM common_http_protocol_options; 0 means no limit
	Filters           []Filter      // HTTP filters in order, excluding the router

	// Ignored names unsupported features of the listener and virtual host, for diagnostics.
	Ignored []string

	// Received is when the latest of the resources in the Config arrived: the time of its ADS
	// message or DNS response. It is not before the time of an earlier Config of the same
	// target unless resources were removed. A Config with the same time as the previous one
	// differs for a reason other than a new version of a resource. It is zero if the Config is
	// not from a control plane. Picks do not use it.
	Received time.Time
}

// Cluster is one destination of the routes: a leaf cluster, or an aggregate (A37, A75) whose
// leaves are tried in order like priorities.
type Cluster struct {
	Name string
	// Err is the reason why the cluster cannot be used at all: its resource is missing or
	// invalid and there is no earlier version. Leaves is then empty and every RPC routed to the
	// cluster fails UNAVAILABLE with Err as the reason.
	Err    error
	Leaves []Leaf
}

// Leaf is one CDS cluster with its endpoints.
type Leaf struct {
	Name    string // CDS name
	Service string // EDS service name; with Name, the key of breaker and load reports

	Policy      Policy
	MaxRequests uint32      // circuit breaker (A32); default 1024
	Retries     *RetryLimit // of the circuit breaker; nil means no limit. Not used by picks
	Drops       []Drop      // EDS drop_overloads, in list order
	Load        LoadReporting
	Outlier     *OutlierDetection // nil if off (A50)
	Override    OverrideHosts     // not used by picks
	TLS         *TLS              // nil means no TLS (A29)
	HealthCheck *HealthCheck      // nil means no check; not used by picks
	// DefaultLimit reports whether MaxRequests is the default. Picks do not use it.
	DefaultLimit bool
	// Origin is where the client's RPCs come from; nil unless Policy needs it.
	Origin *Origin

	Priorities []Priority // in priority order, without gaps; empty if EDS has no endpoints
	// Unhealthy are the endpoints that EDS marks as unhealthy. They are in no priority and are
	// used for diagnostics only.
	Unhealthy []Unhealthy
	// Ignored names unsupported features of the cluster, for diagnostics.
	Ignored []string
	// ResolutionNote explains an empty or stale leaf ("EDS resource x: not found"). It is
	// quoted in the errors of RPCs that fail for lack of an endpoint (A74).
	ResolutionNote error
}

// Unhealthy is an endpoint excluded from the configuration because of its health (A27-CLA-8).
type Unhealthy struct {
	Addr   netip.AddrPort
	Health string // EDS health status: "UNHEALTHY", "TIMEOUT", "DEGRADED" …
}

// A RetryLimit limits the concurrent retries of a cluster's RPCs, by the retry_budget of its
// circuit breaker, or by max_retries, which sets Min only.
type RetryLimit struct {
	Percent float64 // of the RPCs in flight that are not retries; 0 to 100
	Min     uint32  // always allowed
}

// OverrideHosts selects the endpoints to which session affinity may send RPCs (A55). The zero
// value is A55's default: endpoints with health Healthy.
type OverrideHosts struct {
	NotHealthy bool // excludes endpoints with health Healthy
	Draining   bool // includes endpoints with health Draining
}

// LoadReporting is a cluster's lrs_server setting.
type LoadReporting struct {
	// Server identifies the LRS server (bootstrap's Server.Key); empty means off.
	Server string
	// Metrics lists the ORCA metrics to propagate (A85).
	Metrics []string
}

// Priority is the set of localities of one priority.
type Priority struct {
	Localities []Locality
}

// Endpoint is one backend. It is 48 bytes; rarely used fields are in Extra.
type Endpoint struct {
	Addr   netip.AddrPort // first address, canonical (IPv4-mapped is unmapped, no zone), or that of a name: see NameAddr
	Weight uint32         // ≥ 1; default 1 (EDF-3)
	Health Health
	Extra  *EndpointExtra
}

// EndpointExtra holds fields that most endpoints lack.
type EndpointExtra struct {
	Addrs    []netip.AddrPort // additional_addresses (A61), without Endpoint.Addr
	Hostname string           // for authority rewriting (A81)
	HashKey  string           // envoy.lb/hash_key: ring position (A76)
	Metadata Metadata
}

// Metadata is a protobuf-free copy of envoy.config.core.v3.Metadata's
// filter_metadata: filter name to a JSON-like object.
type Metadata map[string]map[string]any

// Health is the EDS health of an endpoint. A Config does not contain endpoints of any other
// health (A27-CLA-8).
type Health uint8

// Health values of the endpoints of a Config.
const (
	Healthy  Health = iota // HEALTHY or UNKNOWN: receives RPCs
	Draining               // DRAINING: receives no new RPCs, except by session affinity (A55)
)

// Drop is one drop_overloads category.
type Drop struct {
	Category string
	// PerMillion is the probability, in millionths, that an RPC is dropped: 0 to 10⁶.
	PerMillion uint32
}

// Filter is one HTTP filter of the listener (A39).
type Filter struct {
	Name     string // instance name, the key in Route.Overrides
	Type     string // full name of the message that configures it
	Config   any    // output of the filter's converter
	Disabled bool   // unless enabled by a route
}

// Route is one entry of a virtual host (A28): conditions, and the action for RPCs that meet
// them. The first route that matches an RPC applies.
type Route struct {
	Name    string // for error messages; may be empty
	Path    StringMatch
	Headers []HeaderMatch
	// Fraction is runtime_fraction: the probability, in millionths, that the route
	// matches an RPC that meets its other conditions. nil means always.
	Fraction *uint32

	// Clusters are the destinations with their weights. A route to a single cluster has one
	// entry. A route without entries does not forward (non_forwarding_action, A36): RPCs that
	// it matches fail UNAVAILABLE.
	Clusters []WeightedCluster

	Hash            []HashPolicy
	AutoHostRewrite bool   // A81
	Authority       string // replaces that of RPCs (A111); empty means no replacement

	// Used by interceptors, not by picks.
	Timeout       *time.Duration // A31: nil inherits the listener's, 0 means no timeout
	Retry         *RetryPolicy   // A44, of the route, or of its virtual host if the route has none
	Hedge         bool           // Envoy's hedge_on_per_try_timeout; Retry has a PerTryTimeout
	Overrides     map[string]any // filter instance name to configuration (A39)
	HostOverrides map[string]any // from its virtual host, for filters without an entry in Overrides
	// RequestHeaders are header mutations of all levels except Clusters, in the order of their
	// evaluation.
	RequestHeaders []*HeaderMutations
}

// WeightedCluster is one destination of a route.
type WeightedCluster struct {
	Name           string
	Weight         uint32           // ≥ 1; the sum over a route fits uint32
	Overrides      map[string]any   // filter instance name to configuration (A39)
	RequestHeaders *HeaderMutations // evaluated before those of the route; nil if there are none
}

// StringMatch is a path or string matcher (A28, A63).
type StringMatch struct {
	Kind       MatchKind
	Value      string         // for every kind except MatchRegex
	Regex      *regexp.Regexp // for MatchRegex: anchored, so that it matches whole strings only (T-RC-1)
	IgnoreCase bool           // ASCII folding; not for MatchRegex
}

// MatchKind enumerates the string matchers.
type MatchKind uint8

// The string matchers. A path uses MatchPrefix, MatchExact or MatchRegex.
const (
	MatchPrefix MatchKind = iota
	MatchExact
	MatchSuffix
	MatchContains
	MatchRegex
)

// HeaderMatch is a condition on one request header (A28, T-RC-3). Values of a header that is
// sent more than once are joined with ",". An absent header matches only if Kind is
// HeaderPresent and Present equals Invert.
type HeaderMatch struct {
	Name    string // lower case, never ending in -bin
	Kind    headerMatchKind
	String  StringMatch // HeaderString
	Start   int64       // HeaderRange: Start ≤ value < End
	End     int64
	Present bool // HeaderPresent: must be present, or must be absent
	Invert  bool
}

// headerMatchKind enumerates the header matchers.
type headerMatchKind uint8

// The header matchers.
const (
	HeaderString headerMatchKind = iota
	HeaderRange
	HeaderPresent
)

// HashPolicy is one entry of a route's hash policies (A42, T-RING-6).
type HashPolicy struct {
	// Header is the header to hash, in lower case. Empty means the channel id
	// (filter_state io.grpc.channel_id).
	Header string
	// Rewrite, if not nil, is applied to the header's value before hashing. Substitution is in
	// Go's syntax (T-RC-2).
	Rewrite      *regexp.Regexp
	Substitution string
	// Terminal ends the list if an entry so far has produced a hash.
	Terminal bool
}

// RetryPolicy is the retry policy of A44, with defaults filled in.
type RetryPolicy struct {
	On          []uint32      // gRPC status codes that are retried
	OnTimeout   bool          // attempts that exceed PerTryTimeout are retried
	MaxAttempts int           // maximum number of attempts, including the first: 2 to 5
	BaseBackoff time.Duration // before the first retry, before jitter; at least 1 ms, default 25 ms
	MaxBackoff  time.Duration // maximum of the backoff, which doubles with each retry; default 10 · BaseBackoff
	// OtherHosts excludes endpoints of previous attempts, as long as other endpoints are READY
	// (Envoy's previous_hosts). Clusters whose policy compares latencies always exclude them.
	OtherHosts bool
	// PerTryTimeout limits the duration of an attempt, which is then canceled; 0 means no limit. If
	// the route is hedged, the attempt continues and another one is started.
	PerTryTimeout time.Duration
}

// Policy selects how an endpoint of a priority is chosen. The zero value is the default of CDS:
// a locality by weight, then EDF by endpoint weight (D2).
type Policy struct {
	Kind PolicyKind
	// Flat applies Kind to all endpoints of the priority at once. Otherwise a locality is first
	// drawn by weight (xds_wrr_locality).
	Flat bool
	// Only the field for Kind is set, if Kind has parameters.
	Ring    *RingPolicy
	Least   *LeastRequest
	WRR     *ClientWRR
	First   *PickFirst
	Latency *LeastLatency
	Custom  *CustomPolicy
	Prequal *Prequal
	// Subset is the number of endpoints to which random subsetting (A68) reduces the priority
	// before Kind applies; 0 means all. See Priority.Subset.
	Subset uint32
	// SlowStart is Envoy's slow start; nil means off.
	SlowStart *SlowStart
	// ZoneAware is Envoy's zone-aware routing; nil means off.
	ZoneAware *ZoneAware
}

// CountsRPCs reports whether the leaf's RPCs in flight must be counted by a Breaker: if it has a limit, if
// a retry budget depends on their number, or if the policy bounds loads. The largest value of max_requests,
// which Istio sends, is no limit.
func (l *Leaf) CountsRPCs() bool {
	return l.MaxRequests < math.MaxUint32 || l.Retries != nil || boundsLoads(&l.Policy)
}

// RingPolicy has the parameters of ring_hash (A42) and maglev.
type RingPolicy struct {
	MinSize, MaxSize uint64 // ring entries; for maglev, MinSize is the number of table slots, a prime
	XXH64            bool   // Envoy's hash and placement (D3); otherwise XXH3
	// RequestHeader names the header that is hashed instead of the route's hash policies (A76);
	// empty means that the hash policies apply.
	RequestHeader string
	// BalanceFactor limits the load of a host, in percent of its share of all RPCs in flight:
	// 100 or more, 0 means off (Envoy's hash_balance_factor).
	BalanceFactor uint32
}

// LeastRequest has the parameters of least_request (A48).
type LeastRequest struct {
	Choices uint32 // endpoints sampled for each RPC: 2 to 10; 0 compares all (Envoy's FULL_SCAN)
	// IgnoreWeights samples all endpoints with equal probability, as in A48.
	IgnoreWeights bool
}

// LeastLatency has the parameters of least latency.
type LeastLatency struct {
	// Decay is the time constant of the latency estimate: past samples lose weight by a factor
	// of e in this time. It is above 0.
	Decay time.Duration
	// IgnoreWeights samples all endpoints with equal probability.
	IgnoreWeights bool
}

// ClientWRR has the parameters of client_side_weighted_round_robin (A58, A114).
type ClientWRR struct {
	OutOfBand    bool          // reports arrive on a separate stream instead of with RPCs (A51)
	OOBPeriod    time.Duration // interval of reports on that stream; 0 unless OutOfBand
	Blackout     time.Duration // from the first report until the weight is used; 0 means immediately
	Expiration   time.Duration // from the last report until the weight is no longer used
	UpdatePeriod time.Duration // interval of updates of the weights; at least 100 ms
	// ErrorPenalty is the factor p, 0 or more, in weight = qps / (utilization + p·eps/qps),
	// where qps is RPCs and eps errors per second. If no errors are reported, the client counts
	// them.
	ErrorPenalty float64
	// UtilizationFrom names metrics of a report (A114). The utilization is the report's
	// application_utilization, otherwise the largest of these metrics, otherwise
	// cpu_utilization.
	UtilizationFrom []string
}

// PickFirst has the parameters of pick_first (A62).
type PickFirst struct {
	Shuffle bool // shuffle the endpoints before connecting
}

// CustomPolicy names a balancer from grpc-go's registry and its configuration.
type CustomPolicy struct {
	Name   string
	Config json.RawMessage
}

// SlowStart is Envoy's slow start. The weight of an endpoint that has been READY for a time t
// below Window is multiplied by (t/Window)^(1/Aggression), or by MinWeightPercent if that is
// larger. With policies that hash, an endpoint that is Cold gets that fraction of the hashes that belong to it,
// and the rest stays with the endpoint that they would belong to without it (EndpointState.Cold).
type SlowStart struct {
	Window           time.Duration // above 0
	Aggression       float64       // dimensionless, above 0; 1 is linear growth, larger values grow faster at first
	MinWeightPercent float64       // percent of the weight: 0 to 100
}

// OutlierDetection is the configuration of A50, with defaults filled in.
type OutlierDetection struct {
	Interval           time.Duration      // between two evaluations of all endpoints
	BaseEjectionTime   time.Duration      // of a first ejection; each further one lasts this much longer
	MaxEjectionTime    time.Duration      // longest ejection, unless BaseEjectionTime is longer
	MaxEjectionPercent uint32             // percent of the endpoints that may be ejected at a time
	SuccessRate        *SuccessRate       // nil is off
	FailurePercentage  *FailurePercentage // nil is off

	// The detectors of consecutive failures are Envoy's. Nil is off.
	Consecutive5xx         *Consecutive // failures that Envoy maps to an HTTP status of 500 or above
	ConsecutiveGateway     *Consecutive // failures that Envoy maps to 502, 503 or 504
	ConsecutiveLocalOrigin *Consecutive // failures without a response, if SplitLocalOrigin is set
	// SplitLocalOrigin keeps failures without a response out of the other two detectors.
	SplitLocalOrigin bool
}

// Detects reports whether the configuration has a detector that is on.
func (o *OutlierDetection) Detects() bool {
	return o != nil && (o.SuccessRate != nil || o.FailurePercentage != nil || o.DetectsConsecutive())
}

// DetectsConsecutive reports whether a detector of consecutive failures is on.
func (o *OutlierDetection) DetectsConsecutive() bool {
	return o.Consecutive5xx != nil || o.ConsecutiveGateway != nil || o.ConsecutiveLocalOrigin != nil
}

// Consecutive ejects endpoints at the moment of the last of some consecutive failures.
type Consecutive struct {
	Failures    uint32 // above 0
	Enforcement uint32 // probability, in percent, that the endpoint is ejected
}

// SuccessRate ejects endpoints whose success rate is far below the mean (A50).
type SuccessRate struct {
	StdevFactor   uint32 // thousandths of a standard deviation below the mean: 1900 means 1.9
	Enforcement   uint32 // probability, in percent, that an outlier is ejected
	MinimumHosts  uint32 // minimum number of endpoints with RequestVolume for an evaluation
	RequestVolume uint32 // minimum number of RPCs in an Interval for an endpoint to be evaluated
}

// FailurePercentage ejects endpoints with too high a percentage of failures (A50).
type FailurePercentage struct {
	Threshold     uint32 // percentage of failed RPCs above which an endpoint is an outlier
	Enforcement   uint32 // probability, in percent, that an outlier is ejected
	MinimumHosts  uint32 // minimum number of endpoints with RequestVolume for an evaluation
	RequestVolume uint32 // minimum number of RPCs in an Interval for an endpoint to be evaluated
}
