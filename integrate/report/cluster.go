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
	// Conditions are those on headers, such as `header "env" is "test"`.
	Conditions       []string      `json:"conditions,omitempty"`
	Fraction         *float64      `json:"fraction,omitempty"`       // of the RPCs that reach it; nil is all
	NotForwarding    bool          `json:"not_forwarding,omitempty"` // its RPCs fail (A36)
	Clusters         []RouteTarget `json:"clusters,omitempty"`
	Timeout          string        `json:"timeout,omitempty"`
	Retry            *RetryStatus  `json:"retry,omitempty"`
	Hash             []string      `json:"hash,omitempty"` // hash policies (A42)
	RewriteAuthority bool          `json:"rewrite_authority,omitempty"`

	// Explain: Probability is that of the RPC taking the route, and Mismatch the first
	// condition that fails, with the RPC's value. AppliedBy is what applies timeout and retries.
	Probability float64        `json:"probability,omitempty"`
	Mismatch    string         `json:"mismatch,omitempty"`
	AppliedBy   string         `json:"applied_by,omitempty"`
	Session     *SessionStatus `json:"session,omitempty"`
}

// RouteTarget is a cluster that a route leads to.
type RouteTarget struct {
	Cluster string  `json:"cluster"`
	Share   float64 `json:"share"` // of the route's RPCs, by weight

	// Explain, if the RPC may take the route: what becomes of it in the cluster. Picked,
	// Delegated, Waits and Fails add up to 1.
	Picked    float64 `json:"picked,omitempty"`    // probability of an endpoint
	Delegated float64 `json:"delegated,omitempty"` // of a child policy that picks
	Waits     float64 `json:"waits,omitempty"`
	Fails     float64 `json:"fails,omitempty"`
	Failure   string  `json:"failure,omitempty"` // why RPCs fail, if they do

	Filters []FilterStatus `json:"filters,omitempty"`
	Hash    *HashStatus    `json:"hash,omitempty"`
	// Status is the cluster with the shares of the RPC, and the localities of the priority in
	// use. It is nil, and Note tells why, if another configuration has replaced the cluster.
	Status *ClusterStatus `json:"status,omitempty"`
	Note   string         `json:"note,omitempty"`
}

// ClusterStatus is a destination of the routes.
type ClusterStatus struct {
	Name string `json:"name"`
	// State is IDLE, CONNECTING, READY or TRANSIENT_FAILURE; RPCs of a cluster in
	// TRANSIENT_FAILURE fail with Error, unless they wait for ready.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// Priority is the one in use, counted over all leaves (A56); -1 is none.
	Priority int          `json:"priority"`
	Leaves   []LeafStatus `json:"leaves,omitempty"` // several if it is an aggregate, in order
	// Zones is nil unless the policy in use goes by zones.
	Zones *ZonesStatus `json:"zones,omitempty"`
	// NotInSubset are endpoints that this channel leaves to others (A68; detail).
	NotInSubset []string `json:"not_in_subset,omitempty"`
}

// LeafStatus is a cluster with endpoints.
type LeafStatus struct {
	Name    string `json:"name"`
	Service string `json:"service,omitempty"` // of EDS
	// Policy picks endpoints: "edf", "round_robin", "ring_hash", "maglev", "least_request",
	// "client_wrr", "pick_first", "least_latency", "prequal", or the name of a policy of gRPC's
	// registry.
	Policy string `json:"policy"`
	// Probes is how endpoints are asked for their load, if they are (xdslb_prequal).
	Probes *ProbeStatus `json:"probes,omitempty"`
	// PolicyText describes the policy with its parameters (detail).
	PolicyText string     `json:"policy_text,omitempty"`
	TLS        *TLSStatus `json:"tls,omitempty"`  // nil unless the Cluster resource demands it (A29)
	Note       string     `json:"note,omitempty"` // what is wrong with the resources of the leaf
	// Unhealthy are endpoints that are in no priority, since EDS marks them so (detail).
	Unhealthy []UnhealthyEndpoint `json:"unhealthy,omitempty"`
	// ConnectionError is that of the latest attempt that failed.
	ConnectionError string `json:"connection_error,omitempty"`

	// InFlight and MaxRequests are those of the circuit breaker (A32), which all
	// channels of the process share. Rejected counts what it refused.
	InFlight    int64        `json:"in_flight"`
	MaxRequests uint32       `json:"max_requests"`
	Rejected    uint64       `json:"rejected"`
	Drops       []DropStatus `json:"drops,omitempty"`

	Priorities []PriorityStatus `json:"priorities,omitempty"`
}

