// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package report defines the types that describe a channel, and their texts. They are plain, immutable
// data that encoding/json can encode.
//
//	TargetStatus         a channel
//	  RouteStatus          a route of its virtual host
//	  ClusterStatus        a cluster of a route
//	    LeafStatus           a cluster with endpoints, several in an aggregate
//	      PriorityStatus       a priority
//	        LocalityStatus       a locality
//	          EndpointStatus       an endpoint
//	  ResourceStatus, ServerStatus, eventlog.Event
//
// Fields marked with "detail" are empty in a short status. An Explanation has the routes and clusters
// of the same tree for one RPC, with the probabilities of its outcomes; fields marked with "Explain"
// are empty elsewhere.
package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/xdslb/xdslb/xds/eventlog"
)

// TargetStatus is the status of a channel: its configuration, the origin of the resources, and errors.
// It is plain, immutable data that encoding/json can encode.
type TargetStatus struct {
	Time time.Time `json:"time"` // when the status was taken
	// Channel is the number of the channel in Channels; 0 if the channel is idle.
	Channel int64  `json:"channel,omitempty"`
	Target  string `json:"target"`
	// Stock is the reason why the channel uses google.golang.org/grpc/xds, if the environment
	// selects that (XDSLB_DISABLE, XDSLB_ENABLE). In this case only Rollout and Connectivity are
	// known, and Connectivity only if the channel was passed or has our interceptors.
	Stock string `json:"stock,omitempty"`
	// Rollout has the variable that selects it, and the way back; nil if no variable does.
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// EnvironmentErrors describes variables of xdslb in the environment that are not understood or have
	// no effect. They are the same for all channels of the process.
	EnvironmentErrors []string `json:"environment_errors,omitempty"`
	// Connectivity is the state of the channel: IDLE, CONNECTING, READY, TRANSIENT_FAILURE or
	// SHUTDOWN. A channel that is IDLE because it has not been used recently has neither
	// configuration nor connections, and the other fields are empty.
	Connectivity string `json:"connectivity"`

	Listener  string `json:"listener,omitempty"`
	Authority string `json:"authority,omitempty"` // selects the virtual host
	Node      string `json:"node,omitempty"`      // its id

	// Since is the time when the configuration came into force; zero before the first
	// configuration.
	Since time.Time `json:"since,omitzero"`
	// Received is the time when the latest of its resources arrived.
	Received time.Time `json:"received,omitzero"`
	// Error is the reason why the target cannot be served, or why there is no configuration yet.
	Error string `json:"error,omitempty"`
	// Pending is set if a later configuration is about to come into force.
	Pending bool `json:"pending,omitempty"`
	Routes  int  `json:"routes"` // of the virtual host
	// RouteTable has the routes, in the order of matching (detail).
	RouteTable []RouteStatus `json:"route_table,omitempty"`
	// Watched is the time at which counting RPCs by endpoint began (detail).
	Watched time.Time `json:"watched,omitzero"`
	// Unapplied lists configured features that the channel does not apply, because it lacks
	// interceptors (see DialOptions) or they are unsupported.
	Unapplied []string `json:"unapplied,omitempty"`

	Clusters  []ClusterStatus  `json:"clusters,omitempty"`  // by name
	Resources []ResourceStatus `json:"resources,omitempty"` // by type, in the order LDS, RDS, CDS, EDS, and name
	Overlay   []PatchStatus    `json:"overlay,omitempty"`   // patches, in the order in which they are applied
	// OverlayError is why the overlay, or the present content of its file, is not in force.
	OverlayError string `json:"overlay_error,omitempty"`
	// StockDifferences lists what google.golang.org/grpc/xds rejects, lacks or handles differently: the
	// effect of a roll-back.
	StockDifferences []StockDifference `json:"stock_differences,omitempty"`
	// ShareShifts are the clusters whose endpoints have other shares of the RPCs there (detail).
	ShareShifts []ShareShift `json:"share_shifts,omitempty"`

	Servers []ServerStatus   `json:"servers,omitempty"` // xDS servers that have been used, in the bootstrap's order
	Events  []eventlog.Event `json:"events,omitempty"`  // the latest, oldest first
}

