// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// State is what is known about a resource (A40, A88).
type State uint8

// The states of a resource. All but Requested and Acked come with an error. Nacked,
// DoesNotExist, ReceivedError and TimedOut come with or without an earlier version
// that is still in use.
const (
	Requested     State = iota // subscribed to, nothing heard yet
	Acked                      // the version in use is the latest
	Nacked                     // the latest version is invalid
	DoesNotExist               // deleted, or not sent in time
	ReceivedError              // the server sent an error in its place (xRFC TP3)
	TimedOut                   // not sent in time by a server that would have said so
	Unknown                    // there is nobody to ask: the bootstrap lacks the name's authority
)

// String returns A40's name for the state.
func (s State) String() string {
	return [...]string{"REQUESTED", "ACKED", "NACKED", "DOES_NOT_EXIST", "RECEIVED_ERROR", "TIMEOUT", "UNKNOWN"}[s]
}

// dnsType is the type of the entries that hold a LOGICAL_DNS cluster's
// addresses: not a resource, but cached, shared and watched as if it were.
const dnsType = resource.NumTypes

// entryKey names a resource. Names are canonical (see canonicalName), and hold
// the authority.
type entryKey struct {
	typ  resource.Type
	name string
}

// entry is a resource in the cache: the latest valid version, and what is wrong
// if anything. It exists while a dependency manager watches it and, after that,
// until it is safe to say that the servers know that it is not wanted any more
// (T-WATCH-3, see server.beginUnsubscribeLocked).
type entry struct {
	key       entryKey
	authority *authority // nil for DNS and for names of unknown authorities
	lookup    *lookup    // for DNS
	watchers  map[watcher]*dependency
	since     time.Time    // the first of watchers
	subs      int          // servers that are subscribed to it
	ttlTimer  timing.Timer // runs while value is valid for some time only

	state   State
	entered time.Time // when state became what it is
	value   any       // *resource.Listener etc. or *addresses; immutable; nil if there is none
	err     error     // nil in state Acked; why value is nil, or else why it is old
	erred   time.Time // when err was found, the last time
	// transient says that err is the connection's, not the resource's.
	transient bool
	// lapsed says that err is the end of value's time to live.
	lapsed bool

	from    *bootstrap.Server // that sent value
	sum     xxh3.Uint128
	version string
	updated arrival // of the message that brought value
	raw     []byte  // of value, as received; nil unless Client.bytes

	// What was last made of a Cluster, for other targets to share: a leaf of
	// leafInputs, and what routes name of clusterLeaves.
	leaf          *picker.Leaf
	made          leafInputs
	cluster       *picker.Cluster
	clusterLeaves []*picker.Leaf

	rejected *rejectedVersion // the latest, in state Nacked; nil in others

	assigned   *assignment // of a ClusterLoadAssignment with collections; else nil
	collection *collection // of a glob collection; nil before the first response
}

// rejectedVersion is an invalid version of a resource; what is wrong is the entry's
// err.
type rejectedVersion struct {
	sum     xxh3.Uint128
	from    *bootstrap.Server
	version string
	at      time.Time // when the message came

	// If only its collections cannot be had, what it is. See reviewLocked.
	value any
	raw   []byte
}

// acceptedVersion is a valid version of a resource, or the addresses of a DNS name.
type acceptedVersion struct {
	value   any
	sum     xxh3.Uint128
	version string
	from    *bootstrap.Server
	at      arrival // of the message
	raw     []byte  // see entry.raw
}

// arrival is when a message came; nil is never. Versions of resources and what is made
// of them share it, since there are many.
type arrival *time.Time

// later returns the later one of two arrivals.
func later(a, b arrival) arrival {
	if a == nil || b != nil && (*b).After(*a) {
		return b
	}
	return a
}

