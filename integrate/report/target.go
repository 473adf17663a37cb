// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package report has the types that integrate's Status, StatusOf, Explain and Channel.Inspect
// return, and their text. They are plain data for people and for encoding/json.
//
//	TargetStatus         a channel
//	  RouteStatus          a route of its virtual host
//	  ClusterStatus        a cluster that routes lead to
//	    LeafStatus           a cluster with endpoints, several in an aggregate
//	      PriorityStatus       a priority of it
//	        LocalityStatus       a locality of that
//	          EndpointStatus       an endpoint
//	  ResourceStatus, ServerStatus, eventlog.Event
//
// Fields marked as detail are empty in a short status: Channel.Inspect fills them in. An Explanation has the routes and the
// clusters of the same tree for one RPC, with the probabilities of what becomes of it: fields
// marked with Explain are empty elsewhere.
package report

import (
	"fmt"
	"time"

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
	// RouteTable are the routes, in match order (detail).
	RouteTable []RouteStatus `json:"route_table,omitempty"`
	// Watched is since when RPCs are counted by endpoint (detail).
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

// RolloutStatus is how the environment came to hand a channel to stock, and the way back.
type RolloutStatus struct {
	Variable string `json:"variable"` // XDSLB_DISABLE or XDSLB_ENABLE
	Value    string `json:"value"`    // of the variable when the channel connected
	// Pattern is the one of Value that decided. Empty means that none of XDSLB_ENABLE matched.
	Pattern string `json:"pattern,omitempty"`
	// Malformed says that Pattern is no pattern, so the channel was handed over for safety.
	Malformed bool `json:"malformed,omitempty"`
	// Forward says how the channel comes back to xdslb.
	Forward string `json:"forward"`
}

// Why says why the channel is not xdslb's.
func (r *RolloutStatus) Why() string {
	switch {
	case r.Malformed:
		return fmt.Sprintf("%s has the malformed pattern %q", r.Variable, r.Pattern)
	case r.Pattern == "":
		return fmt.Sprintf("no pattern of %s, which is %q, matches it", r.Variable, r.Value)
	}
	return fmt.Sprintf("%s has %q", r.Variable, r.Pattern)
}
