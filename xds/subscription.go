// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"iter"

	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// subscriptions is the state of one resource type on one server: the resources that the client
// wants, and the resources that the server has sent. It outlives streams.
type subscriptions struct {
	peer   *peer
	typ    resource.Type
	counts *typeStatus // of the server

	subs  map[string]*subscription // by canonical name
	dirty bool                     // a request is due
	// sent means that a request of this stream has had names of the type. Before that a
	// request without names would subscribe to all resources (T-XDS-2, T-XDS-3).
	sent bool
	// responded means that this stream has had a response of the type.
	responded bool
	round     uint64    // number of the current response
	lastNack  rejection // the one that was logged last
	rejects   bool      // a rejection was logged, and not its end

	// nackTimer runs for Options.BackoffBase after a NACK. The next one waits for it.
	nackTimer timing.Timer
	// slots are the slots of resources in the latest response, if it had all of them; nil when one
	// is dropped.
	slots []slot
	// whole means that the latest response had all wanted resources, and that no resource has
	// been subscribed to since.
	whole bool
	// lapsed means that the time to live of a resource has expired since the stream was opened (liveLocked).
	lapsed bool
	// aliases has the names by which resources were subscribed to, by the name of the resource, where
	// they differ. Removals may use either.
	aliases map[string]map[string]struct{}

	protocol protocol // state of the variant in use
}

// rejection identifies a version that was rejected, and the reason. The zero value means that
// no version was rejected.
type rejection struct {
	version, fault string
	name           string // of the first invalid resource; empty if it has no name
	resources      int    // number of invalid resources
}

// subscription is the relation of one server to one resource.
type subscription struct {
	entry *entry
	user  serverUser // the authority of the entry
	// timer runs until the resource counts as missing or, while unsubscribing, as unsubscribed.
	timer timing.Timer
	// received means that this server has sent the resource, in response number round, and has not
	// deleted it since (T-XDS-6).
	received bool
	round    uint64
	own      string // name of the resource, if it was subscribed to by another one
	// refetch means that the resource is to be unsubscribed from and subscribed to again, and returned
	// that it was subscribed to again, after a request without it, and has not been sent since.
	refetch, returned bool
	// unsubscribing means that a request without the resource has been sent, the
	// latest one after response number omitted: see beginUnsubscribeLocked.
	unsubscribing bool
	omitted       uint64
	asked         bool // a request has named the resource since the subscription
}

// subscribeLocked subscribes to e, unless it is subscribed to already.
func (t *subscriptions) subscribeLocked(e *entry, user serverUser) {
	sub := t.subs[e.key.name]
	switch {
	case sub == nil:
		t.subs[e.key.name] = &subscription{entry: e, user: user}
		e.subs++
	case sub.unsubscribing:
		sub.received = sub.received && e.value != nil && t.sendsLocked(e)
		sub.returned, sub.unsubscribing = e.value != nil, false
		sub.timer.StopLocked()
	default:
		return
	}
	t.changedLocked(e.key.name)
}

// entriesLocked visits the entries that are subscribed to.
func (t *subscriptions) entriesLocked() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, sub := range t.subs {
			if !yield(sub.entry) {
				return
			}
		}
	}
}

// dirtyLocked makes a request due.
func (t *subscriptions) dirtyLocked() {
	t.dirty = true
	t.peer.notify()
}

// changedLocked makes a request due that reflects whether a resource is wanted.
func (t *subscriptions) changedLocked(name string) {
	t.markLocked(name)
	t.dirtyLocked()
}

// markLocked records that a resource may have to be subscribed to or unsubscribed from.
func (t *subscriptions) markLocked(name string) {
	t.whole = false
	t.protocol.changedLocked(name)
}

// unsubscribeLocked makes the next request leave out e.
func (t *subscriptions) unsubscribeLocked(e *entry) {
	if !t.peer.up || !t.sent {
		t.dropLocked(e)
		return
	}
	t.changedLocked(e.key.name)
}

// beginUnsubscribeLocked is called before the first request without a resource is sent. The server
// may ignore the request if a response is in flight (T-XDS-4). Then it assumes that the client
// still has the resource, and would not send it again on a new subscription. So the client keeps
// the resource up to date for as long as a message may plausibly be in flight; see sendsLocked.
func (t *subscriptions) beginUnsubscribeLocked(sub *subscription) {
	sub.unsubscribing = true
	core := t.peer.core
	core.startLocked(&sub.timer, core.resourceTimeoutLocked(t.peer.cfg), func() { t.dropLocked(sub.entry) })
}

// sendsLocked reports whether the server still sends changes of e, so that the cache can be used.
func (t *subscriptions) sendsLocked(e *entry) bool {
	sub := t.subs[e.key.name]
	return sub != nil && t.peer.variant.sendsLocked(sub)
}

// dropLocked ends a subscription.
func (t *subscriptions) dropLocked(e *entry) {
	sub := t.subs[e.key.name]
	if sub == nil {
		return
	}
	sub.timer.StopLocked()
	t.knownAsLocked(sub, "")
	delete(t.subs, e.key.name)
	t.slots = nil
	t.markLocked(e.key.name)
	e.subs--
	t.peer.cache.forgetLocked(e)
}

// knownAsLocked records the own name of a resource that was subscribed to by another one; own is
// empty if it was not.
func (t *subscriptions) knownAsLocked(sub *subscription, own string) {
	if sub.own == own {
		return
	}
	name := sub.entry.key.name
	if aliases := t.aliases[sub.own]; aliases != nil {
		if delete(aliases, name); len(aliases) == 0 {
			delete(t.aliases, sub.own)
		}
	}
	if sub.own = own; own == "" {
		return
	}
	if t.aliases == nil {
		t.aliases = map[string]map[string]struct{}{}
	}
	if t.aliases[own] == nil {
		t.aliases[own] = map[string]struct{}{}
	}
	t.aliases[own][name] = struct{}{}
}

// claimsLocked reports whether the first request of a stream may claim the versions of the type
// that the client has. This requires that the cache has versions from this server and from no
// other server, and that no later server is in use. Otherwise this server has to prove that it
// is back, and to send again the resources that the other server may send in the meantime
// (A71).
func (t *subscriptions) claimsLocked() (ok bool) {
	if t.peer.replacedLocked() {
		return false
	}
	for _, sub := range t.subs {
		if sub.entry.value != nil {
			if sub.entry.from != t.peer.cfg || t.peer.core.keepsLocked() && sub.entry.raw == nil {
				return false
			}
			ok = true
		}
	}
	return ok
}

// awaitsLocked reports whether the server has to send a resource in time. This is the case if
// no version has been received, if patches wait for the bytes of an accepted version, or if this server
// has not sent the version in use since the subscription and no other server is in use any more (A71).
func (t *subscriptions) awaitsLocked(sub *subscription) bool {
	e, p := sub.entry, t.peer
	return e.unansweredLocked() || e.state == Acked && e.wantsBytesLocked() ||
		(e.state == Acked || e.state == Nacked && p.variant.resends()) && e.value != nil && (!sub.received || e.from != p.cfg) && p.users[sub.user]
}

// lacksLocked reports whether the server has to send a resource that no request has named, or not
// since it was last unsubscribed from.
func (t *subscriptions) lacksLocked() bool {
	for _, sub := range t.subs {
		if (!sub.asked || sub.returned) && t.awaitsLocked(sub) {
			return true
		}
	}
	return false
}
