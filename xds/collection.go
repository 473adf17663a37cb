// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"

	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file is about glob collections (xRFC TP1), which only the incremental variant has:
// one subscription, to xdstp://authority/type/path/*, brings many resources, which come, go
// and are rejected one by one.
//
// The entry is the collection's. A member that is invalid leaves the last good version of it
// and all others in use, and makes the state Nacked. A server says of a collection without
// members that the collection is gone. That alone takes no member away, as no deletion of
// endpoints does.

// collection is the members that the entry of a glob has: those of one server.
type collection struct {
	members map[string]*member // by name
	list    resource.MemberList
	invalid int // members whose latest version is

	// lapse runs while there are members whose time is over, and lapsed how many.
	lapse  timing.Timer
	lapsed int
}

// member is a resource of a collection.
type member struct {
	valid   bool // there is a valid version; what follows is about that
	sum     xxh3.Uint128
	version string
	raw     []byte       // nil unless Client.bytes
	ttl     timing.Timer // runs while it is valid for some time only

	rejected *rejectedVersion // the latest version, if it is invalid
	err      error            // what is wrong with it
}

// stopLocked stops the timers; col may be nil.
func (col *collection) stopLocked() {
	if col == nil {
		return
	}
	for _, m := range col.members {
		m.ttl.StopLocked()
	}
	col.lapse.StopLocked()
	col.lapsed = 0
}

// memberLocked returns a member, making it if there is none.
func (col *collection) memberLocked(name string) *member {
	m := col.members[name]
	if m == nil {
		m = &member{}
		col.members[name] = m
	}
	return m
}

// removeLocked takes a member away.
func (col *collection) removeLocked(name string) {
	m := col.members[name]
	if m == nil {
		return
	}
	m.ttl.StopLocked()
	col.settleLocked(m)
	delete(col.members, name)
	col.list.Remove(name)
}

// settleLocked notes that nothing is wrong with a member any more.
func (col *collection) settleLocked(m *member) {
	if m.rejected != nil {
		m.rejected, m.err = nil, nil
		col.invalid--
	}
}

// clearLocked takes all members away.
func (col *collection) clearLocked() {
	col.stopLocked()
	col.members, col.invalid = map[string]*member{}, 0
	col.list.Clear()
}

// faultLocked returns the first member that is invalid, and what is wrong in all; nil if
// none is. O(members) if any is.
func (col *collection) faultLocked() (*member, error) {
	if col.invalid == 0 {
		return nil, nil
	}
	first := ""
	for name, m := range col.members {
		if m.rejected != nil && (first == "" || name < first) {
			first = name
		}
	}
	m := col.members[first]
	if col.invalid > 1 {
		return m, fmt.Errorf("%w; and %d other members of the collection are invalid", m.err, col.invalid-1)
	}
	return m, m.err
}

// emptyLocked reports whether e is a collection of which no member is known.
func (e *entry) emptyLocked() bool {
	return e.key.typ == resource.LbEndpointType && (e.collection == nil || len(e.collection.members) == 0)
}

// emptyLocked notes that the server has the collection, without members (xRFC TP1).
func (s *server) emptyLocked(sub *subscription) {
	s.beginLocked(sub, s.types[resource.LbEndpointType].round)
	s.commitLocked(sub, sub.entry.version, sub.entry.updated)
}

// memberVersionsLocked returns the versions of the members of a collection, for the client to
// claim; nil if it cannot. It claims what the server has sent, whatever is wrong with some: what a
// server does not know the client to have it would not take away.
func (s *server) memberVersionsLocked(sub *subscription) map[string]string {
	e := sub.entry
	if e.value == nil || e.collection == nil || e.from != s.cfg || sub.restarts {
		return nil
	}
	versions := map[string]string{}
	for name, m := range e.collection.members {
		if m.valid && m.version != "" {
			versions[name] = m.version
		}
	}
	return versions
}

// checkCollections returns what is wrong with a resource that was decoded just now: what
// decoding found, or that collections cannot be had from the servers that they belong to.
func (c *Client) checkCollections(it *item) error {
	if e, ok := it.value.(*resource.Endpoints); it.err != nil || !ok || len(e.Collections) == 0 {
		return it.err
	}
	c.mu.Lock()
	defer c.unlock()
	return c.checkCollectionsLocked(it.value)
}

