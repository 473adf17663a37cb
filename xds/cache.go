// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"iter"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// State is what is known about a resource (A40, A88).
type State uint8

// The states of a resource. All but Requested and Acked come with an error,
// and with or without an earlier version that is still in use.
const (
	Requested     State = iota // subscribed to, nothing heard yet
	Acked                      // the version in use is the latest
	Nacked                     // the latest version is invalid
	DoesNotExist               // deleted, or not sent in time
	ReceivedError              // the server sent an error in its place (xRFC TP3)
	TimedOut                   // not sent in time by a server that would have said so
)

// String returns A40's name for the state.
func (s State) String() string {
	return [...]string{"REQUESTED", "ACKED", "NACKED", "DOES_NOT_EXIST", "RECEIVED_ERROR", "TIMEOUT"}[s]
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
// if anything. It exists while a view watches it and, after that, until it is
// safe to say that the servers know that it is not wanted any more (T-WATCH-3,
// see server.leave).
type entry struct {
	key       entryKey
	authority *authority // nil for DNS and for names of unknown authorities
	lookup    *lookup    // for DNS
	views     map[*view]struct{}
	subs      int // servers that are subscribed to it

	state State
	value any   // *resource.Listener etc. or *addresses; immutable; nil if there is none
	err   error // nil in state Acked; why value is nil, or else why it is old
	// transient says that err is the connection's, not the resource's.
	transient bool

	from    *bootstrap.Server // that sent value
	sum     xxh3.Uint128
	version string
	updated time.Time

	// What views last made of a Cluster, for the next view to share: as a leaf,
	// and as what routes name.
	leaf    *picker.Leaf
	made    madeOf
	cluster *picker.Cluster
	parts   []*picker.Leaf

	rejected xxh3.Uint128      // the latest invalid version, in state Nacked
	rejector *bootstrap.Server // that sent it
}

// readiness says whether what depends on something can be put to use. It is
// ordered: what depends on several things is as ready as the least of them.
type readiness uint8

const (
	waiting     readiness = iota // nothing is known yet
	unreachable                  // nothing can be known at present
	ready                        // it is known, if only that there is nothing
)

// adopt reports whether to replace something that is in use by something newer:
// only by what is complete, unless there is nothing to lose (T-WATCH-2, A88).
func adopt(have, want readiness) bool {
	return want == ready || want == unreachable && have != ready
}

func (e *entry) readiness() readiness {
	switch {
	case e.value != nil:
		return ready
	case e.err == nil:
		return waiting
	case e.transient:
		return unreachable
	}
	return ready
}

// uncached reports whether nothing has been heard of the resource, be it bad
// (A71). Such resources have timers and make servers fall back.
func (e *entry) uncached() bool { return e.value == nil && e.state == Requested }

// accept makes value the resource's latest version.
func (c *Client) accept(e *entry, value any, sum xxh3.Uint128, version string, from *bootstrap.Server) {
	same := e.value == value && e.err == nil && e.from == from
	if e.state == DoesNotExist && e.value != nil {
		c.infof("%v resource %q, which the server had deleted, is back", e.key.typ, e.key.name)
	}
	if e.value != value {
		e.updated = time.Now()
	}
	e.state, e.value, e.err, e.transient = Acked, value, nil, false
	e.from, e.sum, e.version = from, sum, version
	if !same {
		c.changed(e)
	}
}

// fail notes that the latest version of a resource cannot be had. What is in
// use stays in use unless drop is set (A88).
func (c *Client) fail(e *entry, state State, err error, transient, drop bool) {
	dropped := drop && e.value != nil
	if dropped {
		e.value, e.from, e.version, e.sum = nil, nil, "", xxh3.Uint128{}
	}
	news := dropped || e.err == nil || e.err.Error() != err.Error() || e.transient != transient
	e.state, e.err, e.transient = state, err, transient
	if news {
		c.changed(e)
	}
}

// reject notes that the latest version of a resource is invalid (A46).
func (c *Client) reject(e *entry, err error, sum xxh3.Uint128, from *bootstrap.Server) {
	e.rejected, e.rejector = sum, from
	c.fail(e, Nacked, err, false, from.FailOnDataErrors)
}

// unreachable notes that no server can be asked for a resource of which
// nothing has been heard. The state stays Requested.
func (c *Client) unreachable(e *entry, err error) {
	if e.err == nil || e.err.Error() != err.Error() {
		e.err, e.transient = err, true
		c.changed(e)
	}
}

// changed tells the views that watch e.
func (c *Client) changed(e *entry) {
	for v := range e.views {
		settled := v.poke()
		if c.touched != nil {
			c.touched[v] = settled
		}
	}
}

// entry returns the entry of a resource, making one if there is none.
func (c *Client) entry(typ resource.Type, name string) *entry {
	if typ != dnsType {
		name = canonicalName(name)
	}
	key := entryKey{typ, name}
	e := c.entries[key]
	if e == nil {
		e = &entry{key: key, views: map[*view]struct{}{}}
		c.entries[key] = e
	}
	return e
}

// watch adds a view to those that need e.
func (c *Client) watch(e *entry, v *view) {
	if len(e.views) == 0 && e.value == nil {
		e.state, e.err, e.transient = Requested, nil, false // what was wrong then is no news
	}
	e.views[v] = struct{}{}
	if e.key.typ == dnsType {
		if e.lookup == nil {
			e.lookup = c.resolve(e)
		}
		return
	}
	if e.authority == nil {
		a, err := c.authority(e.key.name)
		if err != nil {
			c.fail(e, DoesNotExist, err, false, false)
			return
		}
		e.authority = a
	}
	e.authority.subscribe(e)
}

// unwatch removes a view, and with the last one the subscription.
func (c *Client) unwatch(e *entry, v *view) {
	delete(e.views, v)
	if len(e.views) > 0 {
		return
	}
	if e.authority != nil {
		for _, s := range e.authority.servers {
			s.unsubscribe(e)
		}
	}
	c.forget(e)
}

// forget removes an entry that nobody needs and that no server would send.
func (c *Client) forget(e *entry) {
	if len(e.views) > 0 || e.subs > 0 {
		return
	}
	e.stop()
	delete(c.entries, e.key)
	if e.authority != nil {
		delete(e.authority.entries, e)
	}
}

// stop ends what runs on behalf of the entry.
func (e *entry) stop() {
	if e.lookup != nil {
		e.lookup.cancel()
		e.lookup = nil
	}
}

// ResourceStatus describes a resource in the cache, for debugging and CSDS.
type ResourceStatus struct {
	Type    resource.Type
	Name    string
	State   State
	Version string    // of the version in use; empty if there is none
	Updated time.Time // when the version in use arrived
	Server  string    // URI of the server that sent it
	Err     error     // what is wrong, nil if nothing is
}

// Resources returns what is known about every resource that is in use, by type
// and name. It takes a copy first, so the loop may take its time.
func (c *Client) Resources() iter.Seq[ResourceStatus] {
	c.mu.Lock()
	defer c.unlock()
	all := make([]ResourceStatus, 0, len(c.entries))
	for key, e := range c.entries {
		if key.typ == dnsType || len(e.views) == 0 {
			continue
		}
		s := ResourceStatus{Type: key.typ, Name: key.name, State: e.state, Err: e.err}
		if e.value != nil {
			s.Version, s.Updated, s.Server = e.version, e.updated, e.from.URI
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b ResourceStatus) int {
		return compareKeys(entryKey{a.Type, a.Name}, entryKey{b.Type, b.Name})
	})
	return slices.Values(all)
}
