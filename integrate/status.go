// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// TargetStatus is what a channel is at: what is in force, since when, from whom, and what
// is wrong. It is plain data, for people and for encoding/json, and nothing in it changes
// any more.
type TargetStatus struct {
	Time time.Time `json:"time"` // when the status was taken
	// Channel is the number by which Channels knows the channel; 0 if it is idle.
	Channel int64  `json:"channel,omitempty"`
	Target  string `json:"target"`
	// Stock is why the channel is google.golang.org/grpc/xds's, if the environment has it so
	// (XDSLB_DISABLE, XDSLB_ENABLE). Then nothing else is known but Rollout and Connectivity,
	// and the latter only if the channel is at hand or has our interceptors.
	Stock string `json:"stock,omitempty"`
	// Rollout has what decided that, and the way back; nil if the channel is xdslb's.
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Connectivity is the channel's: IDLE, CONNECTING, READY, TRANSIENT_FAILURE or
	// SHUTDOWN. A channel that is IDLE because it has not been used yet, or not for a
	// while, has neither configuration nor connections, and all else is empty.
	Connectivity string `json:"connectivity"`

	Listener  string `json:"listener,omitempty"`
	Authority string `json:"authority,omitempty"` // by which the virtual host is chosen
	Node      string `json:"node,omitempty"`      // its id

	// Since is when the configuration came into force; zero while there is none.
	Since time.Time `json:"since,omitzero"`
	// Received is when the latest of its resources arrived.
	Received time.Time `json:"received,omitzero"`
	// Error says why the target cannot be served, or, while there is no first
	// configuration, what that waits for.
	Error string `json:"error,omitempty"`
	// Pending says that a later configuration is about to come into force.
	Pending bool `json:"pending,omitempty"`
	Routes  int  `json:"routes"` // of the virtual host
	// RouteTable are the routes, in match order. Only Channel.Inspect has them.
	RouteTable []RouteStatus `json:"route_table,omitempty"`
	// Watched is since when RPCs are counted by endpoint: see Channel.Inspect.
	Watched time.Time `json:"watched,omitzero"`
	// Unapplied is what the configuration asks for and the channel does not do: because
	// it was made without interceptors, see DialOptions, or because no channel does it.
	Unapplied []string `json:"unapplied,omitempty"`

	// Admission is what the admission control filters of the routes are at.
	Admission []AdmissionStatus `json:"admission,omitempty"`
	// Concurrency is what the adaptive concurrency filters of the routes are at.
	Concurrency []ConcurrencyStatus `json:"concurrency,omitempty"`

	Clusters  []ClusterStatus  `json:"clusters,omitempty"`  // by name
	Resources []ResourceStatus `json:"resources,omitempty"` // by type, in the order LDS, RDS, CDS, EDS, and name
	Servers   []ServerStatus   `json:"servers,omitempty"`   // xDS servers that were turned to, in the bootstrap's order
	Events    []eventlog.Event `json:"events,omitempty"`    // the latest, oldest first
}

// AdmissionStatus is an admission control filter with a configuration, of which routes may
// have different ones: it refuses RPCs while too many fail.
type AdmissionStatus struct {
	Filter      string  `json:"filter"`
	Probability float64 `json:"probability"` // of refusing an RPC, from 0 to 1
	// RPCs are those that ended in the sampling window, Successes those of them that succeeded.
	RPCs      uint32 `json:"rpcs"`
	Successes uint32 `json:"successes"`
	Refused   uint64 `json:"refused"` // since the filter has the configuration
}

// ConcurrencyStatus is an adaptive concurrency filter with a configuration, of which routes may
// have different ones, for one of their clusters: it refuses RPCs while Limit are in flight.
type ConcurrencyStatus struct {
	Filter   string `json:"filter"`
	Cluster  string `json:"cluster"`
	Limit    uint32 `json:"limit"`
	InFlight uint32 `json:"in_flight"`
	// MinRTT is how long RPCs should take, SampleRTT how long they took of late, in seconds; 0
	// is unknown. While Measuring is set, MinRTT is being measured.
	MinRTT    float64 `json:"min_rtt"`
	SampleRTT float64 `json:"sample_rtt"`
	Measuring bool    `json:"measuring,omitempty"`
	TimesOut  bool    `json:"times_out,omitempty"` // RPCs time out, and SampleRTT is unknown
	Refused   uint64  `json:"refused"`             // since the filter has the configuration
}

