// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/xdslb/xdslb/xds/eventlog"
)

// This file handles resources that a server does not send, or has deleted. Methods report
// whether an entry changed.

const msgNotReceived = "xdslb: resource not received from xDS server"

// startTimersLocked starts the timers of resources that were requested just now (A57), unless they
// run.
func (t *subscriptions) startTimersLocked(awaited []*subscription) {
	for _, sub := range awaited {
		current := t.subs[sub.entry.key.name] == sub
		if t.peer.up && current && !sub.timer.RunningLocked() && t.awaitsLocked(sub) {
			t.peer.core.startLocked(&sub.timer, t.peer.core.resourceTimeoutLocked(t.peer.cfg), func() { t.expireLocked(sub) })
		}
	}
}

// answeredLocked stops the timer of a resource after a response about it.
func (sub *subscription) answeredLocked() {
	if !sub.unsubscribing {
		sub.timer.StopLocked()
	}
}

// expireLocked ends the wait for a resource (A57, A88). It may still arrive.
func (t *subscriptions) expireLocked(sub *subscription) {
	if !t.awaitsLocked(sub) || t.protocol.expiredLocked(t, sub) {
		return
	}
	e, p := sub.entry, t.peer
	hint, what := "", "it"
	switch {
	case e.value != nil && e.from == p.cfg:
		hint = "; the version in the cache is from before the latest subscription"
	case e.value != nil:
		hint = fmt.Sprintf("; the version in the cache is from xDS server %q", e.from.URI)
	case !t.responded:
		// The behavior of a go-control-plane SnapshotCache in ADS mode towards clients that
		// request only some of the resources (T-XDS-17).
		hint = fmt.Sprintf("; it has sent no %v response on this stream; it may send none until the client requests every resource that it has", t.typ)
	}
	if t.counts.Unread != "" {
		what = "a valid one"
		hint += "; " + t.unreadLocked()
	}
	err := fmt.Errorf("xdslb: %v resource %q not found: xDS server %q is connected but has not sent %s within %v%s", t.typ, e.key.name, p.cfg.URI, what, p.core.resourceTimeoutLocked(p.cfg), hint)
	if !p.cfg.ResourceTimerIsTransientError {
		t.absentLocked(sub, err)
		return
	}
	p.core.beginLocked(e.unavailable(), msgNotReceived, logFields{server: p.cfg, typ: t.typ, name: e.key.name, err: err})
	p.cache.failLocked(e, failure{state: TimedOut, err: err, transient: true, kind: eventMissing, from: p.cfg})
}

// unreadLocked describes the resources of the latest response that were rejected without a name. The resource
// that is missing may be one of them.
func (t *subscriptions) unreadLocked() string {
	return fmt.Sprintf("its latest %v response has invalid resources, which may include it: %s", t.typ, eventlog.Cut(t.counts.Unread))
}

// removedLocked is called when the server has deleted a resource (A53, A88).
func (t *subscriptions) removedLocked(sub *subscription) (changed bool) {
	e, p := sub.entry, t.peer
	sub.received = false
	// grpc-go's wording, which users match on (D5).
	err := fmt.Errorf("xdslb: resource %q of type %q has been removed by xDS server %q", e.key.name, t.typ.String()+"Resource", p.cfg.URI)
	message := "xdslb: xDS server deleted a resource"
	if e.value != nil && !t.deletionCounts() || e.variants[keepKey] != nil && !p.cfg.FailOnDataErrors {
		message += "; keeping the last version"
	}
	p.core.beginLocked(e.unavailable(), message, logFields{server: p.cfg, typ: t.typ, name: e.key.name, version: e.version, err: err})
	return p.cache.failLocked(e, failure{state: DoesNotExist, err: err, drop: t.deletionCounts(), keep: !p.cfg.FailOnDataErrors, kind: eventDeleted, from: p.cfg})
}

// absentLocked is called when the server does not have a resource.
func (t *subscriptions) absentLocked(sub *subscription, err error) (changed bool) {
	e, p := sub.entry, t.peer
	p.core.beginLocked(e.unavailable(), msgNotReceived, logFields{server: p.cfg, typ: t.typ, name: e.key.name, err: err})
	return p.cache.failLocked(e, failure{state: DoesNotExist, err: err, drop: t.deletionCounts(), keep: !p.cfg.FailOnDataErrors, kind: eventMissing, from: p.cfg})
}

// deletionCounts reports whether a resource that the server deletes must not be used any
// more (A53, A88) by targets with DropDeleted.
func (t *subscriptions) deletionCounts() bool {
	cfg := t.peer.cfg
	return isFullState(t.typ) && (cfg.FailOnDataErrors || !cfg.IgnoreResourceDeletion)
}

// logRejectionLocked logs a rejection, unless it was logged last.
func (t *subscriptions) logRejectionLocked(n rejection) {
	if n != t.lastNack {
		t.lastNack, t.rejects = n, true
		t.peer.core.beginLocked(t.rejected(), "xdslb: rejecting invalid resources of an xDS server (NACK)",
			logFields{server: t.peer.cfg, typ: t.typ, name: n.name, version: n.version, err: errors.New(n.fault)}, slog.Int("resources", n.resources))
		if t.counts.Unread != "" { // the others are recorded by resource
			recordLocked(newEvent(eventRejected, t.peer.cfg, errors.New(t.counts.Unread)), t.entriesLocked())
		}
	}
}

// rejected is the condition that the latest version of a resource of the server is rejected.
func (t *subscriptions) rejected() condition {
	return condition{server: t.peer.cfg, kind: "rejected", typ: t.typ}
}

// acknowledgedLocked is called for a response without faults. It logs the end of rejections when no
// subscribed resource is rejected any more.
func (t *subscriptions) acknowledgedLocked() {
	t.lastNack = rejection{}
	if !t.rejects {
		return
	}
	for _, sub := range t.subs {
		if sub.entry.state == Nacked {
			return
		}
	}
	t.rejects = false
	t.peer.core.endLocked(t.rejected(), "xdslb: resources of an xDS server are accepted again", logFields{server: t.peer.cfg, typ: t.typ})
}