// ProbeStatus is how the endpoints of the priority in use are asked for their load.
type ProbeStatus struct {
	// Synchronous says that unary RPCs ask before they are picked. On a channel without
	// interceptors they do not: see TargetStatus.Unapplied.
	Synchronous bool    `json:"synchronous"`
	Sent        uint64  `json:"sent"`
	Failed      uint64  `json:"failed"`    // of those sent
	Answers     int     `json:"answers"`   // that are kept at the moment
	Silent      int     `json:"silent"`    // endpoints that answer no probes, and are picked by latency
	HotAbove    float64 `json:"hot_above"` // RPCs in flight for a unit of weight
}

// DropStatus is a drop category of EDS. Dropped, and LeafStatus.Rejected, count all
// channels of the XdsClient if the cluster's load is reported, and otherwise this one,
// since the cluster came into its configuration.
type DropStatus struct {
	Category   string `json:"category"`
	PerMillion uint32 `json:"per_million"`
	Dropped    uint64 `json:"dropped"`
	// Probability is that of an RPC being dropped which gets an endpoint (Explain).
	Probability float64 `json:"probability,omitempty"`
}

// PriorityStatus is a priority of a leaf.
type PriorityStatus struct {
	Priority int `json:"priority"` // counted over all leaves of the cluster
	// Phase is "dormant" (nothing was asked to connect), "trying" (it has the failover
	// time to connect), "serving" (READY or IDLE), "failed", or "retired" (a higher
	// priority serves, and the connections are kept for a while).
	Phase     string         `json:"phase"`
	State     string         `json:"state"`
	InUse     bool           `json:"in_use"`
	Endpoints EndpointCounts `json:"endpoints"`
	// Reason is why the priority is in use or not (A56; detail).
	Reason string `json:"reason,omitempty"`
	// Share is that of the load, where priorities share it (detail).
	Share float64 `json:"share,omitempty"`
	// Localities are its localities (detail).
	Localities []LocalityStatus `json:"localities,omitempty"`
}

// EndpointCounts counts the endpoints of a priority, each in one of the fields but Total.
// Those that EDS calls neither HEALTHY, UNKNOWN nor DRAINING are no part of a
// configuration, and not counted: see LeafStatus.Unhealthy.
type EndpointCounts struct {
	Total      int `json:"total"`
	Ready      int `json:"ready"`      // can be picked
	Connecting int `json:"connecting"` // or waiting for the result of a health check
	Idle       int `json:"idle"`       // not asked to connect
	Failed     int `json:"failed"`     // not reachable, until an attempt succeeds
	Ejected    int `json:"ejected"`    // connected, and taken out as outliers (A50)
	Draining   int `json:"draining"`   // no new RPCs (A27)
	Subset     int `json:"subset"`     // left out of this channel's subset (A68)
}

// LocalityStatus is a locality of a priority.
type LocalityStatus struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
	Weight  uint32 `json:"weight"`
	// Share is what part of the cluster's RPCs it is expected to get.
	Share float64 `json:"share"`
	// Child is the child policy that picks in the locality, and its state, if one does.
	Child     string           `json:"child,omitempty"`
	Endpoints []EndpointStatus `json:"endpoints"`
}

