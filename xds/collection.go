// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"

	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file implements glob collections (xRFC TP1), which only the incremental variant has: one
// subscription, to xdstp://authority/type/path/*, is for many resources, which are added, removed
// and rejected individually.
//
// There is one entry for a collection. An invalid member leaves the last good version of that member
// and all other members in use, and makes the state Nacked. A server reports a collection without
// members as deleted. Like other deletions of endpoints, that alone removes no member.

// collection holds the members of a glob collection, all of one server.
type collection struct {
	members map[string]*member // by name
	list    resource.MemberList
	invalid int // number of members whose latest version is invalid

	lapse  timing.Timer // runs while there are expired members
	lapsed int          // number of expired members
}

// member is a resource of a collection.
type member struct {
	valid   bool // there is a valid version, with the following fields
	sum     xxh3.Uint128
	version string
	raw     []byte       // nil unless core.bytes
	ttl     timing.Timer // runs while the version has a time to live

	rejected *rejectedVersion // the latest version, if it is invalid
	err      error            // of rejected
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

// memberLocked returns a member, creating it if necessary.
func (col *collection) memberLocked(name string) *member {
	m := col.members[name]
	if m == nil {
		m = &member{}
		col.members[name] = m
	}
	return m
}

// removeLocked removes a member.
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

// settleLocked removes the error of a member.
func (col *collection) settleLocked(m *member) {
	if m.rejected != nil {
		m.rejected, m.err = nil, nil
		col.invalid--
	}
}

// clearLocked removes all members.
func (col *collection) clearLocked() {
	col.stopLocked()
	col.members, col.invalid = map[string]*member{}, 0
	col.list.Clear()
}

// faultLocked returns the first invalid member and an error about all invalid members, or nil.
// O(members) if a member is invalid.
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

// emptyLocked reports whether e is a collection without known members.
func (e *entry) emptyLocked() bool {
	return e.key.typ == resource.LbEndpointType && (e.collection == nil || len(e.collection.members) == 0)
}

// checkCollections returns err, the error from decoding a resource, if it is not nil. Otherwise it
// returns an error if the collections of the resource are unavailable.
func (c *cache) checkCollections(value any, err error) error {
	if e, ok := value.(*resource.Endpoints); err != nil || !ok || len(e.Collections) == 0 {
		return err
	}
	c.core.mu.Lock()
	defer c.core.unlock()
	return c.checkCollectionsLocked(value)
}

// checkCollectionsLocked returns why the collections of a resource are unavailable.
func (c *cache) checkCollectionsLocked(v any) error {
	e, ok := v.(*resource.Endpoints)
	if !ok {
		return nil
	}
	for i := range e.Collections {
		src, err := c.sourceOf(entryKey{resource.LbEndpointType, canonicalName(e.Collections[i].Name)})
		switch {
		case err != nil:
			return e.Collections[i].Refuse(e.Name, "must be of an authority that the bootstrap has")
		case !src.collectionsLocked():
			return e.Collections[i].Refuse(e.Name, "must not be a glob collection, since its xDS server does not use incremental ADS; the server feature xdslb.delta_ads requests that")
		}
	}
	return nil
}

// reviewLocked is called when the next stream of a server may be of the other variant: it accepts
// assignments that were rejected because their collections were unavailable, if these may be
// available now. Their server, which may be another one, need not send them again.
func (c *cache) reviewLocked() {
	for _, e := range c.entries {
		if r := e.rejected; r != nil && r.value != nil && c.checkCollectionsLocked(r.value) == nil {
			c.acceptLocked(e, acceptedVersion{r.value, r.sum, r.version, r.from, &r.at, r.raw})
		}
	}
}

// refusedCollectionsLocked reports whether an assignment was rejected because its collections were
// unavailable.
func (c *cache) refusedCollectionsLocked() bool {
	for _, e := range c.entries {
		if e.rejected != nil && e.rejected.value != nil {
			return true
		}
	}
	return false
}

// statusesLocked adds the status of the members of e; col may be nil.
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
