// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/xdslb/xdslb/picker/persistent"
)

// Config is the configuration of one target, as the control plane sent it: plain values
// that are validated already, and never written once they are in a Config, so that anybody
// may share them. The zero value routes nothing.
type Config struct {
	// Routes are those of the target's virtual host, in match order. A Config
	// with the same slice as another has the same routes.
	Routes []Route
	// Clusters are all clusters that a route names, in any order, each once. A pointer
	// that was in an earlier Config points to the same cluster, with the same endpoints.
	// So whoever follows updates can skip what did not change.
	Clusters []*Cluster

	// Listener-wide settings that a route can override.
	MaxStreamDuration time.Duration // HCM common_http_protocol_options; 0 is none
	Filters           []Filter      // HTTP filters in order, without the router

	// Ignored names what listener and virtual host ask for and nobody does, for people.
	Ignored []string

	// Received is when the latest of the resources arrived that the Config is made of:
	// their ADS message, or the answer of DNS. It is not before that of an earlier
	// Config of the same target unless resources went away; a Config with the same time as
	// the one before differs for another reason than a resource's new version. Zero if
	// no control plane is behind the Config. It makes no difference to picks.
	Received time.Time
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
	MaxRequests uint32      // circuit breaker (A32); 1024 where CDS names none
	Retries     *RetryLimit // of the circuit breaker; nil is none. Picks ignore it
	Drops       []Drop      // EDS drop_overloads, in list order
	Load        LoadReporting
	Outlier     *OutlierDetection // nil: off (A50)
	Override    OverrideHosts     // picks ignore it
	TLS         *TLS              // nil: none (A29)
	// Origin is where the client's RPCs come from; nil unless Policy asks for it.
	Origin *Origin

	Priorities []Priority // by priority, no gaps; empty when EDS has no endpoints
	// Unhealthy are endpoints that EDS marks as such, which are in no priority. Picks ignore
	// them; they are for explanations.
	Unhealthy []Unhealthy
	// Ignored names what the cluster asks for and nobody does, for people.
	Ignored []string
	// ResolutionNote explains an empty or stale leaf ("EDS resource x: not found"); it
	// is quoted in the errors of RPCs that fail for lack of an endpoint (A74).
	ResolutionNote error
}

// Unhealthy is an endpoint that its health keeps out of a configuration (A27-CLA-8).
type Unhealthy struct {
	Addr   netip.AddrPort
	Health string // by EDS: "UNHEALTHY", "TIMEOUT", "DEGRADED" …
}

// A RetryLimit bounds how many retries of a cluster's RPCs may be under way, by the
// retry_budget of its circuit breaker, or by max_retries, which is Min alone.
type RetryLimit struct {
	Percent float64 // of the RPCs in flight that are no retries; 0 to 100
	Min     uint32  // whatever is in flight
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
	Endpoints EndpointList
	Metadata  Metadata // nil for most
}

// An EndpointList is the endpoints of a locality. It is immutable, and a version of it in
// which one endpoint is another costs a copy of at most 85 of them.
type EndpointList = persistent.List[Endpoint]

// ListOf returns the list of some endpoints.
func ListOf(endpoints ...Endpoint) EndpointList { return persistent.Of(endpoints...) }

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

// Health is the EDS health of an endpoint. Endpoints of any other health are not part of
// a Config (A27-CLA-8).
type Health uint8

// The healths of the endpoints of a Config.
const (
	Healthy  Health = iota // HEALTHY or UNKNOWN: is picked
	Draining               // DRAINING: gets no new RPC, except by session affinity (A55)
)

// Drop is one drop_overloads category.
type Drop struct {
	Category string
	// PerMillion is the probability, in millionths, that an RPC is dropped: 0 to 10⁶.
	PerMillion uint32
}

// Filter is one HTTP filter of the listener (A39).
type Filter struct {
	Name     string // instance name; keys Route.Overrides
	Type     string // full name of the message that configures it
	Config   any    // as decoded by the filter's converter
	Disabled bool   // until a route says otherwise
}