// concurrencyStatus is the status of one.
func concurrencyStatus(c *perrpc.ConcurrencyState) ConcurrencyStatus {
	s := ConcurrencyStatus{
		Filter: c.Filter, Cluster: c.Cluster, Limit: c.Limit, InFlight: c.InFlight, Refused: c.Refused,
		MinRTT: c.MinRTT.Seconds(), SampleRTT: c.SampleRTT.Seconds(), Measuring: c.Measuring, TimesOut: c.TimesOut(),
	}
	if s.TimesOut {
		s.SampleRTT = 0
	}
	return s
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
	TLS    bool         `json:"tls"` // the Cluster resource demands it (A29)
	// TLSSettings are what it says; only Channel.Inspect has them.
	TLSSettings *ExplainedTLS `json:"tls_settings,omitempty"`
	Note        string        `json:"note,omitempty"`
	// Unhealthy are endpoints that are in no priority, since EDS marks them so. Only
	// Channel.Inspect has them.
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
	// Localities are only those of Channel.Inspect.
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

// ResourceStatus is an xDS resource of the target: the version in force, and what is
// wrong with the latest one, if anything.
type ResourceStatus struct {
	Type  string `json:"type"` // "Listener", "RouteConfiguration", "Cluster" or "ClusterLoadAssignment"
	Name  string `json:"name"`
	State string `json:"state"` // as A40 has it: "ACKED", "NACKED", "REQUESTED" …

	Version string    `json:"version,omitempty"`   // in force; empty is none
	Updated time.Time `json:"updated,omitzero"`    // when its content arrived
	Age     float64   `json:"age,omitempty"`       // seconds since
	Server  string    `json:"server,omitempty"`    // URI of the server that sent it
	Error   string    `json:"error,omitempty"`     // why none is in force, or not the latest
	Refused string    `json:"refused,omitempty"`   // the latest version, if it is invalid
	Tried   time.Time `json:"refused_at,omitzero"` // when that arrived
}

// ServerStatus is how the XdsClient gets on with an xDS server.
type ServerStatus struct {
	URI       string    `json:"uri"`
	InUse     bool      `json:"in_use"`    // there is a stream, or an attempt to have one
	Connected bool      `json:"connected"` // from the first stream on, until one ends without a response
	Since     time.Time `json:"since,omitzero"`
	Error     string    `json:"error,omitempty"` // of the latest stream that failed
	ErrorTime time.Time `json:"error_time,omitzero"`
}

// Event is something that happened to a channel, or to its XdsClient.
type Event = eventlog.Event

// Status returns the status of each channel of the process that has a resolver of this
// package, or was handed to stock's by the environment, and is not idle, in the order in
// which the resolvers were made. It connects nothing. Each takes the channel's mutex for
// O(endpoints).
func Status() []TargetStatus {
	all := []TargetStatus{}
	for _, c := range Channels() {
		all = append(all, c.Status())
	}
	return all
}

// StatusOf returns the status of a channel. It fails if the channel's resolver is not of
// this package, unless the environment has it so. It does not connect a channel that is idle; of a channel of scheme xds that is
// idle, or has just begun to connect, nobody can tell whose resolver it is to have. It takes the channel's mutex for
// O(endpoints). Service configs of channels without interceptors of ours change twice, once
// each, when such a channel is asked for the first time: their RPCs do not notice.
func StatusOf(cc *grpc.ClientConn) (TargetStatus, error) {
	state := cc.GetState()
	if r := resolverOf(cc); r != nil {
		return r.status(false), nil
	}
	if r := stockResolverOf(cc); r != nil {
		s := r.status(false)
		s.Connectivity = state.String()
		return s, nil
	}
	bare := TargetStatus{Time: time.Now(), Target: cc.CanonicalTarget(), Connectivity: state.String()}
	switch {
	case !usesXDS(cc.CanonicalTarget()):
		return bare, fmt.Errorf("xdslb: channel %q: %w", cc.Target(), errForeign)
	case state == connectivity.Ready || state == connectivity.TransientFailure:
		return bare, fmt.Errorf("xdslb: channel %q: %w, or could not be made", cc.Target(), errForeign)
	}
	return bare, nil
}

var errForeign = errors.New("its resolver is not xdslb's")

// status returns the status of the resolver's channel, with each route and endpoint if
// detailed is set.
func (r *xdsResolver) status(detailed bool) TargetStatus {
	s := TargetStatus{
		Time: time.Now(), Channel: r.link.Number(), Target: r.link.Target, Connectivity: connectivity.Connecting.String(),
		Listener: r.listener, Authority: r.authority, Node: r.node,
	}
	var events []eventlog.Event
	if b := r.balancer.Load(); b != nil {
		events = b.status(&s, detailed)
	}
	if s.Since.IsZero() {
		if err := r.waiting(); err != nil {
			s.Error = err.Error()
		}
	}
	if t := r.link.Current(); t != nil {
		s.Unapplied = append(r.link.Unapplied(t), ignored(t.Config)...)
		for _, a := range t.Plans.Admissions() {
			s.Admission = append(s.Admission, AdmissionStatus{a.Filter, a.Probability, a.RPCs, a.Successes, a.Refused})
		}
		for _, c := range t.Plans.Concurrencies() {
			s.Concurrency = append(s.Concurrency, concurrencyStatus(&c))
		}
	}
	r.addResources(&s)
	for _, server := range r.client.Servers() {
		s.Servers = append(s.Servers, ServerStatus{
			URI: server.URI, InUse: server.InUse, Connected: server.Connected, Since: server.Since, Error: errorText(server.Err), ErrorTime: server.ErrTime,
		})
	}
	s.Events = mergeEvents(events, r.client.Events(r.listener, r.authority))
	return s
}

// addResources adds the resources that the target depends on.
func (r *xdsResolver) addResources(s *TargetStatus) {
	for res := range r.client.TargetResources(r.listener, r.authority) {
		out := ResourceStatus{
			Type: res.Type.String(), Name: res.Name, State: res.State.String(),
			Version: res.Version, Updated: res.Updated, Server: res.Server, Error: errorText(res.Err),
			Refused: res.Rejected.Version, Tried: res.Rejected.Time,
		}
		if !res.Updated.IsZero() {
			out.Age = s.Time.Sub(res.Updated).Seconds()
		}
		s.Resources = append(s.Resources, out)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// resolverOf returns the resolver of a channel, or nil if that is not ours, or the
// channel is idle and has none. It does not connect the channel.
func resolverOf(cc *grpc.ClientConn) *xdsResolver {
	l := perrpc.LinkOf(cc)
	if l == nil {
		return nil
	}
	r, _ := l.Resolver.(*xdsResolver)
	return r
}

// resolversOf returns those of a kind that some links have.
func resolversOf[R channelResolver](links []*perrpc.Link) (all []R) {
	for _, l := range links {
		if r, ok := l.Resolver.(R); ok {
			all = append(all, r)
		}
	}
	return all
}
