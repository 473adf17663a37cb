// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"time"
)

// RouteStatus is a route of a virtual host.
type RouteStatus struct {
	Index int    `json:"index"` // in the virtual host
	Name  string `json:"name,omitempty"`
	Path  string `json:"path"` // such as `begins with "/"`
	// Conditions are conditions on headers, such as `header "env" is "test"`.
	Conditions       []string      `json:"conditions,omitempty"`
	Fraction         *float64      `json:"fraction,omitempty"`       // of the RPCs that reach the route; nil means all
	NotForwarding    bool          `json:"not_forwarding,omitempty"` // its RPCs fail (A36)
	Clusters         []RouteTarget `json:"clusters,omitempty"`
	Timeout          string        `json:"timeout,omitempty"`
	Retry            *RetryStatus  `json:"retry,omitempty"`
	Hash             []string      `json:"hash,omitempty"` // hash policies (A42)
	RewriteAuthority bool          `json:"rewrite_authority,omitempty"`
	Authority        string        `json:"authority,omitempty"` // replaces that of the RPCs (A111)
	// RequestHeaders are changes of request headers in order, such as `set "x-tenant"`, without values.
	RequestHeaders []string `json:"request_headers,omitempty"`

	// Explain: Probability is the probability that the RPC uses the route. Mismatch is the first
	// condition that fails, with the RPC's value. AppliedBy applies timeout and retries.
	Probability float64        `json:"probability,omitempty"`
	Mismatch    string         `json:"mismatch,omitempty"`
	AppliedBy   string         `json:"applied_by,omitempty"`
	Session     *SessionStatus `json:"session,omitempty"`
}

// RouteTarget is a cluster of a route.
type RouteTarget struct {
	Cluster string  `json:"cluster"`
	Share   float64 `json:"share"` // of the route's RPCs, by weight
	// RequestHeaders are changes of request headers before those of the route.
	RequestHeaders []string `json:"request_headers,omitempty"`

	// Explain, if the RPC may use the route: its outcomes in the cluster, with a sum of 1.
	Picked    float64 `json:"picked,omitempty"`    // probability of getting an endpoint
	Delegated float64 `json:"delegated,omitempty"` // of a pick by a child policy
	Waits     float64 `json:"waits,omitempty"`
	Fails     float64 `json:"fails,omitempty"`
	Failure   string  `json:"failure,omitempty"` // cause of Fails

	Filters []FilterStatus `json:"filters,omitempty"`
	Hash    *HashStatus    `json:"hash,omitempty"`
	// Status is the cluster with the shares of the RPC, and the localities of the active priority.
	// It is nil, with the reason in Note, if a newer configuration has replaced the cluster.
	Status *ClusterStatus `json:"status,omitempty"`
	Note   string         `json:"note,omitempty"`
}

// ClusterStatus is a destination of the routes.
type ClusterStatus struct {
	Name string `json:"name"`
	// State is IDLE, CONNECTING, READY or TRANSIENT_FAILURE. RPCs to a cluster in
	// TRANSIENT_FAILURE fail with Error, unless they are wait-for-ready.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// Priority is the active priority, counted over all leaves (A56); -1 if no priority is
	// active.
	Priority int          `json:"priority"`
	Leaves   []LeafStatus `json:"leaves,omitempty"` // several for an aggregate, in order
	// Zones is nil unless the active policy considers zones.
	Zones *ZonesStatus `json:"zones,omitempty"`
	// NotInSubset are the endpoints that random subsetting excludes (A68; detail).
	NotInSubset []string `json:"not_in_subset,omitempty"`
}

// LeafStatus is a cluster with endpoints.
type LeafStatus struct {
	Name    string `json:"name"`
	Service string `json:"service,omitempty"` // of EDS
	// Policy is the LB policy: "edf", "round_robin", "ring_hash", "maglev", "least_request",
	// "client_wrr", "pick_first", "least_latency", "prequal", "random", or the name of a policy of gRPC's
	// registry.
	Policy string `json:"policy"`
	// Probes describes the probes of xdslb_prequal.
	Probes *ProbeStatus `json:"probes,omitempty"`
	// PolicyText describes the policy with its parameters (detail).
	PolicyText string     `json:"policy_text,omitempty"`
	TLS        *TLSStatus `json:"tls,omitempty"` // nil unless the Cluster resource configures TLS (A29)
	// HealthCheck is the service of the cluster's health check (A17); nil without health_checks.
	HealthCheck *string `json:"health_check,omitempty"`
	Note        string  `json:"note,omitempty"` // errors of the leaf's resources
	// Unhealthy are the endpoints that EDS excludes by their health (detail).
	Unhealthy []UnhealthyEndpoint `json:"unhealthy,omitempty"`
	// ConnectionError is the error of the latest failed connection attempt.
	ConnectionError string `json:"connection_error,omitempty"`

	// InFlight and MaxRequests are the values of the circuit breaker (A32), which all channels of
	// the process share. If MaxRequests is 4294967295 there is no limit, and RPCs are counted only
	// for a retry budget or bounded loads. Rejected counts the RPCs that it rejected.
	InFlight    int64        `json:"in_flight"`
	MaxRequests uint32       `json:"max_requests"`
	Rejected    uint64       `json:"rejected"`
	Drops       []DropStatus `json:"drops,omitempty"`

	Priorities []PriorityStatus `json:"priorities,omitempty"`
}