// EndpointStatus is an endpoint. Its Share is for the RPC of the Explanation, and elsewhere for
// an RPC to the cluster of which nothing is known: if the policy hashes, of a random hash.
type EndpointStatus struct {
	Address  string   `json:"address"`
	More     []string `json:"more,omitempty"` // further addresses (A61)
	Hostname string   `json:"hostname,omitempty"`
	Weight   uint32   `json:"weight"` // as configured
	// EffectiveWeight is the one that picks go by; it compares with those of the same
	// locality, or of all if the policy is flat; of hash policies it is that of A113.
	// WeightFrom says where others come from, and SlowStart is the factor in it, if any.
	EffectiveWeight uint32  `json:"effective_weight"`
	WeightFrom      string  `json:"weight_from,omitempty"`
	SlowStart       float64 `json:"slow_start,omitempty"`
	// Share is the probability of being picked, drops and breaker apart; in a sequence, the
	// long-run share. Waits is that of an RPC waiting for the endpoint.
	Share float64 `json:"share"`
	Waits float64 `json:"waits,omitempty"`
	// Out is why the endpoint cannot be picked; empty if it can. ChildTold is why the child
	// policy that picks should not pick it, which it may not have minded yet.
	Out       string    `json:"out,omitempty"`
	ChildTold string    `json:"child_told,omitempty"`
	State     string    `json:"state"`
	Since     time.Time `json:"since,omitzero"` // of State
	Error     string    `json:"error,omitempty"`
	InFlight  int       `json:"in_flight,omitempty"` // if the policy compares it
	Latency   float64   `json:"latency,omitempty"`   // seconds, of late, if the policy goes by it

	Draining bool `json:"draining,omitempty"` // no new RPCs (A27)
	Ejected  bool `json:"ejected,omitempty"`  // as an outlier (A50)
	// OK and FailedRPCs are the RPCs of the channel that have ended at the endpoint since
	// TargetStatus.Watched: with an answer of the server's that is OK, or otherwise.
	OK         uint64 `json:"ok"`
	FailedRPCs uint64 `json:"failed"`
}

// UnhealthyEndpoint is an endpoint that EDS calls neither HEALTHY, UNKNOWN nor DRAINING.
type UnhealthyEndpoint struct {
	Address string `json:"address"`
	Health  string `json:"health"` // "UNHEALTHY", "TIMEOUT", "DEGRADED" …
}

// TLSStatus is what a cluster says about TLS (A29).
type TLSStatus struct {
	InForce    bool     `json:"in_force"` // the channel's credentials go by it
	Roots      string   `json:"roots"`
	Identity   string   `json:"identity,omitempty"` // instance with the client's certificate
	SANs       []string `json:"sans,omitempty"`     // identities that servers may have; none is any
	ServerName string   `json:"server_name,omitempty"`
}

// RetryStatus is a retry policy (A44).
type RetryStatus struct {
	On          []string `json:"on"`
	MaxAttempts int      `json:"max_attempts"`
	BaseBackoff string   `json:"base_backoff"`
	MaxBackoff  string   `json:"max_backoff"`
	OtherHosts  bool     `json:"other_hosts,omitempty"` // attempts avoid endpoints that were tried
	Hedged      bool     `json:"hedged,omitempty"`      // unary RPCs, if their methods are declared safe
}

// ZonesStatus is how a cluster chooses a locality, where its policy has a rule for that
// besides the configured weights.
type ZonesStatus struct {
	InForce bool   `json:"in_force"`
	Reason  string `json:"reason"` // why it is not in force, or what the rule comes to
	// Region, Zone and SubZone are the channel's own, by the bootstrap's node.
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
	// Localities are those of the priority in use; empty if the rule is not in force.
	Localities []ZoneStatus `json:"localities,omitempty"`
}

// ZoneStatus is a locality's part of the RPCs, and what it follows from. Parts are
// fractions of 1.
type ZoneStatus struct {
	Region    string  `json:"region,omitempty"`
	Zone      string  `json:"zone,omitempty"`
	SubZone   string  `json:"sub_zone,omitempty"`
	Share     float64 `json:"share"`     // of the channel's RPCs to the cluster
	Endpoints float64 `json:"endpoints"` // of the endpoints that are READY
	Fleet     float64 `json:"fleet"`     // of the own fleet (zone-aware routing)
	// Utilization is what endpoints report, smoothed; 0 if it is not known (load-aware
	// localities).
	Utilization float64 `json:"utilization,omitempty"`
}

// LeafInUse returns the leaf of the priority in use; the first if there is none, and nil if
// there are no leaves.
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

// Refuses reports whether the circuit breaker refuses the next RPC.
func (l *LeafStatus) Refuses() bool { return l.InFlight >= int64(l.MaxRequests) }

// String returns the settings as text for people, with the first few SANs.
func (s *TLSStatus) String() string {
	text := "roots of " + s.Roots
	if s.Identity != "" {
		text += ", own certificate of " + s.Identity
	}
	if s.SANs == nil {
		text += ", any server of these roots"
	} else {
		text += ", servers whose name " + strings.Join(s.SANs[:min(len(s.SANs), 8)], ", or ")
	}
	if s.ServerName != "" {
		text += ", SNI " + s.ServerName
	}
	return text
}
