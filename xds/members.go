// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"bytes"
	"cmp"

	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file corresponds to response.go, for members of collections.

// handleMembers is handleResources for members of collections.
func (r *response) handleMembers() (applied bool) {
	r.compareMembers()
	r.t.members.AcceptHostnames = r.t.peer.core.opts.AcceptHostnames
	for i := range r.items {
		if r.ended() {
			return false
		}
		if it := &r.items[i]; !it.skip && !it.cached && !it.heartbeat {
			it.value, it.err = recoverPanic(r.t.typ, func() (any, error) { return r.t.members.Decode(it.name, it.bytes) })
			if it.err == nil && r.t.peer.core.bytes {
				it.raw = bytes.Clone(it.bytes)
			}
		}
	}
	return r.applyMembers()
}

// collectionOf returns the subscription that a member belongs to, or nil.
func (t *subscriptions) collectionOf(member string) *subscription {
	return t.subs[resource.GlobOf(member)]
}

// startsLocked reports whether the next response about a collection starts a new list.
func (t *subscriptions) startsLocked(sub *subscription) bool {
	return sub.restarts || sub.entry.collection == nil || sub.entry.from != t.peer.cfg
}

// compareMembers is compare for members.
func (r *response) compareMembers() {
	core := r.t.peer.core
	core.mu.Lock()
	defer core.mu.Unlock()
	for i := range r.items {
		it := &r.items[i]
		sub := r.t.collectionOf(it.name)
		it.skip, it.cached, it.err = sub == nil, false, nil
		if it.skip || r.t.startsLocked(sub) {
			continue
		}
		m := sub.entry.collection.members[it.name]
		switch {
		case m == nil:
		case m.valid && m.sum == it.sum && !it.heartbeat:
			it.cached = true
		case m.rejected != nil && m.rejected.sum == it.sum && !it.heartbeat:
			it.cached, it.err = true, m.err
		}
	}
}

// applyMembers is apply for members. Removals are applied before the resources of a response.
func (r *response) applyMembers() bool {
	core := r.t.peer.core
	core.mu.Lock()
	defer core.unlock()
	if !r.t.sent {
		return true
	}
	if r.staleLocked() {
		return false
	}
	r.effectLocked(r.applyMembersLocked)
	return true
}

// applyMembersLocked applies the members of a response to their collections.
func (r *response) applyMembersLocked() {
	t := r.t
	var touched []*subscription
	begin := func(name string) *subscription {
		sub := t.collectionOf(name)
		if sub != nil && sub.round != t.round {
			t.beginLocked(sub)
			touched = append(touched, sub)
		}
		return sub
	}
	for name := range r.msg.removed() {
		if sub := begin(name); sub != nil {
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
			r.applyMemberLocked(begin(it.name), it)
		}
	}
	for _, sub := range touched {
		r.changedLocked(sub.entry, t.commitLocked(sub, r.version, r.at))
	}
}

// staleLocked reports whether the result of compareMembers is outdated.
func (r *response) staleLocked() bool {
	for i := range r.items {
		it := &r.items[i]
		sub := r.t.collectionOf(it.name)
		switch {
		case it.skip != (sub == nil):
			return true
		case it.skip || !it.cached:
		case r.t.startsLocked(sub) || sub.entry.collection.members[it.name] == nil:
			return true
		}
	}
	return false
}

// beginLocked prepares a collection for the current response.
func (t *subscriptions) beginLocked(sub *subscription) {
	e := sub.entry
	if t.startsLocked(sub) {
		if e.collection == nil {
			e.collection = &collection{}
		}
		e.collection.clearLocked()
		sub.restarts = false
	}
	sub.answeredLocked()
	sub.received, sub.round = true, t.round
	e.from = t.peer.cfg
}

// applyMemberLocked stores a member in its collection, or records that it is invalid.
func (r *response) applyMemberLocked(sub *subscription, it *resourceUpdate) {
	from, col := r.t.peer.cfg, sub.entry.collection
	m := col.memberLocked(it.name)
	value, _ := it.value.(resource.Member)
	if !it.cached && it.err == nil {
		it.err = col.list.Set(it.name, value)
	}
	if it.err == nil {
		r.t.counts.Valid++
		col.settleLocked(m)
		if !it.cached {
			m.valid, m.sum, m.raw = true, it.sum, it.raw
		}
		m.version = it.version
		r.t.liveMemberLocked(sub, it.name, m, it.ttl)
		return
	}
	r.refuse(it)
	if m.rejected == nil {
		col.invalid++
	}
	m.rejected, m.err = &rejectedVersion{sum: it.sum, from: from, version: it.version, at: timeOrZero(r.at)}, it.err
	if m.valid && from.FailOnDataErrors {
		m.valid = false
		m.ttl.StopLocked()
		col.list.Remove(it.name)
	}
}

// renewMemberLocked applies a heartbeat, which does not imply the set of members. If it is
// for a member that the client does not have, the collection is fetched again.
func (r *response) renewMemberLocked(sub *subscription, it *resourceUpdate) {
	m := &member{}
	if !r.t.startsLocked(sub) {
		m = cmp.Or(sub.entry.collection.members[it.name], m)
	}
	if it.err = it.renews(r.t.typ, m.valid, m.version); it.err != nil {
		r.refuse(it)
		r.refetch = append(r.refetch, sub)
		return
	}
	r.t.counts.Valid++
	r.t.liveMemberLocked(sub, it.name, m, it.ttl)
}

// commitLocked makes the members of a collection its value, and reports whether the entry changed.
func (t *subscriptions) commitLocked(sub *subscription, version string, at receiveTime) (changed bool) {
	e, from, cache := sub.entry, t.peer.cfg, t.peer.cache
	v := acceptedVersion{value: e.collection.list.Commit(), version: version, from: from, at: at}
	bad, err := e.collection.faultLocked()
	if bad == nil {
		return cache.acceptLocked(e, v)
	}
	other := e.value != v.value
	if other {
		e.value, e.updated = v.value, at
	}
	e.version = version
	changed = cache.failLocked(e, failure{state: Nacked, err: err, kind: eventlog.Rejected, version: bad.rejected.version, from: from})
	e.rejected = bad.rejected
	if other {
		cache.changedLocked(e)
	}
	return changed || other
}

// commitEmptyLocked is called when the server has a collection without members (xRFC TP1).
func (t *subscriptions) commitEmptyLocked(sub *subscription) (changed bool) {
	t.beginLocked(sub)
	return t.commitLocked(sub, sub.entry.version, sub.entry.updated)
}

// memberVersionsLocked returns the versions of the members of a collection, for the client to
// claim; nil if it cannot. It includes all members that the server has sent, even if the latest
// version of some is invalid: a server does not delete members that it does not know the client to
// have.
func (t *subscriptions) memberVersionsLocked(sub *subscription) map[string]string {
	e := sub.entry
	if e.value == nil || e.collection == nil || e.from != t.peer.cfg || sub.restarts {
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