// Route is one entry of a virtual host (A28): conditions, and what to do with the RPCs that
// meet them. The first route that matches an RPC counts.
type Route struct {
	Name    string // for error messages; may be empty
	Path    StringMatch
	Headers []HeaderMatch
	// Fraction is runtime_fraction: the probability, in millionths, that the route
	// matches an RPC that meets its other conditions. nil means always.
	Fraction *uint32

	// Clusters are the destinations with their weights. A route to a single cluster has
	// one entry. A route without any does not forward (non_forwarding_action, A36): RPCs
	// that it matches fail UNAVAILABLE.
	Clusters []WeightedCluster

	Hash            []HashPolicy
	AutoHostRewrite bool // A81

	// Interceptors apply these. Picks ignore them.
	Timeout       *time.Duration // A31: nil inherits the listener's, 0 is none
	Retry         *RetryPolicy   // A44, of the route or else of its virtual host
	Hedge         bool           // Envoy's hedge_on_per_try_timeout; Retry has a PerTryTimeout
	Overrides     map[string]any // filter instance name to configuration (A39)
	HostOverrides map[string]any // those of its virtual host, for filters without an entry in Overrides
}

// WeightedCluster is one destination of a route.
type WeightedCluster struct {
	Name      string
	Weight    uint32         // ≥ 1; the sum over a route fits uint32
	Overrides map[string]any // filter instance name to configuration (A39)
}

