// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// Clients returns the process's clients, oldest first: those in use, and those that
// linger. They belong to whoever acquired them, so the caller only looks.
func Clients() []*Client {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	var all []*Client
	for _, clients := range registry.clients {
		all = append(all, clients...)
	}
	slices.SortFunc(all, func(a, b *Client) int { return cmp.Compare(a.number, b.number) })
	return all
}

// Bootstrap returns what the client was acquired with.
func (c *Client) Bootstrap() *bootstrap.Config { return c.cfg }

// NodeID returns the node id, by which control planes know the client.
func (c *Client) NodeID() string { return c.node.GetId() }

// Node returns a copy of the node that requests carry.
func (c *Client) Node() *corev3.Node { return proto.CloneOf(c.node) }

// Target is what a Watch follows.
type Target struct{ Listener, Authority string }

// Targets returns the targets that are watched, or were until a moment ago
// (Options.Linger), in order.
func (c *Client) Targets() []Target {
	c.mu.Lock()
	all := make([]Target, 0, len(c.managers))
	for key := range c.managers {
		all = append(all, Target{key.listener, key.authority})
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Listener, b.Listener), cmp.Compare(a.Authority, b.Authority))
	})
	return all
}

// OldStyle is the Authority of resources whose names are not xdstp names, as A78 has
// it.
const OldStyle = "#old"

// ResourceStatus is what is known about a resource (A40).
type ResourceStatus struct {
	Type resource.Type
	Name string
	// Authority is that of an xdstp name, which may be empty, or else OldStyle.
	Authority string

	State State
	Since time.Time // when State became what it is
	// Err says what is wrong: why there is no version in use, or why it is not the
	// latest. It is nil if nothing is.
	Err     error
	ErrTime time.Time // when that was found, the last time

	// Watched says that a target uses the resource. Others stay until the servers
	// are known to have heard that it is not wanted any more.
	Watched bool
	Asked   time.Time // since when it is watched without a break

	// The version in use; empty if there is none.
	Version string
	Updated time.Time // when its content arrived; a Version without another content is no news
	Server  string    // URI of the server that sent it
	// Raw is the version in use as it was received; nil without KeepBytes. It must
	// not be changed.
	Raw *anypb.Any

	// Members is how many members of a glob collection (LEDS) there are; each has a
	// ResourceStatus of its own.
	Members int

	// Rejected is the latest version if that is invalid (State is Nacked), and the
	// zero value otherwise: A40's error_state.
	Rejected RejectedVersion
}

// RejectedVersion is an invalid version of a resource.
type RejectedVersion struct {
	Version string
	Time    time.Time // when it arrived, the last time that it did
	Server  string    // URI of the server that sent it
	Err     error     // what is wrong with it
}

// Resources returns what is known about every resource, by type and name. It takes a
// copy first, so the loop may take its time.
func (c *Client) Resources() iter.Seq[ResourceStatus] {
	c.mu.Lock()
	all := statusesLocked(maps.Values(c.entries), len(c.entries))
	c.mu.Unlock()
	return inOrder(all)
}

// A ResourceKind is what resources have in common for those who count them.
type ResourceKind struct {
	Type      resource.Type
	Authority string
	State     State
	InUse     bool // there is a version in use
}

// Kind returns the resource's kind.
func (s *ResourceStatus) Kind() ResourceKind {
	return ResourceKind{s.Type, s.Authority, s.State, !s.Updated.IsZero()}
}

// CountResources returns how many resources there are of each kind. The caller does not
// change the map. It takes O(resources) if something has happened to the client since the
// last time, so that many may ask: each target reports what its client has (A78).
func (c *Client) CountResources() map[ResourceKind]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted == nil {
		c.counted = map[ResourceKind]int{}
		for _, s := range statusesLocked(maps.Values(c.entries), len(c.entries)) {
			c.counted[s.Kind()]++
		}
	}
	return c.counted
}

// TargetResources returns what is known about the resources that a target depends on,
// like Resources. It is empty if the target is not watched.
func (c *Client) TargetResources(listener, authority string) iter.Seq[ResourceStatus] {
	c.mu.Lock()
	var all []ResourceStatus
	if m := c.managers[targetKey{listener, authority}]; m != nil {
		all = statusesLocked(m.depsLocked(), 2+2*len(m.clusters))
	}
	c.mu.Unlock()
	return inOrder(all)
}

// statusesLocked describes about n entries, but for those of DNS names.
func statusesLocked(entries iter.Seq[*entry], n int) []ResourceStatus {
	all := make([]ResourceStatus, 0, n)
	for e := range entries {
		if e.key.typ != dnsType {
			all = append(all, e.statusLocked())
			all = e.collection.statusesLocked(e, all)
		}
	}
	return all
}

// inOrder returns statuses by type and name.
func inOrder(all []ResourceStatus) iter.Seq[ResourceStatus] {
	slices.SortFunc(all, func(a, b ResourceStatus) int {
		return compareKeys(entryKey{a.Type, a.Name}, entryKey{b.Type, b.Name})
	})
	return slices.Values(all)
}