// ProbeStatus describes the probes of the active priority.
type ProbeStatus struct {
	// Synchronous is set if unary RPCs send probes before they are picked. Without interceptors
	// they do not: see TargetStatus.Unapplied.
	Synchronous bool    `json:"synchronous"`
	Sent        uint64  `json:"sent"`
	Failed      uint64  `json:"failed"`    // number of sent probes that failed
	Answers     int     `json:"answers"`   // kept
	Silent      int     `json:"silent"`    // endpoints that do not respond to probes, and are picked by latency
	HotAbove    float64 `json:"hot_above"` // RPCs in flight per unit of weight
}

// DropStatus is a drop category of EDS. If the cluster's load is reported, Dropped and
// LeafStatus.Rejected count the RPCs of all channels of the XdsClient. Otherwise they count the
// RPCs of this channel since the cluster was added to its configuration.
type DropStatus struct {
	Category   string `json:"category"`
	PerMillion uint32 `json:"per_million"`
	Dropped    uint64 `json:"dropped"`
	// Probability is the probability that the category drops an RPC with an endpoint (Explain).
	Probability float64 `json:"probability,omitempty"`
}

// PriorityStatus is a priority of a leaf.
type PriorityStatus struct {
	Priority int `json:"priority"` // counted over all leaves of the cluster
	// Phase is "dormant" (not connected), "trying" (connecting, within the failover timeout),
	// "serving" (READY or IDLE), "failed", or "retired" (a higher priority serves, and connections
	// are kept for a while).
	Phase     string         `json:"phase"`
	State     string         `json:"state"`
	InUse     bool           `json:"in_use"`
	Endpoints EndpointCounts `json:"endpoints"`
	// Reason explains why the priority is active or not (A56; detail).
	Reason string `json:"reason,omitempty"`
	// Localities are the localities of the priority (detail).
	Localities []LocalityStatus `json:"localities,omitempty"`
}

// EndpointCounts counts the endpoints of a priority, each in Total and in one other field. Endpoints
// that EDS excludes are not counted: see LeafStatus.Unhealthy.
type EndpointCounts struct {
	Total      int `json:"total"`
	Ready      int `json:"ready"`      // can be picked
	Connecting int `json:"connecting"` // or waiting for a health check
	Idle       int `json:"idle"`       // not connected
	Failed     int `json:"failed"`     // unreachable, until a connection attempt succeeds
	Ejected    int `json:"ejected"`    // connected, ejected as outliers (A50)
	Draining   int `json:"draining"`   // no new RPCs (A27)
	Subset     int `json:"subset"`     // excluded by random subsetting (A68)
}

// LocalityStatus is a locality of a priority.
type LocalityStatus struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
	Weight  uint32 `json:"weight"`
	// Share is the expected share of the cluster's RPCs.
	Share float64 `json:"share"`
	// Child is the child policy that picks in the locality, and its state; empty without a
	// child policy.
	Child     string           `json:"child,omitempty"`
	Endpoints []EndpointStatus `json:"endpoints"`
}

// EndpointStatus is an endpoint. In an Explanation, Share applies to the explained RPC. Elsewhere it
// applies to an arbitrary RPC, with a random hash if the policy uses hashes.
type EndpointStatus struct {
	Address  string   `json:"address"`
	More     []string `json:"more,omitempty"` // further addresses (A61)
	Hostname string   `json:"hostname,omitempty"`
	Weight   uint32   `json:"weight"` // as configured
	// EffectiveWeight is the weight that picks use, relative to the endpoints of the same locality,
	// or of all localities if the policy ignores these. For hash policies it is the weight of A113.
	// WeightFrom is its source, and SlowStart the factor that it includes, if any.
	EffectiveWeight uint32  `json:"effective_weight"`
	WeightFrom      string  `json:"weight_from,omitempty"`
	SlowStart       float64 `json:"slow_start,omitempty"`
	// Share is the probability of being picked, disregarding drops and the circuit breaker; for
	// sequences, the long-run share. Waits is the probability that an RPC waits for the endpoint.
	Share float64 `json:"share"`
	Waits float64 `json:"waits,omitempty"`
	// Out is the reason why the endpoint cannot be picked; empty if it can. ChildTold is the state
	// reported to the child policy, which may not have applied it yet.
	Out       string    `json:"out,omitempty"`
	ChildTold string    `json:"child_told,omitempty"`
	State     string    `json:"state"`
	Since     time.Time `json:"since,omitzero"` // of State
	Error     string    `json:"error,omitempty"`
	InFlight  int       `json:"in_flight,omitempty"` // if the policy uses it
	// Latency is the recent latency in seconds, if the policy uses it and an RPC has ended.
	Latency float64 `json:"latency,omitempty"`

	Draining bool `json:"draining,omitempty"` // no new RPCs (A27)
	Ejected  bool `json:"ejected,omitempty"`  // as an outlier (A50)
	// OK and FailedRPCs count the RPCs of the channel that ended at the endpoint since
	// TargetStatus.Watched, with status OK or another status.
	OK         uint64 `json:"ok"`
	FailedRPCs uint64 `json:"failed"`
}

