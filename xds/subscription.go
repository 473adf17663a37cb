// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/internal/timing"
)

// subscriptions is the state of one type.
type subscriptions struct {
	subs  map[string]*subscription // by canonical name
	dirty bool                     // a request is due
	// sent says that this stream has carried names of the type. If not, a
	// request without names would mean all resources there are (T-XDS-2,
	// T-XDS-3).
	sent bool
	// heard says that this stream has carried a response of the type.
	heard    bool
	round    uint64    // number of the current response
	lastNack rejection // was logged last

	// nackTimer runs for Options.BackoffBase after a NACK. The next one waits for it.
	nackTimer timing.Timer
	// places are where resources were in the latest response, if it had all of them; nil when one is
	// dropped.
	places []place
	// whole means that the latest response had all resources that are wanted, and none has been
	// subscribed to since.
	whole bool
	// lapsed means that the time to live of a resource has expired since the stream was opened (liveLocked).
	lapsed bool
	// aliases are the names by which resources were subscribed to that have another name
	// of their own, by that one. Removals may use either.
	aliases map[string]map[string]struct{}

	protocol protocol // the state of the variant that is in use
}

// rejection says which version was rejected, and why; the zero value is none.
type rejection struct {
	version, fault string
	name           string // of the first resource that is invalid; empty if it has none
	resources      int    // that are invalid
}

// startLocked starts a timer of the server's, whose function is called with
// Client.mu held.
func (s *server) startLocked(t *timing.Timer, d time.Duration, f func()) {
	t.StartLocked(d, locker{s.c}, f)
}

// subscription is one server's relation to a resource.
type subscription struct {
	entry *entry
	// timer runs until the resource counts as absent or, while unsubscribing,
	// as unsubscribed.
	timer timing.Timer
	// received says that this server has sent the resource, in response
	// number round, and has not deleted it since (T-XDS-6).
	received bool
	round    uint64
	// restarts says that the next response about a glob collection is the start of a new list,
	// since the server does not know what the client has.
	restarts bool
	own      string // name of the resource, if it was subscribed to by another one
	// refetch means that the resource is to be unsubscribed from and subscribed to again.
	refetch bool
	// unsubscribing says that a request without the resource has been sent, the
	// latest one after response number omitted: see beginUnsubscribeLocked.
	unsubscribing bool
	omitted       uint64
	asked         bool // a request has named it since it was subscribed to
}

// subscribeLocked asks for e, unless it was asked for before.
func (s *server) subscribeLocked(e *entry) {
	t := &s.types[e.key.typ]
	sub := t.subs[e.key.name]
	switch {
	case sub == nil:
		t.subs[e.key.name] = &subscription{entry: e}
		e.subs++
	case sub.unsubscribing:
		sub.received = sub.received && e.value != nil && s.sendsLocked(e)
		sub.unsubscribing = false
		sub.timer.StopLocked()
	default:
		return
	}
	s.changedLocked(t, e.key.name)
}

// changedLocked has a request say whether a resource is wanted.
func (s *server) changedLocked(t *subscriptions, name string) {
	t.markLocked(name)
	t.dirty = true
	s.notify()
}

// markLocked notes that what was said of a resource may not be so any more.
func (t *subscriptions) markLocked(name string) {
	t.whole = false
	t.protocol.changedLocked(name)
}

// unsubscribeLocked makes the next request leave e out.
func (s *server) unsubscribeLocked(e *entry) {
	t := &s.types[e.key.typ]
	if !s.up || !t.sent {
		s.dropLocked(e)
		return
	}
	s.changedLocked(t, e.key.name)
}

// beginUnsubscribeLocked is for when the first request without a resource is about
// to be sent. Whether the server takes note is not certain: if a response of its
// own is under way, it ignores the request (T-XDS-4). Then it still believes the
// client to have the resource, and would not send it to a client that asks for it
// anew. So the client keeps the resource, and follows it, for as long as a message
// may plausibly be under way; see sendsLocked.
func (s *server) beginUnsubscribeLocked(sub *subscription) {
	sub.unsubscribing = true
	s.startLocked(&sub.timer, s.c.resourceTimeout(s.cfg), func() { s.dropLocked(sub.entry) })
}