// ResourceStatus is an xDS resource of the target: the version in force, and the error of the latest
// version, if any.
type ResourceStatus struct {
	Type  string `json:"type"` // "Listener", "RouteConfiguration", "Cluster" or "ClusterLoadAssignment"
	Name  string `json:"name"`
	State string `json:"state"` // as defined by A40: "ACKED", "NACKED", "REQUESTED" …

	Version string    `json:"version,omitempty"`   // in force; empty if there is no version
	Updated time.Time `json:"updated,omitzero"`    // when its content arrived
	Age     float64   `json:"age,omitempty"`       // seconds since
	Server  string    `json:"server,omitempty"`    // URI of the server that sent it
	Error   string    `json:"error,omitempty"`     // why no version, or not the latest one, is in force
	Refused string    `json:"refused,omitempty"`   // the latest version, if it is invalid
	Tried   time.Time `json:"refused_at,omitzero"` // when Refused arrived
	Patches []string  `json:"patches,omitempty"`   // of the overlay, that have changed the resource
}

// PatchStatus is a patch of the overlay, and its effect on the resources of the target: empty if all
// lists are empty.
type PatchStatus struct {
	Patch    string `json:"patch"`    // source and path, such as "file /etc/overlay.json: patches[0]"
	Resource string `json:"resource"` // kind of resource, as in the patch
	Name     string `json:"name"`     // of the resources, with wildcards
	Target   string `json:"target"`   // of the channels, with wildcards
	// The resources that it applies to, such as "Cluster c": those that it changes, those that have
	// the values of the patch already, and those that it does not fit, each with the reason.
	Changed   []string `json:"changed,omitempty"`
	Unchanged []string `json:"unchanged,omitempty"`
	Skipped   []string `json:"skipped,omitempty"`
}

// Effect describes the effect of the patch on the target.
func (p *PatchStatus) Effect() string {
	var effects []string
	for _, e := range []struct {
		verb      string
		resources []string
	}{{"changes", p.Changed}, {"skipped for", p.Skipped}, {"no change of", p.Unchanged}} {
		if e.resources != nil {
			effects = append(effects, e.verb+" "+list(e.resources))
		}
	}
	if effects == nil {
		return "matches no resource of the target"
	}
	return strings.Join(effects, "; ")
}

// ServerStatus is the relation of the XdsClient to an xDS server.
type ServerStatus struct {
	URI       string    `json:"uri"`
	InUse     bool      `json:"in_use"`    // there is a stream, or an attempt to open one
	Connected bool      `json:"connected"` // from the first stream until one ends without a response
	Since     time.Time `json:"since,omitzero"`
	Error     string    `json:"error,omitempty"` // of the latest stream that failed
	ErrorTime time.Time `json:"error_time,omitzero"`
	// EndsStreams is when the server was found to end each stream in order, although it is not known
	// that others displace them (Displaced). It is zero once a stream has been open for 3 minutes.
	EndsStreams time.Time `json:"ends_streams,omitzero"`
	// Displaced is when other xDS streams were found to displace the client's, as behind an agent that
	// accepts one stream: another XdsClient of the process has connected, or the server is Istio's agent. It
	// is zero once a stream has been open for 3 minutes.
	Displaced time.Time `json:"displaced,omitzero"`
	// Rejected is why resources of the latest responses were rejected that could not be parsed or have
	// another type, so that their names are not known. Other errors are in ResourceStatus.
	Rejected string `json:"rejected,omitempty"`
	// SourceError is why the latest resources of a source, such as a file, are not in use.
	SourceError string `json:"source_error,omitempty"`
}