// when returns the time of an arrival.
func when(a arrival) time.Time {
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

// readiness says whether what depends on something can be put to use. It is
// ordered: what depends on several things is as ready as the least of them.
type readiness uint8

const (
	waiting     readiness = iota // nothing is known yet
	unreachable                  // nothing can be known at present
	ready                        // it is known, if only that there is nothing
)

// shouldReplace reports whether to replace something that is in use by something newer:
// only by what is complete, unless there is nothing to lose (T-WATCH-2, A88).
func shouldReplace(have, want readiness) bool {
	return want == ready || want == unreachable && have != ready
}

func (e *entry) readinessLocked() readiness {
	switch {
	case e.value != nil && e.assigned != nil:
		return readinessOfLocked(e.assigned.uses)
	case e.value != nil:
		return ready
	case e.err == nil:
		return waiting
	case e.transient:
		return unreachable
	}
	return ready
}

// unansweredLocked reports whether nothing has been heard of the resource, be it bad
// (A71). Such resources have timers and make servers fall back.
func (e *entry) unansweredLocked() bool { return e.value == nil && e.state == Requested }

// uncachedLocked reports whether servers that are reached may have what the cache lacks
// (A71): an answer, or a version in place of one whose time to live is over.
func (e *entry) uncachedLocked() bool { return e.unansweredLocked() || e.lapsed }

// acceptLocked makes v the resource's latest version.
func (c *Client) acceptLocked(e *entry, v acceptedVersion) {
	latest := e.latestLocked()
	same := latest == v.value && e.err == nil && e.from == v.from
	if same && e.state == Acked && v.raw == nil {
		e.version, e.sum = v.version, v.sum // as most of a response in state of the world
		return
	}
	if e.state == DoesNotExist && e.value != nil {
		c.logLocked(slog.LevelInfo, "xdslb: a resource that the server had deleted is back", fact{server: v.from, typ: e.key.typ, name: e.key.name, version: v.version})
	}
	if latest != v.value {
		e.updated = v.at
	}
	if v.raw != nil {
		e.raw = v.raw
	}
	e.enterLocked(Acked)
	e.err, e.erred, e.transient = nil, time.Time{}, false
	e.from, e.sum, e.version = v.from, v.sum, v.version
	if latest != v.value && !c.assignLocked(e, v.value) {
		e.value = v.value
	}
	c.settleLocked(e)
	if !same {
		server := ""
		if v.from != nil {
			server = v.from.URI
		}
		e.journalLocked(eventlog.Accepted, v.version, server, nil)
		c.changedLocked(e)
	}
}

// failure is why the latest version of a resource cannot be had.
type failure struct {
	state State
	err   error
	// transient says that err is the connection's, not the resource's; drop that
	// what is in use must not be used any more (A88); lapsed that its time to live is over.
	transient, drop, lapsed bool

	// For the journal.
	kind    eventlog.Kind
	version string
	from    *bootstrap.Server // nil if it is no server's news
}

// failLocked notes that the latest version of a resource cannot be had. What is in
// use stays in use unless f.drop is set (A88).
func (c *Client) failLocked(e *entry, f failure) {
	dropped := f.drop && e.value != nil
	if dropped {
		e.resetLocked()
	}
	news := dropped || e.err == nil || e.err.Error() != f.err.Error() || e.transient != f.transient
	e.enterLocked(f.state)
	e.err, e.erred, e.transient, e.lapsed = f.err, time.Now(), f.transient, f.lapsed
	if news {
		server := ""
		if f.from != nil {
			server = f.from.URI
		}
		e.journalLocked(f.kind, f.version, server, f.err)
		c.changedLocked(e)
	}
}

// resetLocked forgets everything that is known of a resource.
func (e *entry) resetLocked() {
	e.enterLocked(Requested)
	e.ttlTimer.StopLocked()
	if e.assigned != nil {
		e.assigned.c.unassignLocked(e)
	}
	e.collection.stopLocked()
	e.collection = nil
	e.value, e.err, e.erred, e.transient = nil, nil, time.Time{}, false
	e.from, e.version, e.sum, e.raw = nil, "", xxh3.Uint128{}, nil
}

// rejectLocked notes that the latest version of a resource is invalid (A46).
func (c *Client) rejectLocked(e *entry, err error, v rejectedVersion) {
	c.failLocked(e, failure{state: Nacked, err: err, drop: v.from.FailOnDataErrors, kind: eventlog.Rejected, version: v.version, from: v.from})
	e.rejected = &v
}

// unreachableLocked notes that no server can be asked for a resource of which
// nothing has been heard. The state stays Requested.
func (c *Client) unreachableLocked(e *entry, err error) {
	e.erred = time.Now()
	if e.err == nil || e.err.Error() != err.Error() {
		e.err, e.transient = err, true
		c.changedLocked(e)
	}
}

// waitingLocked says for what a resource is waited that nothing has been heard of.
func (e *entry) waitingLocked() error {
	since := time.Since(e.since).Round(time.Millisecond)
	switch {
	case e.err != nil:
		return e.err
	case e.authority == nil:
		return fmt.Errorf("xds: waiting for DNS name %q for %v", e.key.name, since)
	}
	s, state := e.authority.lastLocked(), "is not connected yet"
	if s.up {
		state = "is connected but has not sent it"
	}
	if was := s.relation.status; was.Err != nil && was.ErrTime.After(e.since) { // again and again, maybe
		state += fmt.Sprintf(", and last failed %v ago: %v", time.Since(was.ErrTime).Round(time.Millisecond), was.Err)
	}
	return fmt.Errorf("xds: waiting for %v resource %q for %v: xDS server %q %s", e.key.typ, e.key.name, since, s.cfg.URI, state)
}

// entryLocked returns the entry of a resource, making one if there is none.
func (c *Client) entryLocked(typ resource.Type, name string) *entry {
	if typ != dnsType {
		name = canonicalName(name)
	}
	key := entryKey{typ, name}
	e := c.entries[key]
	if e == nil {
		e = &entry{key: key, watchers: map[watcher]*dependency{}}
		c.entries[key] = e
	}
	return e
}

// maxName is how long the name of a resource may be, in bytes. Names are in errors of RPCs.
const maxName = 4 << 10

// watchLocked adds a watcher of e, which knows it as d.
func (c *Client) watchLocked(e *entry, w watcher, d *dependency) {
	if len(e.watchers) == 0 && e.latestLocked() == nil {
		e.resetLocked() // what was wrong then is no news
	}
	if len(e.watchers) == 0 {
		e.since = time.Now()
	}
	e.watchers[w] = d
	if n := len(e.key.name); n > maxName {
		c.failLocked(e, failure{state: Unknown, err: fmt.Errorf("xds: a name of %d bytes, want %d at most: %q", n, maxName, eventlog.Cut(e.key.name)), kind: eventlog.Missing})
		return
	}
	if e.key.typ == dnsType {
		if e.lookup == nil {
			e.lookup = c.resolveLocked(e)
		}
		return
	}
	if e.authority == nil {
		a, err := c.authorityLocked(e.key.name)
		if err != nil {
			c.failLocked(e, failure{state: Unknown, err: err, kind: eventlog.Missing})
			return
		}
		e.authority = a
	}
	e.authority.subscribeLocked(e)
	c.settleLocked(e)
}

// unwatchLocked removes a watcher, and with the last one the subscription.
func (c *Client) unwatchLocked(e *entry, w watcher) {
	delete(e.watchers, w)
	if len(e.watchers) > 0 {
		return
	}
	c.leaveCollectionsLocked(e)
	if e.authority != nil {
		for _, s := range e.authority.servers {
			s.unsubscribeLocked(e)
		}
	}
	c.forgetLocked(e)
}

// forgetLocked removes an entry that nobody needs and that no server would send.
func (c *Client) forgetLocked(e *entry) {
	if len(e.watchers) > 0 || e.subs > 0 {
		return
	}
	e.stopLocked()
	delete(c.entries, e.key)
	if e.authority != nil {
		delete(e.authority.entries, e)
	}
}

// stopLocked ends what runs on behalf of the entry.
func (e *entry) stopLocked() {
	e.ttlTimer.StopLocked()
	e.collection.stopLocked()
	if e.lookup != nil {
		e.lookup.stopLocked()
		e.lookup = nil
	}
}