// checkCollectionsLocked returns why the collections of a resource cannot be had.
func (c *Client) checkCollectionsLocked(v any) error {
	e, ok := v.(*resource.Endpoints)
	if !ok {
		return nil
	}
	for i := range e.Collections {
		a, err := c.authorityLocked(canonicalName(e.Collections[i].Name))
		if err != nil {
			return e.Collections[i].Refuse(e.Name, "must be of an authority that the bootstrap has")
		}
		v := c.wantedVariant(a.chain[0]) // only who asks a server finds out what it has now
		if s := c.servers[a.chain[0].Key()]; s != nil && s.up {
			v = s.variant
		}
		if !v.collections() {
			return e.Collections[i].Refuse(e.Name, "must not be a glob collection, for its xDS server is spoken to in state of the world, and glob collections need incremental ADS, for which the server feature xdslb.delta_ads asks")
		}
	}
	return nil
}

// reviewLocked is for when a stream has ended, and the next one is or may be of the other variant:
// assignments that were refused since their collections could not be had are accepted if they may
// be had now. Whoever sent them, who may be another server, need not send them again.
func (c *Client) reviewLocked() {
	for _, e := range c.entries {
		if r := e.rejected; r != nil && r.value != nil && c.checkCollectionsLocked(r.value) == nil {
			c.acceptLocked(e, acceptedVersion{r.value, r.sum, r.version, r.from, &r.at, r.raw})
		}
	}
}

// refuseGlobsLocked is for collections that were wanted when the server spoke the
// incremental variant, and that it cannot be asked for any more. What is in use stays.
func (s *server) refuseGlobsLocked() {
	refused := 0
	for _, sub := range s.types[resource.LbEndpointType].subs {
		if e := sub.entry; len(e.watchers) == 0 {
			s.dropLocked(e)
		} else {
			refused++
			err := fmt.Errorf("xds: %v collection %q: xDS server %q is spoken to in state of the world, and glob collections need incremental ADS", e.key.typ, e.key.name, s.cfg.URI)
			// transient, since another stream may have it: until then what is in use is not
			// replaced by an assignment whose collections are not known.
			s.c.failLocked(e, failure{state: Unknown, err: err, transient: true, kind: eventlog.Missing, from: s.cfg})
		}
	}
	if refused > 0 {
		s.c.logLocked(slog.LevelWarn, "xdslb: endpoints in collections are not updated, since an xDS server does not implement incremental ADS at present", fact{server: s.cfg, typ: resource.LbEndpointType},
			slog.Int("collections", refused))
	}
}

// lacksCollectionsLocked reports whether there are collections that the server cannot be asked
// for in the variant that it speaks.
func (s *server) lacksCollectionsLocked() bool {
	if s.variant == s.c.wantedVariant(s.cfg) || s.variant.collections() {
		return false
	}
	if len(s.types[resource.LbEndpointType].subs) > 0 {
		return true
	}
	for _, e := range s.c.entries {
		if e.rejected != nil && e.rejected.value != nil { // see checkCollections
			return true
		}
	}
	return false
}

// retryForCollectionsLocked ends a stream now and then while there are collections that the
// server cannot be asked for on it: the next one is of the variant that is wanted.
func (s *server) retryForCollectionsLocked(t *timing.Timer, end func()) {
	s.startLocked(t, variantRetry, func() {
		if s.lacksCollectionsLocked() {
			end()
		}
		s.retryForCollectionsLocked(t, end)
	})
}

// statusesLocked adds what is known of the members of e; col may be nil.
func (col *collection) statusesLocked(e *entry, all []ResourceStatus) []ResourceStatus {
	if col == nil {
		return all
	}
	of := e.statusLocked()
	for name, m := range col.members {
		s := ResourceStatus{Type: e.key.typ, Name: name, Authority: of.Authority, State: Acked, Since: of.Since, Watched: of.Watched, Asked: of.Asked}
		if m.valid {
			s.Version, s.Updated, s.Server = m.version, of.Updated, of.Server
			if m.raw != nil {
				s.Raw = &anypb.Any{TypeUrl: e.key.typ.URL(), Value: m.raw}
			}
		}
		if r := m.rejected; r != nil {
			s.State, s.Err, s.ErrTime = Nacked, m.err, r.at
			s.Rejected = RejectedVersion{Version: r.version, Time: r.at, Server: r.from.URI, Err: m.err}
		}
		all = append(all, s)
	}
	return all
}
