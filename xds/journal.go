// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"iter"
	"time"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
)

// Kinds of events of an XdsClient, besides those of package eventlog.
const (
	eventAccepted      eventlog.Kind = "Accepted"      // a resource, or the addresses of a DNS name, changed
	eventRejected      eventlog.Kind = "Rejected"      // a version of a resource is invalid
	eventDeleted       eventlog.Kind = "Deleted"       // a server deleted a resource
	eventMissing       eventlog.Kind = "Missing"       // a server did not send a resource in time
	eventErrorReceived eventlog.Kind = "ErrorReceived" // a server sent an error in place of a resource, or DNS failed
	eventConnected     eventlog.Kind = "Connected"     // a stream received its first response
	eventStreamFailed  eventlog.Kind = "StreamFailed"  // a stream ended, or could not be opened
	eventFallback      eventlog.Kind = "Fallback"      // Server is unreachable; the next one is used
	eventReturn        eventlog.Kind = "Return"        // Server recovered; its fallbacks are no longer used
)

// newEvent returns an event that happens now. from and err may be nil.
func newEvent(kind eventlog.Kind, from *bootstrap.Server, err error) *eventlog.Event {
	e := &eventlog.Event{Time: time.Now(), Kind: kind}
	if from != nil {
		e.Server = from.URI
	}
	if err != nil {
		e.Error = eventlog.Cut(err.Error())
	}
	return e
}

// recordLocked records an event once in the journal of each target that depends on any of the
// entries.
func recordLocked(ev *eventlog.Event, entries iter.Seq[*entry]) {
	for t := range targetsOfLocked(entries) {
		t.recordLocked(ev)
	}
}

// targetsOfLocked returns the targets that depend on any of the entries.
func targetsOfLocked(entries iter.Seq[*entry]) map[target]struct{} {
	targets := map[target]struct{}{}
	for e := range entries {
		e.targetsLocked(func(t target) { targets[t] = struct{}{} })
	}
	return targets
}

// eventType returns the type of a resource in an event. Entries of DNS names have no resource type.
func eventType(t resource.Type) string {
	if t < resource.NumTypes {
		return t.String()
	}
	return "DNS name"
}
