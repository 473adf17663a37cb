// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"bytes"
	"cmp"

	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file is response.go for the members of collections.

// handleMembers is handle for members of collections.
func (r *response) handleMembers() (affected []chan struct{}) {
	for {
		r.compareMembers()
		for i := range r.items {
			if r.ended() {
				return nil
			}
			if it := &r.items[i]; !it.skip && !it.known && !it.heartbeat {
				it.value, it.err = guard(r.typ, func() (any, error) { return r.server.members.Decode(it.name, it.bytes) })
				if it.err == nil && r.server.c.bytes {
					it.raw = bytes.Clone(it.bytes)
				}
			}
		}
		if affected, ok := r.applyMembers(); ok {
			return affected
		}
	}
}

// collectionOf returns the subscription that a member belongs to, nil if there is none.
func (t *subscriptions) collectionOf(member string) *subscription {
	return t.subs[resource.GlobOf(member)]
}

// startsLocked reports whether what a server says of a collection is the start of a new
// list.
func (s *server) startsLocked(sub *subscription) bool {
	return sub.restarts || sub.entry.collection == nil || sub.entry.from != s.cfg
}

// compareMembers is compare for members.
func (r *response) compareMembers() {
	c := r.server.c
	c.mu.Lock()
	defer c.unlock()
	for i := range r.items {
		it := &r.items[i]
		sub := r.server.types[r.typ].collectionOf(it.name)
		it.skip, it.known, it.err = sub == nil, false, nil
		if it.skip || r.server.startsLocked(sub) {
			continue
		}
		m := sub.entry.collection.members[it.name]
		switch {
		case m == nil:
		case m.valid && m.sum == it.sum && !it.heartbeat:
			it.known = true
		case m.rejected != nil && m.rejected.sum == it.sum && !it.heartbeat:
			it.known, it.err = true, m.err
		}
	}
}

// applyMembers is apply for members. Removals come before the resources of a response.
func (r *response) applyMembers() (affected []chan struct{}, ok bool) {
	c := r.server.c
	c.mu.Lock()
	defer c.unlock()
	t := &r.server.types[r.typ]
	if !t.sent {
		return nil, true
	}
	if r.staleLocked(t) {
		return nil, false
	}
	return r.effectLocked(t, func() { r.applyMembersLocked(t) }), true
}

// applyMembersLocked puts the members of a response into their collections.
func (r *response) applyMembersLocked(t *subscriptions) {
	s := r.server
	var touched []*subscription
	about := func(name string) *subscription {
		sub := t.collectionOf(name)
		if sub != nil && sub.round != t.round {
			s.beginLocked(sub, t.round)
			touched = append(touched, sub)
		}
		return sub
	}
	for name := range r.msg.removed() {
		if sub := about(name); sub != nil {
			sub.entry.collection.removeLocked(name)
		}
	}
	for i := range r.items {
		it := &r.items[i]
		switch {
		case it.skip:
		case it.heartbeat:
			r.renewMemberLocked(t.collectionOf(it.name), it)
		default:
			r.applyMemberLocked(about(it.name), it)
		}
	}
	for _, sub := range touched {
		s.commitLocked(sub, r.version, r.at)
	}
}

// staleLocked reports whether what compareMembers has found is not so any more.
func (r *response) staleLocked(t *subscriptions) bool {
	for i := range r.items {
		it := &r.items[i]
		sub := t.collectionOf(it.name)
		switch {
		case it.skip != (sub == nil):
			return true
		case it.skip || !it.known:
		case r.server.startsLocked(sub) || sub.entry.collection.members[it.name] == nil:
			return true
		}
	}
	return false
}

// beginLocked prepares a collection for what a response says.
func (s *server) beginLocked(sub *subscription, round uint64) {
	e := sub.entry
	if s.startsLocked(sub) {
		if e.collection == nil {
			e.collection = &collection{}
		}
		e.collection.clearLocked()
		sub.restarts = false
	}
	sub.answeredLocked()
	sub.received, sub.round = true, round
	e.from = s.cfg
}

// applyMemberLocked puts a member into its collection, or notes that it is invalid.
func (r *response) applyMemberLocked(sub *subscription, it *item) {
	s, col := r.server, sub.entry.collection
	m := col.memberLocked(it.name)
	value, _ := it.value.(resource.Member)
	if !it.known && it.err == nil {
		it.err = col.list.Set(it.name, value)
	}
	if it.err == nil {
		s.relation.status.Types[r.typ].Valid++
		col.settleLocked(m)
		if !it.known {
			m.valid, m.sum, m.raw = true, it.sum, it.raw
		}
		m.version = it.version
		s.liveMemberLocked(sub, it.name, m, it.ttl)
		return
	}
	r.refuse(it)
	if m.rejected == nil {
		col.invalid++
	}
	m.rejected, m.err = &rejectedVersion{sum: it.sum, from: s.cfg, version: it.version, at: when(r.at)}, it.err
	if m.valid && s.cfg.FailOnDataErrors {
		m.valid = false
		m.ttl.StopLocked()
		col.list.Remove(it.name)
	}
}

// renewMemberLocked follows a heartbeat, which says nothing about which members there are. If it is
// for a member that the client does not have, the collection is fetched again.
func (r *response) renewMemberLocked(sub *subscription, it *item) {
	s, m := r.server, &member{}
	if !s.startsLocked(sub) {
		m = cmp.Or(sub.entry.collection.members[it.name], m)
	}
	if it.err = it.renews(r.typ, m.valid, m.version); it.err != nil {
		r.refuse(it)
		r.refetch = append(r.refetch, sub)
		return
	}
	s.relation.status.Types[r.typ].Valid++
	s.liveMemberLocked(sub, it.name, m, it.ttl)
}

// commitLocked makes the members of a collection its value.
func (s *server) commitLocked(sub *subscription, version string, at arrival) {
	e, c := sub.entry, s.c
	v := acceptedVersion{value: e.collection.list.Commit(), version: version, from: s.cfg, at: at}
	bad, err := e.collection.faultLocked()
	if bad == nil {
		c.acceptLocked(e, v)
		return
	}
	changed := e.value != v.value
	if changed {
		e.value, e.updated = v.value, at
	}
	e.version = version
	c.failLocked(e, failure{state: Nacked, err: err, kind: eventlog.Rejected, version: bad.rejected.version, from: s.cfg})
	e.rejected = bad.rejected
	if changed {
		c.changedLocked(e)
	}
}