// statusLocked describes the entry.
func (e *entry) statusLocked() ResourceStatus {
	s := ResourceStatus{
		Type:      e.key.typ,
		Name:      e.key.name,
		Authority: OldStyle,
		State:     e.state,
		Since:     e.entered,
		Err:       e.err,
		ErrTime:   e.erred,
	}
	if a := authorityOf(e.key.name); a.xdstp {
		s.Authority = a.name
	}
	if s.Watched = len(e.watchers) > 0; s.Watched {
		s.Asked = e.since
	}
	if e.collection != nil {
		s.Members = len(e.collection.members)
	}
	if e.latestLocked() != nil {
		s.Version, s.Updated, s.Server = e.version, when(e.updated), e.from.URI
		if e.raw != nil {
			s.Raw = &anypb.Any{TypeUrl: e.key.typ.URL(), Value: e.raw}
		}
	}
	if r := e.rejected; r != nil {
		s.Rejected = RejectedVersion{Version: r.version, Time: r.at, Server: r.from.URI, Err: e.err}
	}
	return s
}

// ServerStatus is how a client gets on with an xDS server. Counts are since the
// client was started.
type ServerStatus struct {
	URI string
	// Description is the URI with the types of credentials and the features: two
	// servers of a bootstrap may differ in these only.
	Description string
	// Key is [bootstrap.Server.Key], by which servers differ that have the same
	// Description. It is not for logs.
	Key string
	// Variant is the RPC of ADS by which the client speaks with the server:
	// StreamAggregatedResources (state of the world), or DeltaAggregatedResources.
	Variant string
	// InUse says that the client has a stream to the server or tries to have one.
	// Servers further down a chain are in use while those before them cannot be
	// reached (A71).
	InUse bool
	// Connected is A78's grpc.xds_client.connected: true from the first stream on,
	// false once the server cannot be reached or a stream has ended without a
	// response, and true again with the first response after that. A stream that
	// had a response may end without harm (A57): the next one follows within a second,
	// or Connected is false. With Options.ReconnectSpread it is false from the end on.
	Connected bool
	Since     time.Time // when Connected became what it is; zero if nothing has happened yet

	Err     error     // of the latest stream that failed or could not be opened; nil if none has
	ErrTime time.Time // when that was

	Streams uint64 // opened
	// Failures is A78's grpc.xds_client.server_failure: how often Connected ended,
	// or the first stream could not be opened.
	Failures uint64

	Types [resource.NumTypes]TypeStatus // by resource.Type
}

// TypeStatus counts what a server has sent, and was sent, of one resource type.
type TypeStatus struct {
	Messages uint64 // responses
	Bytes    uint64 // of responses, as protobuf
	// Valid and Invalid are A78's grpc.xds_client.resource_updates_valid and
	// _invalid: resources, including those that have not changed, without those
	// that nobody asked for.
	Valid, Invalid uint64
	Requests       uint64 // including ACKs and NACKs
	NACKs          uint64
}

// Servers returns the servers of the bootstrap that the client has turned to, in the
// bootstrap's order; those of authorities follow, by the authorities' names.
func (c *Client) Servers() []ServerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []ServerStatus
	for _, cfg := range c.order {
		if r := c.relations[cfg.Key()]; r != nil {
			s := r.status
			s.InUse = c.servers[cfg.Key()] != nil
			all = append(all, s)
		}
	}
	return all
}

// relation is what a client remembers about a server for as long as the client
// lives, whether or not the server is in use. Guarded by Client.mu.
//
//	        streamOpened                     failed
//	new ─────────────────────► connected ──────────────► not connected
//	 │                             ▲                          │   ▲
//	 │            failed           └───────responded──────────┘   │
//	 └────────────────────────────────────────────────────────────┘
type relation struct {
	status ServerStatus
	gone   bool // not connected, and no failure yet: see away
}

// relationLocked returns the relation to a server, making it if there is none.
func (c *Client) relationLocked(cfg *bootstrap.Server) *relation {
	r := c.relations[cfg.Key()]
	if r == nil {
		r = &relation{status: ServerStatus{URI: cfg.URI, Description: cfg.String(), Key: cfg.Key()}}
		c.relations[cfg.Key()] = r
	}
	return r
}

// streamOpened notes that there is a stream.
func (r *relation) streamOpened() {
	r.status.Streams++
	if r.status.Since.IsZero() {
		r.setConnected(true)
	}
}

// responded notes the first response of a stream.
func (r *relation) responded() {
	if !r.status.Connected {
		r.setConnected(true)
	}
}

// failed notes that the server cannot be reached.
func (r *relation) failed() {
	if r.status.Connected || r.gone || r.status.Since.IsZero() {
		r.status.Failures++
		r.setConnected(false)
	}
}

// away notes that a stream that had a response has ended, and the next one may be long to
// come.
func (r *relation) away() {
	if r.status.Connected {
		r.setConnected(false)
		r.gone = true
	}
}

func (r *relation) setConnected(connected bool) {
	r.gone = false
	r.status.Connected, r.status.Since = connected, time.Now()
}

// ended notes what ended a stream or kept one from opening, and reports whether that
// is news.
func (r *relation) ended(err error) (news bool) {
	news = r.status.Connected || r.status.Err == nil || r.status.Err.Error() != err.Error()
	r.status.Err, r.status.ErrTime = err, time.Now()
	return news
}