// StringMatch is a path or string matcher (A28, A63).
type StringMatch struct {
	Kind       MatchKind
	Value      string         // for every kind but MatchRegex
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

// HeaderMatch is a condition on one request header (A28, T-RC-3). Values of a header that
// is sent more than once are joined with ",". A header that is absent matches only if Kind
// is HeaderPresent and Present equals Invert.
type HeaderMatch struct {
	Name    string // lower case, never ending in -bin
	Kind    HeaderMatchKind
	String  StringMatch // HeaderString
	Start   int64       // HeaderRange: Start ≤ value < End
	End     int64
	Present bool // HeaderPresent: must be present, or must be absent
	Invert  bool
}

// HeaderMatchKind enumerates the header matchers.
type HeaderMatchKind uint8

// The header matchers.
const (
	HeaderString HeaderMatchKind = iota
	HeaderRange
	HeaderPresent
)

// HashPolicy is one entry of a route's hash policies (A42, T-RING-6).
type HashPolicy struct {
	// Header is the header to hash, in lower case. Empty means the channel id
	// (filter_state io.grpc.channel_id).
	Header string
	// Rewrite, if not nil, is applied to the header's value first. Substitution is in
	// Go's syntax (T-RC-2).
	Rewrite      *regexp.Regexp
	Substitution string
	// Terminal ends the list if any entry so far yielded a hash.
	Terminal bool
}

// RetryPolicy is the retry policy of A44, with defaults filled in.
type RetryPolicy struct {
	On          []uint32      // gRPC status codes that are retried
	MaxAttempts int           // attempts in all, the first included: 2 to 5
	BaseBackoff time.Duration // before the first retry, to be randomised; at least 1 ms, 25 ms by default
	MaxBackoff  time.Duration // the back-off doubles with each retry up to this; 10 · BaseBackoff by default
	// OtherHosts keeps an attempt from the endpoints that earlier ones were given, as
	// long as others are READY (Envoy's previous_hosts).
	OtherHosts bool
	// PerTryTimeout is how long an attempt at a hedged RPC may take before another one is made;
	// 0 is none. RPCs that are not hedged ignore it (A44).
	PerTryTimeout time.Duration
}

// Policy says how an endpoint of a priority is chosen. The zero value is the default of
// CDS: a locality by weight, then EDF by endpoint weight (D2).
type Policy struct {
	Kind PolicyKind
	// Flat applies Kind to all endpoints of the priority at once. Otherwise a locality is
	// drawn by its weight first (xds_wrr_locality).
	Flat bool
	// The one that belongs to Kind is set, if Kind has parameters.
	Ring    *RingPolicy
	Least   *LeastRequest
	WRR     *ClientWRR
	First   *PickFirst
	Latency *LeastLatency
	Custom  *CustomPolicy
	Prequal *Prequal
	// Subset is the number of endpoints that random subsetting (A68) keeps before Kind
	// applies; 0 is all. See Priority.Subset.
	Subset uint32
	// SlowStart is Envoy's slow start; nil is off.
	SlowStart *SlowStart
	// ZoneAware is Envoy's zone-aware routing; nil is off.
	ZoneAware *ZoneAware
	// LoadAware is Envoy's load_aware_locality; nil is off. Flat is unset with it.
	LoadAware *LoadAware
}

// PolicyKind enumerates the policies that pick endpoints.
type PolicyKind uint8

// The policies.
const (
	PolicyEDF          PolicyKind = iota // EDF by EDS endpoint weight (D2)
	PolicyRoundRobin                     // weights ignored
	PolicyRingHash                       // A42
	PolicyMaglev                         // Envoy's maglev
	PolicyLeastRequest                   // A48
	PolicyClientWRR                      // A58
	PolicyPickFirst                      // A62
	PolicyCustom                         // a balancer of grpc-go's registry (A52, D10)
	PolicyLeastLatency                   // the least latency of two, by Little's law
	PolicyPrequal                        // endpoints are asked for their load
)

// Hashes reports whether the policy picks by the hash of the RPC. Endpoints are then
// connected when an RPC asks for them (A61).
func (p *Policy) Hashes() bool { return p.Kind == PolicyRingHash || p.Kind == PolicyMaglev }

// CountsInFlight reports whether picks compare the RPCs in flight of endpoints. The
// endpoints then have to count them: EndpointState.CountInFlight.
func (p *Policy) CountsInFlight() bool {
	switch p.Kind {
	case PolicyLeastRequest:
		return true
	case PolicyRingHash, PolicyMaglev:
		return p.Ring != nil && p.Ring.BalanceFactor > 0
	}
	return false
}

// TimesRPCs reports whether picks compare the latencies of endpoints. The endpoints then
// have to time their RPCs, and count those in flight by it: NewTimedBinding.
func (p *Policy) TimesRPCs() bool {
	return p.Kind == PolicyLeastLatency || p.Kind == PolicyPrequal
}

// equalWeights reports whether the configured weights do not count.
func (p *Policy) equalWeights() bool {
	return p.Kind == PolicyRoundRobin || p.Kind == PolicyLeastRequest && p.Least.IgnoreWeights ||
		p.Kind == PolicyLeastLatency && p.Latency.IgnoreWeights
}

// check returns why the policy cannot be compiled, or nil.
func (p *Policy) check() error {
	missing := false
	switch p.Kind {
	case PolicyEDF, PolicyRoundRobin, PolicyClientWRR, PolicyPickFirst, PolicyCustom:
	case PolicyRingHash, PolicyMaglev:
		missing = p.Ring == nil
		if !missing && strings.HasSuffix(p.Ring.RequestHeader, "-bin") { // A76
			return fmt.Errorf("request header %q is binary", p.Ring.RequestHeader)
		}
	case PolicyLeastRequest:
		missing = p.Least == nil
	case PolicyLeastLatency:
		if missing = p.Latency == nil; !missing && p.Latency.Decay <= 0 {
			return fmt.Errorf("decay of %v is not above 0", p.Latency.Decay)
		}
	case PolicyPrequal:
		if missing = p.Prequal == nil; !missing {
			if err := p.Prequal.check(); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("policy kind %d is not supported", p.Kind)
	}
	if missing {
		return fmt.Errorf("policy kind %d has no parameters", p.Kind)
	}
	if p.SlowStart != nil {
		if err := p.SlowStart.check(); err != nil {
			return err
		}
	}
	if p.LoadAware != nil {
		return p.LoadAware.check(p)
	}
	if p.ZoneAware != nil {
		return p.ZoneAware.check(p.Kind)
	}
	return nil
}

// RingPolicy has the parameters of ring_hash (A42) and maglev.
type RingPolicy struct {
	MinSize, MaxSize uint64 // ring entries; for maglev MinSize is the table size in slots, a prime
	XXH64            bool   // Envoy's hash and placement (D3); otherwise XXH3
	// RequestHeader names the header that is hashed instead of what the route's hash
	// policies say (A76); empty is none.
	RequestHeader string
	// BalanceFactor bounds the load of a host, in percent of its share of all RPCs in
	// flight: 100 or more, 0 is off (Envoy's hash_balance_factor).
	BalanceFactor uint32
}

// LeastRequest has the parameters of least_request (A48).
type LeastRequest struct {
	Choices uint32 // endpoints sampled for each RPC: 2 to 10
	// IgnoreWeights samples all endpoints alike, as A48 has it.
	IgnoreWeights bool
}

// LeastLatency has the parameters of PolicyLeastLatency.
type LeastLatency struct {
	// Decay is the time in which what is known of a latency loses its weight to 1/e; above 0.
	Decay time.Duration
	// IgnoreWeights samples all endpoints alike.
	IgnoreWeights bool
}

// ClientWRR has the parameters of client_side_weighted_round_robin (A58, A114).
type ClientWRR struct {
	OutOfBand    bool          // reports come on a stream of their own instead of with RPCs (A51)
	OOBPeriod    time.Duration // between reports on that stream; 0 unless OutOfBand
	Blackout     time.Duration // from the first report until the weight is used; 0 is none
	Expiration   time.Duration // from the last report until the weight is no longer used
	UpdatePeriod time.Duration // between updates of the weights in use; at least 100 ms
	// ErrorPenalty is the factor p, 0 or more, in weight = qps / (utilization + p·eps/qps),
	// qps being RPCs and eps errors per second, those that the client saw where none are
	// reported.
	ErrorPenalty float64
	// UtilizationFrom names metrics of a report (A114). The utilization is the report's
	// application_utilization, or else the largest of these, or else cpu_utilization.
	UtilizationFrom []string
}

// PickFirst has the parameters of pick_first (A62).
type PickFirst struct {
	Shuffle bool // shuffle the endpoints before connecting
}

// CustomPolicy names a balancer of grpc-go's registry and its configuration.
type CustomPolicy struct {
	Name   string
	Config json.RawMessage
}

// SlowStart is Envoy's slow start. An endpoint that has been READY for a time t below
// Window has its weight times (t/Window)^(1/Aggression), but not less than
// MinWeightPercent of it.
type SlowStart struct {
	Window           time.Duration // above 0
	Aggression       float64       // no unit, above 0; 1 is linear growth, more grows faster at first
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
}

// SuccessRate ejects endpoints whose success rate is far below the mean (A50).
type SuccessRate struct {
	StdevFactor   uint32 // thousandths of a standard deviation below the mean: 1900 is 1.9 of them
	Enforcement   uint32 // probability, in percent, that an outlier is ejected
	MinimumHosts  uint32 // endpoints with RequestVolume without which none is judged
	RequestVolume uint32 // RPCs in an Interval without which an endpoint is not judged
}

// FailurePercentage ejects endpoints with too high a percentage of failures (A50).
type FailurePercentage struct {
	Threshold     uint32 // percent of RPCs that fail, above which an endpoint is an outlier
	Enforcement   uint32 // probability, in percent, that an outlier is ejected
	MinimumHosts  uint32 // endpoints with RequestVolume without which none is judged
	RequestVolume uint32 // RPCs in an Interval without which an endpoint is not judged
}