// UnhealthyEndpoint is an endpoint whose health in EDS is not HEALTHY, UNKNOWN or DRAINING.
type UnhealthyEndpoint struct {
	Address string `json:"address"`
	Health  string `json:"health"` // "UNHEALTHY", "TIMEOUT", "DEGRADED" …
}

// TLSStatus has the TLS settings of a cluster (A29).
type TLSStatus struct {
	InForce    bool     `json:"in_force"` // the channel's credentials apply them
	Roots      string   `json:"roots"`
	Identity   string   `json:"identity,omitempty"` // instance with the client certificate
	SANs       []string `json:"sans,omitempty"`     // accepted identities of servers; empty accepts any
	ServerName string   `json:"server_name,omitempty"`
}

// RetryStatus is a retry policy (A44).
type RetryStatus struct {
	On          []string `json:"on"`
	MaxAttempts int      `json:"max_attempts"`
	BaseBackoff string   `json:"base_backoff"`
	MaxBackoff  string   `json:"max_backoff"`
	OtherHosts  bool     `json:"other_hosts,omitempty"` // attempts avoid the endpoints of earlier attempts
	Hedged      bool     `json:"hedged,omitempty"`      // unary RPCs of idempotent methods
	// PerTryTimeout is the time after which an attempt is canceled, and retried if RetriesTimeouts
	// is set. A hedged attempt continues, and another one is started.
	PerTryTimeout   string `json:"per_try_timeout,omitempty"`
	RetriesTimeouts bool   `json:"retries_timeouts,omitempty"`
}

// ZonesStatus describes how a cluster chooses a locality, if its policy does not only use the
// configured weights.
type ZonesStatus struct {
	InForce bool   `json:"in_force"`
	Reason  string `json:"reason"` // why the rule is not in force, or its result
	// Region, Zone and SubZone are the locality of the bootstrap's node.
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
	// Localities are the localities of the active priority; empty if the rule is not in force.
	Localities []ZoneStatus `json:"localities,omitempty"`
}

// ZoneStatus is a locality's share of the RPCs, and the shares that it is computed from.
type ZoneStatus struct {
	Region    string  `json:"region,omitempty"`
	Zone      string  `json:"zone,omitempty"`
	SubZone   string  `json:"sub_zone,omitempty"`
	Share     float64 `json:"share"`     // of the channel's RPCs to the cluster
	Endpoints float64 `json:"endpoints"` // of the endpoints that are READY
	Fleet     float64 `json:"fleet"`     // of the local cluster
}

// LeafInUse returns the leaf of the active priority, or the first leaf if no priority is active. It
// returns nil if there are no leaves.
func (c *ClusterStatus) LeafInUse() *LeafStatus {
	for i := range c.Leaves {
		for k := range c.Leaves[i].Priorities {
			if c.Leaves[i].Priorities[k].Priority == c.Priority {
				return &c.Leaves[i]
			}
		}
	}
	if len(c.Leaves) > 0 {
		return &c.Leaves[0]
	}
	return nil
}

// Localities returns the localities of all priorities; c may be nil.
func (c *ClusterStatus) Localities() (list []*LocalityStatus) {
	if c == nil {
		return nil
	}
	for i := range c.Leaves {
		for k := range c.Leaves[i].Priorities {
			p := &c.Leaves[i].Priorities[k]
			for n := range p.Localities {
				list = append(list, &p.Localities[n])
			}
		}
	}
	return list
}

// Refuses reports whether the circuit breaker is at its limit.
func (l *LeafStatus) Refuses() bool { return l.InFlight >= int64(l.MaxRequests) }

// String returns the settings as text, with the first few SANs.
func (s *TLSStatus) String() string {
	text := "roots of " + s.Roots
	if s.Identity != "" {
		text += ", client certificate of " + s.Identity
	}
	if s.SANs == nil {
		text += ", any server name"
	} else {
		text += ", server name " + strings.Join(s.SANs[:min(len(s.SANs), 8)], ", or ")
	}
	if s.ServerName != "" {
		text += ", SNI " + s.ServerName
	}
	return text
}
