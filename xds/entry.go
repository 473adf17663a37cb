// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// State is the state of a resource (A40, A88).
type State uint8

// The states of a resource. All but Requested and Acked come with an error. Nacked,
// DoesNotExist, ReceivedError and TimedOut come with or without an earlier version
// that is still in use.
const (
	Requested     State = iota // subscribed to, nothing received yet
	Acked                      // the version in use is the latest
	Nacked                     // the latest version is invalid
	DoesNotExist               // deleted, or not sent in time
	ReceivedError              // the server sent an error in its place (xRFC TP3)
	TimedOut                   // not sent in time by a server that reports missing resources
	Unknown                    // no server to ask: the bootstrap lacks the authority of the name
)

// String returns A40's name for the state.
func (s State) String() string {
	return [...]string{"REQUESTED", "ACKED", "NACKED", "DOES_NOT_EXIST", "RECEIVED_ERROR", "TIMEOUT", "UNKNOWN"}[s]
}

// entry is a cached resource: the latest valid version, and the error if there is one. It
// exists while it is watched, and after that until the servers are known to have processed
// the unsubscription (T-WATCH-3, see subscriptions.beginUnsubscribeLocked).
type entry struct {
	key      entryKey
	source   source   // nil if the entry has no source
	names    dnsNames // of dnsType
	watchers map[watcher]any
	since    time.Time    // when the first of watchers was added
	subs     int          // number of servers that are subscribed to it
	ttlTimer timing.Timer // runs while value has a time to live

	state   State
	entered time.Time // when state last changed
	value   any       // *resource.Listener etc. or *addresses; immutable; nil without a version
	err     error     // nil in state Acked; otherwise why value is nil or outdated
	erred   time.Time // when err last occurred
	// transient means that err concerns the connection, not the resource.
	transient bool
	// lapsed means that err is the end of the time to live of value.
	lapsed bool

	from    *bootstrap.Server // that sent value
	sum     xxh3.Uint128
	version string
	updated receiveTime // of the message with value
	raw     []byte      // of value, as received; see core.keepsLocked

	made derived

	rejected *rejectedVersion // the latest, in state Nacked; otherwise nil

	variants map[variantKey]*entry // for other targets, see patched.go
}

// unavailable is the condition that a server does not have the latest version of the resource.
func (e *entry) unavailable() condition { return condition{kind: "unavailable", of: e} }

// derived holds the values that were made last of a resource, which targets share.
type derived struct {
	origin *origin // of the endpoints of a local cluster

	// Of a Cluster:
	leaf    *picker.Leaf
	inputs  leafInputs // of leaf
	cluster *picker.Cluster
	leaves  []*picker.Leaf // of cluster
}

// origin is an origin and the content that it was made of. All leaves of a Client share the origin of
// a local cluster.
type origin struct {
	of    *resource.Endpoints
	err   string
	value *picker.Origin
}

// leafInputs are the inputs of newLeaf. Equal inputs give equal values.
type leafInputs struct {
	cluster   *resource.Cluster
	server    string         // key of the server to report load to, if any
	endpoints any            // *resource.Endpoints or *addresses, or nil
	origin    *picker.Origin // nil unless the policy requires it
	halvings  uint8          // of the largest hash ring or table
	note      string
}

// rejectedVersion is an invalid version of a resource. entry.err is the error.
type rejectedVersion struct {
	sum     xxh3.Uint128
	from    *bootstrap.Server
	version string
	at      time.Time // when the message arrived
}

// acceptedVersion is a valid version of a resource, or the addresses of a DNS name.
type acceptedVersion struct {
	value   any
	sum     xxh3.Uint128
	version string
	from    *bootstrap.Server
	at      receiveTime // of the message
	raw     []byte      // see entry.raw
}

// receiveTime is the time at which a message arrived, nil for never. The many resources of a message
// and the values made of them share it.
type receiveTime *time.Time

// latest returns the later of two times.
func latest(a, b receiveTime) receiveTime {
	if a == nil || b != nil && (*b).After(*a) {
		return b
	}
	return a
}

// timeOrZero returns the time, or the zero time for nil.
func timeOrZero(a receiveTime) time.Time {
	if a == nil {
		return time.Time{}
	}
	return *a
}

// enterLocked changes the state.
func (e *entry) enterLocked(s State) {
	if e.state != s || e.entered.IsZero() {
		e.state, e.entered = s, time.Now()
	}
	if s != Nacked {
		e.rejected = nil
	}
	e.lapsed = false
}

// readiness reports whether a resource, or a value made of several, can be used. It is ordered: a
// value is as ready as the least ready of the resources that it is made of.
type readiness uint8

const (
	waiting     readiness = iota // not known yet
	interrupted                  // not known yet, since the servers became unreachable during an update
	unavailable                  // temporarily unavailable
	ready                        // known, possibly to be missing
)

// replaces reports whether a value of this readiness replaces a value in use, which has the readiness
// have. The errors of new clusters are confined to them (A74), so they do not delay other changes. An
// update that its servers have not sent completely waits for the rest, unless the value in use has
// not been received completely either (T-WATCH-2, A57).
func (r readiness) replaces(have readiness) bool {
	return r >= unavailable || r == interrupted && have <= interrupted
}

// readinessLocked returns the readiness of a resource that another one names. by is the origin of
// the other one.
func (e *entry) readinessLocked(by source) readiness {
	switch {
	case e.value != nil:
		return ready
	case e.err == nil:
		return waiting
	case !e.transient:
		return ready
	case e.unansweredLocked() && e.originLocked() == by:
		return interrupted
	}
	return unavailable
}

// originLocked returns the source of a resource, regardless of variants: the authority of its
// servers, or DNS.
func (e *entry) originLocked() source {
	for p := e.patchedLocked(); p != nil; p = e.patchedLocked() {
		e = p.base
	}
	return e.source
}

// unansweredLocked reports whether nothing has been received for the resource, not even an
// error (A71). Such resources have timers and make servers fall back.
func (e *entry) unansweredLocked() bool { return e.value == nil && e.state == Requested }

// uncachedLocked reports whether a server may have a version that the cache lacks (A71): the
// first version, or a replacement for an expired version.
func (e *entry) uncachedLocked() bool { return e.unansweredLocked() || e.lapsed }

// watchedLocked reports whether the entry has watchers.
func (e *entry) watchedLocked() bool { return len(e.watchers) > 0 }

// waitingLocked describes what an entry without a version waits for.
func (e *entry) waitingLocked() error {
	if e.err != nil {
		return e.err
	}
	return e.source.waitingLocked(e)
}

// targetsLocked visits the targets that depend on e.
func (e *entry) targetsLocked(visit func(target)) {
	for w := range e.watchers {
		w.targetsLocked(visit)
	}
}

// recordLocked records an event about the entry in the journals of the targets that depend on
// it. from is the server that reported it, or nil.
func (e *entry) recordLocked(kind eventlog.Kind, version string, from *bootstrap.Server, err error) {
	ev := newEvent(kind, from, err)
	ev.Type, ev.Resource, ev.Version = eventType(e.key.typ), eventlog.Cut(e.key.name), eventlog.Cut(version)
	recordLocked(ev, slices.Values([]*entry{e}))
}