// RolloutStatus is the reason why a channel uses stock, and the way back.
type RolloutStatus struct {
	Variable string `json:"variable"` // XDSLB_DISABLE or XDSLB_ENABLE
	Value    string `json:"value"`    // of the variable when the channel connected
	// Pattern is the deciding pattern of Value. Empty means that no pattern of XDSLB_ENABLE matched.
	Pattern string `json:"pattern,omitempty"`
	// Host and Position, from 0 to 100, are set if Pattern is a pattern of XDSLB_ENABLE that matched, and
	// the host is outside of its percentage. Host is empty if the system has no host name.
	Host     string  `json:"host,omitempty"`
	Position float64 `json:"position,omitempty"`
	// Malformed is set if Pattern is not a valid pattern, so the channel uses stock for safety.
	Malformed bool `json:"malformed,omitempty"`
	// Forward explains how to return the channel to xdslb.
	Forward string `json:"forward"`
	// Failed is the reason why the channel could not be handed to stock and uses xdslb.
	Failed string `json:"failed,omitempty"`
}

// Why returns the reason why the environment selects stock for the channel.
func (r *RolloutStatus) Why() string {
	switch {
	case r.Malformed:
		return malformed(r.Variable, r.Pattern)
	case r.Pattern == "":
		return fmt.Sprintf("no pattern of %s=%q matches", r.Variable, r.Value)
	case r.Position > 0:
		return fmt.Sprintf("host %q is at %.2f %%, outside of %q in %s", r.Host, r.Position, r.Pattern, r.Variable)
	}
	return fmt.Sprintf("%s has %q", r.Variable, r.Pattern)
}

// malformed returns the description of a malformed pattern.
func malformed(variable, pattern string) string {
	return fmt.Sprintf("%s has the malformed pattern %q", variable, pattern)
}

// StockDifference is a feature of a channel or of its resources that google.golang.org/grpc/xds,
// called stock here, rejects, lacks or handles differently: the effect of going back to it. The facts
// are those of grpc-go 1.85.
type StockDifference struct {
	// LosesRPCs is set if stock fails RPCs of the channel. Otherwise it serves them, but differently.
	LosesRPCs bool   `json:"loses_rpcs"`
	Feature   string `json:"feature"`
	// Where lists the users of the feature, such as `Cluster orders` and `route 3 "cart"`, at most 8,
	// and the number of further ones. It is empty for features of the channel.
	Where  []string `json:"where,omitempty"`
	Effect string   `json:"effect"`           // with stock
	Remedy string   `json:"remedy,omitempty"` // before going back
}

// String returns the difference as a sentence.
func (d *StockDifference) String() string {
	text := d.Feature
	if len(d.Where) > 0 {
		text += " (" + strings.Join(d.Where, "; ") + ")"
	}
	text += ": " + d.Effect
	if d.Remedy != "" {
		text += "; before going back, " + d.Remedy
	}
	return text
}

// ShareShift is a cluster whose endpoints get other shares of its RPCs from xdslb than from stock.
type ShareShift struct {
	Cluster string `json:"cluster"`
	// Causes lists the features that stock lacks: "endpoint weights", "zone-aware routing" and
	// others.
	Causes []string `json:"causes"`
	// Moved is the share of the RPCs that go to another endpoint, from 0 to 1.
	Moved float64 `json:"moved"`
	// Endpoints are those with the largest changes, at most 10.
	Endpoints []EndpointShares `json:"endpoints"`
}

// EndpointShares are the shares that an endpoint has of the RPCs to its cluster, with equally loaded
// endpoints.
type EndpointShares struct {
	Address string  `json:"address"`
	Stock   float64 `json:"stock"`
	Xdslb   float64 `json:"xdslb"`
}

// String returns the shift as text.
func (s *ShareShift) String() string {
	var list []string
	for _, e := range s.Endpoints {
		list = append(list, fmt.Sprintf("%s %s -> %s", e.Address, Percent(e.Stock), Percent(e.Xdslb)))
	}
	return fmt.Sprintf("%s of the RPCs go to other endpoints by %s; shares of grpc-go -> xdslb: %s",
		Percent(s.Moved), strings.Join(s.Causes, ", "), strings.Join(list, ", "))
}