// sendsLocked reports whether the server still sends changes of e, so that the cache
// can be used.
func (s *server) sendsLocked(e *entry) bool {
	sub := s.types[e.key.typ].subs[e.key.name]
	return sub != nil && s.variant.sendsLocked(sub)
}

// dropLocked ends a subscription.
func (s *server) dropLocked(e *entry) {
	t := &s.types[e.key.typ]
	sub := t.subs[e.key.name]
	if sub == nil {
		return
	}
	sub.timer.StopLocked()
	t.knownAsLocked(sub, "")
	delete(t.subs, e.key.name)
	t.places = nil
	t.markLocked(e.key.name)
	e.subs--
	s.c.forgetLocked(e)
}

// knownAsLocked notes the own name of a resource that was asked for by another one; own is
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

// claimsLocked reports whether a new stream may say which versions of a type the client
// has: if the cache has some from this server and none from others, and no server after
// this one is in use. Otherwise this one has to show that it is back, and to send again
// what the other may send in the meantime (A71).
func (s *server) claimsLocked(t *subscriptions) (ok bool) {
	if s.replacedLocked() {
		return false
	}
	for _, sub := range t.subs {
		if sub.entry.value != nil {
			if sub.entry.from != s.cfg {
				return false
			}
			ok = true
		}
	}
	return ok
}

// awaitsLocked reports whether the server is to send a resource in time: because
// nothing has been heard of it, or it is a collection that it could not be asked for before, or this
// server has not sent what is in use since it was subscribed to, and there is no other any more
// that is asked (A71).
func (s *server) awaitsLocked(sub *subscription) bool {
	e := sub.entry
	return e.unansweredLocked() || e.state == Unknown && s.variant.collections() ||
		(e.state == Acked || e.state == Nacked && s.variant.resends()) && e.value != nil && (!sub.received || e.from != s.cfg) && e.authority.lastLocked() == s
}

// startTimersLocked starts the clock for resources that the server was asked for
// just now (A57), unless it runs.
func (s *server) startTimersLocked(awaited []*subscription) {
	timeout := s.c.resourceTimeout(s.cfg)
	for _, sub := range awaited {
		current := s.types[sub.entry.key.typ].subs[sub.entry.key.name] == sub
		if s.up && current && !sub.timer.RunningLocked() && s.awaitsLocked(sub) {
			s.startLocked(&sub.timer, timeout, func() { s.expireLocked(sub, timeout) })
		}
	}
}

// answeredLocked stops the clock for a resource of which something has been heard.
func (sub *subscription) answeredLocked() {
	if !sub.unsubscribing {
		sub.timer.StopLocked()
	}
}

// expireLocked gives up waiting for a resource (A57, A88). It may still come.
func (s *server) expireLocked(sub *subscription, timeout time.Duration) {
	if !s.awaitsLocked(sub) {
		return
	}
	e := sub.entry
	hint := ""
	switch {
	case e.value != nil && e.from == s.cfg:
		hint = "; the version in the cache is from before the latest subscription"
	case e.value != nil:
		hint = fmt.Sprintf("; the version in the cache is from xDS server %q", e.from.URI)
	case !s.types[e.key.typ].heard:
		// What a go-control-plane SnapshotCache in ADS mode does to clients
		// that ask for less than all (T-XDS-17).
		hint = fmt.Sprintf("; it has sent no %v response at all on this stream, like a server that waits to be asked for every resource it has", e.key.typ)
	}
	err := fmt.Errorf("xds: %v resource %q not found: xDS server %q is connected but has not sent it within %v%s", e.key.typ, e.key.name, s.cfg.URI, timeout, hint)
	if !s.cfg.ResourceTimerIsTransientError {
		s.absentLocked(sub, err)
		return
	}
	s.c.logLocked(slog.LevelWarn, "xdslb: an xDS server does not send a resource", fact{server: s.cfg, typ: e.key.typ, name: e.key.name, err: err})
	s.c.failLocked(e, failure{state: TimedOut, err: err, transient: true, kind: eventlog.Missing, from: s.cfg})
}
